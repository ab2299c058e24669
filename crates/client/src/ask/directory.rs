//! Finding running applications: each supervisor listens at a name that tells who it is.

use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use farmem_sys::link::Link;
use farmem_sys::{AsFd, Errno};
use farmem_wire::Request;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::event::{PollFd, PollFlags, poll};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ask::limits::Limits;
use crate::report::inside::{ProcessReport, RegionsReport};
use crate::report::run::Report;

/// Names of supervisors' sockets begin with this, so that they can be found in the kernel's list of sockets.
pub const PREFIX: &str = "farmem/";
/// A supervisor that is stopped, or frozen together with its application, doesn't answer; nobody else shall
/// wait for it. Any user can make a socket of such a name that never answers: so many are asked at once that
/// these cost no more than one.
const PATIENCE: Duration = Duration::from_secs(1);
const MOST_AT_ONCE: usize = 256;
/// Longest report.
const REPORT_BYTES: usize = 64 << 10;

/// How often it is looked how an application stands that is being left, and for how long nothing may move.
const LOOK: Duration = Duration::from_millis(20);
const STANDSTILL: Duration = Duration::from_secs(60);

/// The applications that run on this machine under this user's eyes, as they are at this moment.
pub fn applications() -> Vec<Report> {
    reports(&names()).into_iter().flatten().collect()
}

/// The sockets of all supervisors.
fn names() -> Vec<String> {
    let list = std::fs::read("/proc/net/unix").unwrap_or_default();
    let mut names: Vec<String> = list
        .split(|&byte| byte == b'\n')
        .filter_map(|line| {
            let name = line.rsplit(|&byte| byte == b' ').next()?.strip_prefix(b"@")?;
            let name = std::ffi::OsStr::from_bytes(name).to_str()?;
            name.starts_with(PREFIX).then(|| name.to_owned())
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

/// All applications on this machine; nobody is asked anything.
pub fn all() -> Vec<Own> {
    names().into_iter().map(|socket| Own { socket }).collect()
}

/// Whether any application runs on this machine.
pub fn is_any_running() -> bool {
    !names().is_empty()
}

/// Why limits could not be changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SetError {
    /// No application has that name, and no program that process number.
    #[error("no application named {0} runs under Farmem; `farmem stat` lists those that do")]
    Unknown(String),
    /// More than one has.
    #[error("{1} applications are named {0}; name one by its process number, as `farmem stat` shows it")]
    Ambiguous(String, usize),
    /// The supervisor says why.
    #[error("{0}: {1}")]
    Refused(String, String),
    /// The application ended meanwhile.
    #[error("{0} has just ended")]
    Gone(String),
    /// What was begun doesn't come to its end.
    #[error(
        "{0} is still being left: a forked process of it has no pager of its own, or what it has far can't be had; it is left when that ends"
    )]
    Stuck(String),
}

/// Changes limits of the application of that name, or of that program's process number: all of them or none.
/// How it is then.
///
/// # Errors
/// There is no such application or more than one, or its supervisor refuses.
pub fn set(name: &str, limits: Limits) -> Result<Report, SetError> {
    let (socket, _) = named(name)?;
    let answer = exchange(&socket, limits.request()).ok_or_else(|| SetError::Gone(name.to_owned()))?;
    understood(name, &answer)
}

/// Has all that is far of the application of that name, or of that program's process number, brought back,
/// and its processes left alone. Returns when its supervisor has ended; `hear` is told now and then how it
/// stands. How it was when that began.
///
/// # Errors
/// There is no such application or more than one, its supervisor refuses, or nothing comes back any more.
pub fn detach(name: &str, mut hear: impl FnMut(&Report)) -> Result<Report, SetError> {
    let (socket, _) = named(name)?;
    let answer = exchange(&socket, Request::Withdraw).ok_or_else(|| SetError::Gone(name.to_owned()))?;
    let before: Report = understood(name, &answer)?;
    let (mut far, mut moved) = (before.far_pages, Instant::now());
    while names().contains(&socket) {
        if let Some(now) = reports(std::slice::from_ref(&socket)).into_iter().flatten().next() {
            hear(&now);
            if now.far_pages != far {
                (far, moved) = (now.far_pages, Instant::now());
            }
        }
        if moved.elapsed() > STANDSTILL {
            return Err(SetError::Stuck(name.to_owned()));
        }
        std::thread::sleep(LOOK);
    }
    Ok(before)
}

