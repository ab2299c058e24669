//! TLS 1.3 over a socket. Both ends prove who they are; nothing is resumed, and no older version spoken.
//!
//! With a shared key, each side has a key pair of Ed25519 that is derived from it, one for nodes and one for
//! clients, and shows its public key without a certificate around it (RFC 7250). Whoever has the shared key
//! knows both; whoever has not can't make the signature that the handshake asks for, nor take one side's for
//! the other's. See docs/adr/0023-shared-key.md.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use ring::hkdf::{HKDF_SHA256, Salt};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::ring::{cipher_suite, default_provider, sign::any_eddsa_type};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, DistinguishedName,
    Error, RootCertStore, ServerConfig, ServerConnection, SignatureScheme,
};

use crate::LinkError;
use crate::inbox::Sink;
use crate::security::{CertificateFiles, SecurityError, SharedKey, read_secret};
use crate::stream::PORTION_BYTES;

/// Sealed bytes that may wait for a socket, in addition to those that are not sealed yet.
const MOST_SEALED_BYTES: usize = 512 << 10;

/// The identity that others see, and how others are recognised.
#[derive(Clone)]
pub struct Identity {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    /// Whether each peer has a certificate of its own.
    is_personal: bool,
}

impl Identity {
    /// One of those who have a key.
    ///
    /// # Errors
    /// The key can't be used for what it is meant for, which doesn't happen.
    pub fn with_key(key: &SharedKey) -> Result<Self, SecurityError> {
        let unusable = |error: Error| SecurityError::Unusable(error.to_string());
        let provider = provider();
        let (node, node_key) = derived(key, b"node").map_err(unusable)?;
        let (peer, peer_key) = derived(key, b"client").map_err(unusable)?;
        let knows = |key| Arc::new(Knows { key, algorithms: provider.signature_verification_algorithms });
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(knows(node_key))
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(peer)));
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_client_cert_verifier(knows(peer_key))
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(node)));
        Ok(Self::of(client, server, false))
    }

    /// One with a certificate.
    ///
    /// # Errors
    /// A file can't be read, holds something else, or doesn't fit the others.
    pub fn with_certificates(files: &CertificateFiles) -> Result<Self, SecurityError> {
        let unusable = |error: &dyn fmt::Display| SecurityError::Unusable(error.to_string());
        let provider = provider();
        let chain = certificates(&files.certificate)?;
        let key = private_key(&files.key)?;
        let roots = authorities(&files.authority)?;
        let roots = Arc::new(roots);
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| unusable(&error))?;
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .and_then(|builder| {
                builder.with_root_certificates(roots).with_client_auth_cert(chain.clone(), key.clone_key())
            })
            .map_err(|error| unusable(&error))?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .and_then(|builder| builder.with_client_cert_verifier(verifier).with_single_cert(chain, key))
            .map_err(|error| unusable(&error))?;
        Ok(Self::of(client, server, true))
    }

    fn of(mut client: ClientConfig, mut server: ServerConfig, is_personal: bool) -> Self {
        client.resumption = Resumption::disabled();
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Self { client: Arc::new(client), server: Arc::new(server), is_personal }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("is_personal", &self.is_personal).finish_non_exhaustive()
    }
}

fn provider() -> Arc<CryptoProvider> {
    let mut provider = default_provider();
    // What is kept for some hours at most doesn't need the longer key, which costs a fifth more.
    provider.cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(provider)
}

/// The certificates in a file of PEM.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SecurityError> {
    let text = std::fs::read(path).map_err(|error| SecurityError::File { path: path.to_owned(), error })?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(SecurityError::Content { path: path.to_owned(), what: "certificate" }),
    }
}

/// The authorities whose certificates are in a file of PEM.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, SecurityError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots.add(authority).map_err(|error| SecurityError::Unusable(error.to_string()))?;
    }
    Ok(roots)
}

/// The private key in a file of PEM, which others must not be able to read.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, SecurityError> {
    PrivateKeyDer::from_pem_slice(read_secret(path)?.as_bytes())
        .map_err(|_| SecurityError::Content { path: path.to_owned(), what: "private key" })
}

/// The key pair that one role derives from a shared key, and its public half as it is shown.
fn derived(
    key: &SharedKey,
    role: &'static [u8],
) -> Result<(Arc<CertifiedKey>, SubjectPublicKeyInfoDer<'static>), Error> {
    /// What stands before the 32 bytes of a private key of Ed25519 in PKCS #8 (RFC 8410).
    const PREFIX: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    let failed = |_| Error::General("the key cannot be derived".to_owned());
    let mut private = [0; PREFIX.len() + 32];
    private[..PREFIX.len()].copy_from_slice(&PREFIX);
    Salt::new(HKDF_SHA256, b"farmem node key 1")
        .extract(key.bytes())
        .expand(&[role], HKDF_SHA256)
        .and_then(|derived| derived.fill(&mut private[PREFIX.len()..]))
        .map_err(failed)?;
    let signer = any_eddsa_type(&PrivatePkcs8KeyDer::from(private.to_vec()))?;
    let public =
        signer.public_key().ok_or_else(|| Error::General("the key has no public half".to_owned()))?;
    let public = SubjectPublicKeyInfoDer::from(public.as_ref().to_vec());
    let shown = CertificateDer::from(public.as_ref().to_vec());
    Ok((Arc::new(CertifiedKey::new(vec![shown], signer)), public))
}

