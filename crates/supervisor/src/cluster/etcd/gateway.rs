//! Questions to etcd's gateway of HTTP and JSON, one for each connection.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use farmem_transport::ServerStream;
use serde::Deserialize;
use serde_json::json;

use super::access::{Access, Login};
use crate::cluster::source::MOST_BYTES;

/// To connect, and for each piece of an answer. A step of the thread that looks takes no longer than a few of
/// these.
const PATIENCE: Duration = Duration::from_secs(1);
/// An answer holds the text in a longer form, and some words around it.
pub(super) const MOST_ANSWER_BYTES: u64 = 2 * MOST_BYTES;

/// Why a question has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// Nobody is there.
    Away(String),
    /// Something is there, but it can't be known to be etcd, or doesn't know us.
    Untrusted(String),
    /// The question was sent. It may have done what it asked for.
    Unanswered(String),
    /// etcd doesn't do it, and no other member would.
    Refused(String),
    /// The token is too old.
    Forgotten,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away(why) | Self::Unanswered(why) => write!(f, "etcd doesn't answer ({why})"),
            Self::Untrusted(why) => write!(f, "etcd can't be trusted ({why})"),
            Self::Refused(why) => write!(f, "etcd refuses: {why}"),
            Self::Forgotten => f.write_str("etcd refuses the token that it gave"),
        }
    }
}

/// A connection to a member.
pub(super) enum Connection {
    Plain(TcpStream),
    Secure(Box<ServerStream>),
}

impl Connection {
    /// Connects to `HOST:PORT`.
    fn to(endpoint: &str, access: &Access) -> Result<Self, Trouble> {
        let away = |error: io::Error| Trouble::Away(format!("{endpoint}: {error}"));
        let address = endpoint.to_socket_addrs().map_err(away)?.next();
        let address = address.ok_or_else(|| Trouble::Away(format!("{endpoint}: it has no address")))?;
        let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(away)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(away)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(away)?;
        let Some(trust) = access.trust() else { return Ok(Self::Plain(stream)) };
        let secure = trust.begin(stream, host_of(endpoint));
        secure
            .map(|stream| Self::Secure(Box::new(stream)))
            .map_err(|why| Trouble::Untrusted(format!("{endpoint}: {why}")))
    }

    /// From now on it is looked at, and not waited for.
    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream,
            Self::Secure(stream) => stream.socket(),
        }
        .set_nonblocking(true)
    }
}

impl Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(into),
            Self::Secure(stream) => stream.read(into),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Secure(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Secure(stream) => stream.flush(),
        }
    }
}

/// The host of `HOST:PORT`, as a certificate names it.
pub(super) fn host_of(endpoint: &str) -> &str {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Asks a question that ends, as who we are.
pub(super) fn exchange(
    endpoint: &str,
    access: &Access,
    path: &str,
    question: &str,
) -> Result<Vec<u8>, Trouble> {
    let once = || whole_answer(endpoint, access, ask(endpoint, access, path, question)?);
    match (once(), access.login()) {
        (Err(Trouble::Forgotten), Some(login)) => {
            login.set_token(None);
            once()
        }
        (outcome, _) => outcome,
    }
}

/// Sends a question, as who we are.
pub(super) fn ask(
    endpoint: &str,
    access: &Access,
    path: &str,
    question: &str,
) -> Result<Connection, Trouble> {
    let token = match access.login() {
        None => None,
        Some(login) => Some(match login.token() {
            Some(token) => token,
            None => authenticate(endpoint, access, login)?,
        }),
    };
    send(endpoint, access, path, question, token.as_deref())
}

/// Asks for a token.
fn authenticate(endpoint: &str, access: &Access, login: &Login) -> Result<String, Trouble> {
    #[derive(Deserialize)]
    struct Authenticated {
        token: String,
    }
    let question = json!({ "name": login.user, "password": login.password }).to_string();
    let connection = send(endpoint, access, "/v3/auth/authenticate", &question, None)?;
    let answer = whole_answer(endpoint, access, connection);
    let answer = answer.map_err(|trouble| match trouble {
        // Asked again, it gives the same answer, and nothing has changed by the question.
        Trouble::Unanswered(why) => Trouble::Away(why),
        other => other,
    })?;
    let told: Result<Authenticated, _> = serde_json::from_slice(&answer);
    // It becomes a line of the next question.
    match told {
        Ok(Authenticated { token }) if token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            login.set_token(Some(token.clone()));
            Ok(token)
        }
        _ => Err(Trouble::Refused("its token can't be understood".to_owned())),
    }
}