/// The name of the application that a process belongs to, if it belongs to one.
pub fn holder(process: u32) -> Option<String> {
    let sockets = names();
    let answers = exchange_all(&sockets, Request::Holds { process });
    let holds =
        |answer: &Option<Vec<u8>>| decode::<bool>(answer.as_deref().unwrap_or_default()) == Some(true);
    let at = answers.iter().position(holds)?;
    let report = reports(std::slice::from_ref(&sockets[at])).into_iter().flatten().next();
    Some(report.map_or_else(|| sockets[at].clone(), |report| report.name))
}

/// The application of that name, or of that program's process number, as it is now.
///
/// # Errors
/// There is no such application, or more than one.
pub fn find(name: &str) -> Result<Report, SetError> {
    named(name).map(|(_, report)| report)
}

/// The processes of the application of that name, or of that program's process number, those with most memory
/// first.
///
/// # Errors
/// There is no such application or more than one, or it is somebody else's.
pub fn processes(name: &str) -> Result<Vec<ProcessReport>, SetError> {
    look(name, 0)
}

/// The regions of one of its processes.
///
/// # Errors
/// As for [`processes`], and when the process isn't one of them or doesn't answer.
pub fn regions(name: &str, process: u32) -> Result<RegionsReport, SetError> {
    look(name, process)
}

fn look<T: DeserializeOwned>(name: &str, process: u32) -> Result<T, SetError> {
    let (socket, _) = named(name)?;
    let answer =
        exchange(&socket, Request::Look { process }).ok_or_else(|| SetError::Gone(name.to_owned()))?;
    understood(name, &answer)
}

/// What was asked for, or the reason why not.
pub(super) fn understood<T: DeserializeOwned>(name: &str, answer: &[u8]) -> Result<T, SetError> {
    if let Some(reason) = decode::<String>(answer) {
        return Err(SetError::Refused(name.to_owned(), reason));
    }
    decode(answer).ok_or_else(|| SetError::Gone(name.to_owned()))
}

/// The same, and the socket of its supervisor. A number counts before a name: programs ask by numbers, and
/// anybody may give an application such a name.
pub(super) fn named(name: &str) -> Result<(String, Report), SetError> {
    let sockets = names();
    let reports = reports(&sockets);
    let all = sockets.into_iter().zip(reports);
    let mut all: Vec<(String, Report)> =
        all.filter_map(|(socket, report)| report.map(|report| (socket, report))).collect();
    let is_number = |report: &Report| report.process.to_string() == name;
    if all.iter().any(|(_, report)| is_number(report)) {
        all.retain(|(_, report)| is_number(report));
    } else {
        all.retain(|(_, report)| report.name == name);
    }
    match all.len() {
        0 => Err(SetError::Unknown(name.to_owned())),
        1 => Ok(all.swap_remove(0)),
        many => Err(SetError::Ambiguous(name.to_owned(), many)),
    }
}

/// The one application whose supervisor is asked.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Own {
    socket: String,
}

impl Own {
    /// That whose supervisor listens at this name.
    pub fn at(socket: &str) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// How it is at this moment; nothing while its supervisor doesn't answer.
    pub fn reports(&self) -> Vec<Report> {
        reports(std::slice::from_ref(&self.socket)).into_iter().flatten().collect()
    }

    /// Whether its supervisor is this user's, or root's: anybody may listen at such a name, and say what they
    /// like.
    pub fn is_trusted(&self) -> bool {
        let owner = Link::connect_at_once(self.socket.as_bytes())
            .ok()
            .and_then(|link| getsockopt(&link.as_fd(), PeerCredentials).ok())
            .map(|peer| peer.uid());
        owner.is_some_and(|owner| owner == 0 || owner == rustix::process::geteuid().as_raw())
    }

    /// Changes limits of it: all of them or none.
    ///
    /// # Errors
    /// Its supervisor refuses, or has ended.
    pub fn set(&self, limits: Limits) -> Result<Report, SetError> {
        self.ask(limits.request())
    }

    /// Has all that is far of it brought back, and its processes left alone. Returns when that has begun.
    ///
    /// # Errors
    /// Its supervisor refuses, or has ended.
    pub fn withdraw(&self) -> Result<Report, SetError> {
        self.ask(Request::Withdraw)
    }

    fn ask(&self, request: Request) -> Result<Report, SetError> {
        let answer = exchange(&self.socket, request).ok_or_else(|| SetError::Gone(self.socket.clone()))?;
        understood(&self.socket, &answer)
    }
}

/// The applications of that name.
pub fn query(name: &str) -> Vec<Report> {
    applications().into_iter().filter(|report| report.name == name).collect()
}