/// Knows peers by one public key.
#[derive(Debug)]
struct Knows {
    key: SubjectPublicKeyInfoDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Knows {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        if shown.as_ref() == self.key.as_ref() {
            Ok(())
        } else {
            Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
        }
    }

    fn verify(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check(shown)?;
        verify_tls13_signature_with_raw_key(message, &self.key, signature, &self.algorithms)
    }
}

/// An older version is never spoken.
fn too_old() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("TLS 1.2 is not spoken".to_owned()))
}

impl ServerCertVerifier for Knows {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        too_old()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Knows {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        too_old()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// A socket with TLS around what goes through it.
pub(crate) struct TlsStream {
    socket: OwnedFd,
    connection: Connection,
    /// Sealed bytes that have come: read in large portions, because the library would ask for 4 KiB at a
    /// time.
    sealed: Vec<u8>,
    is_personal: bool,
}

impl TlsStream {
    /// The client's end. `host` is whom the node's certificate must name.
    pub(crate) fn connect(socket: OwnedFd, identity: &Identity, host: &str) -> Result<Self, LinkError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| LinkError::Untrusted(format!("no certificate can name {host}")))?;
        let connection =
            ClientConnection::new(Arc::clone(&identity.client), name).map_err(|error| distrust(&error))?;
        Ok(Self::of(socket, connection.into(), identity.is_personal))
    }

    /// The node's end.
    pub(crate) fn accept(socket: OwnedFd, identity: &Identity) -> Result<Self, LinkError> {
        let connection =
            ServerConnection::new(Arc::clone(&identity.server)).map_err(|error| distrust(&error))?;
        Ok(Self::of(socket, connection.into(), identity.is_personal))
    }

    fn of(socket: OwnedFd, mut connection: Connection, is_personal: bool) -> Self {
        connection.set_buffer_limit(Some(MOST_SEALED_BYTES));
        Self { socket, connection, sealed: Vec::new(), is_personal }
    }

    /// The fingerprint of the peer's certificate, once it has shown it.
    pub(crate) fn credential(&self) -> Option<[u8; 32]> {
        let shown = self.connection.peer_certificates()?.first().filter(|_| self.is_personal)?;
        digest(&SHA256, shown).as_ref().try_into().ok()
    }

    /// Takes in what has come, opened. How many bytes.
    pub(crate) fn receive(&mut self, into: &mut Sink<'_>) -> Result<usize, LinkError> {
        self.sealed.reserve(PORTION_BYTES);
        match rustix::io::read(&self.socket, spare_capacity(&mut self.sealed)) {
            Ok(0) if self.connection.is_handshaking() => {
                return Err(LinkError::Untrusted("it closed the connection before it was known".to_owned()));
            }
            Ok(0) | Err(Errno::CONNRESET) => return Err(LinkError::Closed),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(LinkError::Kernel(error.into())),
        }
        let mut total = 0;
        let mut sealed = self.sealed.as_slice();
        while !sealed.is_empty() {
            if self.connection.read_tls(&mut sealed)? == 0 {
                break;
            }
            let state = match self.connection.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    // The peer hears why, if it can.
                    let _ = self.flush();
                    return Err(distrust(&error));
                }
            };
            let mut left = state.plaintext_bytes_to_read();
            total += left;
            while left > 0 {
                let room = into.some(left);
                let count = room.len();
                self.connection.reader().read_exact(room)?;
                into.add(count);
                left -= count;
            }
            if state.peer_has_closed() {
                return Err(LinkError::Closed);
            }
        }
        let taken = self.sealed.len() - sealed.len();
        self.sealed.drain(..taken);
        self.flush()?;
        Ok(total)
    }

    /// Seals and sends; how many bytes were taken.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
        let taken = self.connection.writer().write(bytes)?;
        self.flush()?;
        Ok(taken)
    }

    /// Sends what is sealed, as far as the socket takes it.
    pub(crate) fn flush(&mut self) -> Result<(), LinkError> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Socket(self.socket.as_fd())) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(LinkError::Closed),
                Err(error) => return Err(LinkError::Kernel(error)),
            }
        }
        Ok(())
    }

    /// Whether something is sealed and did not go yet.
    pub(crate) fn waits_to_send(&self) -> bool {
        self.connection.wants_write()
    }
}

impl AsFd for TlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn distrust(error: &Error) -> LinkError {
    LinkError::Untrusted(match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "it has another key, or a certificate of another authority".to_owned()
        }
        Error::InvalidMessage(_) => "it doesn't speak TLS; it may have no key".to_owned(),
        Error::AlertReceived(alert) => format!("it says {alert:?}"),
        Error::NoCertificatesPresented => "it shows no key".to_owned(),
        other => other.to_string(),
    })
}

/// What the library writes to. A peer that has gone is an error, not a signal.
struct Socket<'a>(BorrowedFd<'a>);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(sendmsg(self.0, parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