fn send(
    endpoint: &str,
    access: &Access,
    path: &str,
    question: &str,
    token: Option<&str>,
) -> Result<Connection, Trouble> {
    let mut connection = Connection::to(endpoint, access)?;
    let token = token.map_or_else(String::new, |token| format!("Authorization: {token}\r\n"));
    // Of version 1.0, so that an answer ends with its connection, and needs no decoding.
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {endpoint}\r\n{token}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        question.len()
    );
    connection
        .write_all(&[head.as_bytes(), question.as_bytes()].concat())
        .and_then(|()| connection.flush())
        .map_err(|error| ended(endpoint, access, &error))?;
    Ok(connection)
}

/// Why a connection ended before its time. Only after a question was sent does a member say that it doesn't
/// take our certificate, and then it has not heard the question.
fn ended(endpoint: &str, access: &Access, error: &io::Error) -> Trouble {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return Trouble::Unanswered(format!("{endpoint}: {error}"));
    }
    Trouble::Refused(match access.shows_certificate() {
        false => format!("{endpoint} wants a certificate; give --cluster-cert FILE and --cluster-key FILE"),
        true => format!(
            "{endpoint} doesn't take the certificate of --cluster-cert; it must be for clients, valid, and by an authority that etcd knows (--trusted-ca-file)"
        ),
    })
}

/// The body of an answer that ends.
fn whole_answer(endpoint: &str, access: &Access, connection: Connection) -> Result<Vec<u8>, Trouble> {
    let unanswered = |why: String| Trouble::Unanswered(format!("{endpoint}: {why}"));
    let mut answer = Vec::new();
    let read = connection.take(MOST_ANSWER_BYTES + 1).read_to_end(&mut answer);
    read.map_err(|error| ended(endpoint, access, &error))?;
    if answer.len() as u64 > MOST_ANSWER_BYTES {
        return Err(unanswered(format!("its answer is larger than {} MiB", MOST_ANSWER_BYTES >> 20)));
    }
    body_of(&answer).map(<[u8]>::to_vec).map_err(|trouble| match trouble {
        Trouble::Unanswered(why) => unanswered(why),
        other => other,
    })
}

/// What etcd says of a question that it doesn't answer.
#[derive(Deserialize)]
struct Complaint {
    #[serde(default)]
    code: u32,
    #[serde(default)]
    error: String,
}

/// Codes of gRPC: what is wrong with the question, or with the asker.
const INVALID: u32 = 3;
const DENIED: u32 = 7;
const UNFIT: u32 = 9;
const UNKNOWN: u32 = 16;

/// What follows the head of an answer that went well.
pub(super) fn body_of(answer: &[u8]) -> Result<&[u8], Trouble> {
    let end = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .ok_or_else(|| Trouble::Unanswered("it doesn't speak HTTP".to_owned()))?;
    let (head, body) = (String::from_utf8_lossy(&answer[..end]), &answer[end + 4..]);
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if head.starts_with("HTTP/1.") && status == "200" {
        return Ok(body);
    }
    if let Ok(Complaint { code, error }) = serde_json::from_slice(body) {
        match code {
            UNKNOWN if error.contains("token") => return Err(Trouble::Forgotten),
            INVALID if error.contains("user name is empty") => {
                return Err(Trouble::Refused("it wants a user; give --cluster-login FILE".to_owned()));
            }
            INVALID | DENIED | UNFIT | UNKNOWN => return Err(Trouble::Refused(error)),
            _ => {}
        }
    }
    let line = head.lines().next().unwrap_or_default();
    Err(Trouble::Unanswered(format!("it says {line:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_etcd_refuses_is_told_from_what_it_can_not_do_now() {
        let answer = |status: &str, body: &str| format!("HTTP/1.0 {status}\r\n\r\n{body}").into_bytes();
        let trouble = |status: &str, body: &str| body_of(&answer(status, body)).unwrap_err();
        let refused = trouble("400 Bad Request", "{\"error\":\"wrong password\",\"code\":3}");
        assert_eq!(refused, Trouble::Refused("wrong password".to_owned()));
        let old = trouble("401 Unauthorized", "{\"error\":\"etcdserver: invalid auth token\",\"code\":16}");
        assert_eq!(old, Trouble::Forgotten);
        let nobody = trouble("400 Bad Request", "{\"error\":\"etcdserver: user name is empty\",\"code\":3}");
        assert!(nobody.to_string().contains("--cluster-login"));
        let now = trouble("503 Unavailable", "{\"error\":\"no leader\",\"code\":14}");
        assert!(matches!(now, Trouble::Unanswered(_)));
        assert!(trouble("404 Not Found", "").to_string().contains("404"));
        assert!(body_of(b"SSH-2.0").is_err());
        assert_eq!(body_of(&answer("200 OK", "{}")), Ok(&b"{}"[..]));
    }

    #[test]
    fn hosts_are_named_as_certificates_do() {
        let hosts = ["one:2379", "[::1]:2379", "10.0.0.1:1"].map(host_of);
        assert_eq!(hosts, ["one", "::1", "10.0.0.1"]);
    }
}