/// How the applications are whose supervisors listen there; of those that don't answer, nothing.
fn reports(names: &[String]) -> Vec<Option<Report>> {
    exchange_all(names, Request::Query).iter().map(|answer| decode(answer.as_ref()?)).collect()
}

/// Takes an answer apart. It may be anybody's, and what it says goes to terminals: names of files, too, may
/// hold anything.
fn decode<T: DeserializeOwned>(answer: &[u8]) -> Option<T> {
    fn shown(text: &str) -> String {
        text.replace(char::is_control, "?")
    }
    fn clean(value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(shown(&text)),
            Value::Array(values) => values.into_iter().map(clean).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(name, value)| (shown(&name), clean(value))).collect()
            }
            other => other,
        }
    }
    serde_json::from_value(clean(serde_json::from_slice(answer).ok()?)).ok()
}

/// The answer of the supervisor that listens there.
pub(super) fn exchange(name: &str, request: Request) -> Option<Vec<u8>> {
    exchange_all(&[name.to_owned()], request).pop().flatten()
}

/// The answers of all supervisors that listen at these names, in the same order.
fn exchange_all(names: &[String], request: Request) -> Vec<Option<Vec<u8>>> {
    names.chunks(MOST_AT_ONCE).flat_map(|names| exchange_at_once(names, request)).collect()
}

fn exchange_at_once(names: &[String], request: Request) -> Vec<Option<Vec<u8>>> {
    let end = Instant::now() + PATIENCE;
    let mut answers = vec![None; names.len()];
    let ask = |name: &String| {
        let link = Link::connect_at_once(name.as_bytes()).ok()?;
        link.send(&request.encode(), &[]).ok()?;
        Some(link)
    };
    let mut asked: Vec<(usize, Link)> =
        names.iter().enumerate().filter_map(|(at, name)| Some((at, ask(name)?))).collect();
    while !asked.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let timeout =
            rustix::time::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut set: Vec<PollFd<'_>> =
            asked.iter().map(|(_, link)| PollFd::from_borrowed_fd(link.as_fd(), PollFlags::IN)).collect();
        if poll(&mut set, Some(&timeout)).is_err_and(|error| error != Errno::INTR) {
            break;
        }
        let ready: Vec<bool> = set.iter().map(|place| !place.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        asked.retain(|(at, link)| {
            let is_ready = ready.next().unwrap_or_default();
            if is_ready {
                answers[*at] = receive(link);
            }
            !is_ready
        });
    }
    answers
}

fn receive(link: &Link) -> Option<Vec<u8>> {
    let mut text = vec![0; REPORT_BYTES];
    let (length, _) = link.receive(&mut text).ok()?;
    text.truncate(length);
    Some(text)
}

#[cfg(test)]
mod tests {
    use farmem_sys::OwnedFd;
    use farmem_sys::link::listen_at;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, socket};

    use super::*;

    fn name(of: &str) -> String {
        format!("{PREFIX}test-{of}-{}", std::process::id())
    }

    /// Answers one question with these bytes.
    fn answer(listener: &OwnedFd, text: &str) {
        let link = Link::from(rustix::net::accept(listener).unwrap());
        link.receive(&mut [0; 64]).unwrap();
        link.send(text.as_bytes(), &[]).unwrap();
    }

    #[test]
    fn a_socket_at_which_nobody_is_let_in_keeps_no_other_from_answering() {
        let (full, other) = (name("full"), name("other"));
        let deaf = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        bind(&deaf, &SocketAddrUnix::new_abstract_name(full.as_bytes()).unwrap()).unwrap();
        rustix::net::listen(&deaf, 0).unwrap();
        let _waiting: Vec<Link> =
            std::iter::from_fn(|| Link::connect_at_once(full.as_bytes()).ok()).collect();
        let listener = listen_at(other.as_bytes()).unwrap();
        let asking = {
            let names = [full, other];
            std::thread::spawn(move || exchange_all(&names, Request::Query))
        };

        let mut set = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
        poll(&mut set, None).unwrap();
        answer(&listener, "here");

        assert_eq!(asking.join().unwrap(), [None, Some(b"here".to_vec())]);
    }

    #[test]
    fn what_would_steer_a_terminal_is_taken_out_of_answers() {
        let report = Report { name: "\x1b[2Jname\n".to_owned(), ..Report::default() };

        let shown: Report = decode(serde_json::to_string(&report).unwrap().as_bytes()).unwrap();

        assert_eq!(shown.name, "?[2Jname?");
        assert_eq!(decode::<String>(b"\"no\\u001b\""), Some("no?".to_owned()));
    }
}
