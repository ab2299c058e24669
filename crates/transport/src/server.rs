//! TLS to servers that are no nodes: they prove by a certificate who they are, and may ask for one of ours.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::ServerName;
use rustls::version::TLS13;
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, StreamOwned};

use crate::security::SecurityError;
use crate::tls::{authorities, certificates, private_key};

/// By whom servers have their certificates, and what we show them.
#[derive(Clone)]
pub struct ServerTrust(Arc<ClientConfig>);

impl ServerTrust {
    /// From files of PEM: certificates of authorities; and a certificate of our own, with its key.
    ///
    /// # Errors
    /// A file can't be read, holds something else, or doesn't fit the others.
    pub fn load(authority: &Path, own: Option<(&Path, &Path)>) -> Result<Self, SecurityError> {
        let unusable = |error: Error| SecurityError::Unusable(error.to_string());
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_root_certificates(authorities(authority)?);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                builder.with_client_auth_cert(chain, private_key(key)?).map_err(unusable)?
            }
        };
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }

    /// Begins TLS on a connection to that host, and waits until the server has proved who it is, as long as
    /// the socket waits for anything.
    ///
    /// # Errors
    /// Why it has not, in a few words.
    pub fn begin(&self, mut socket: TcpStream, host: &str) -> Result<ServerStream, String> {
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| format!("no certificate can name {host}"))?;
        let mut connection =
            ClientConnection::new(Arc::clone(&self.0), name).map_err(|error| in_words(&error))?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket).map_err(|error| reason(&error))?;
        }
        Ok(ServerStream(StreamOwned::new(connection, socket)))
    }
}

impl fmt::Debug for ServerTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTrust")
    }
}

/// A connection to a server. Whether that takes what we show it comes out only when something was sent: what
/// it doesn't take is an error of the kind [`io::ErrorKind::PermissionDenied`], and then nothing that was
/// sent has any effect.
#[derive(Debug)]
pub struct ServerStream(StreamOwned<ClientConnection, TcpStream>);

impl ServerStream {
    /// The socket below, for how long it waits.
    pub fn socket(&self) -> &TcpStream {
        &self.0.sock
    }

    /// What can't be sent any more may have been refused: that has come before the connection ended.
    fn why(&mut self, error: io::Error) -> io::Error {
        if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
            && let Err(refusal) = self.0.read(&mut [0]).map_err(told)
            && refusal.kind() == io::ErrorKind::PermissionDenied
        {
            return refusal;
        }
        told(error)
    }
}

impl Read for ServerStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into).map_err(told)
    }
}

impl Write for ServerStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|error| self.why(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|error| self.why(error))
    }
}

/// An error of the library says in words what it is.
fn told(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(inner @ Error::AlertReceived(alert)) if is_of_certificate(*alert) => {
            io::Error::new(io::ErrorKind::PermissionDenied, in_words(inner))
        }
        Some(inner) => io::Error::new(error.kind(), in_words(inner)),
        None => error,
    }
}

fn reason(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(inner) => in_words(inner),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
        None => error.to_string(),
    }
}

fn in_words(error: &Error) -> String {
    match error {
        // An authority of the same name has another key.
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "its certificate is by another authority".to_owned()
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "its certificate names another host".to_owned(),
        Error::InvalidMessage(_) => "it doesn't speak TLS".to_owned(),
        Error::AlertReceived(alert) if is_of_certificate(*alert) => {
            format!("it refuses this side's certificate, or misses one: {alert:?}")
        }
        Error::AlertReceived(alert) => format!("it says {alert:?}"),
        other => other.to_string(),
    }
}

/// Whether an alert is about what we showed as a certificate, or that we showed none.
fn is_of_certificate(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::NoCertificate
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::CertificateRequired
    )
}
