//! Finding running applications: each supervisor listens at a name that tells who it is.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use farmem_sys::link::{Link, listen_at};
use farmem_sys::{Errno, OwnedFd};
use farmem_wire::Request;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::de::DeserializeOwned;

use crate::inside::{ProcessReport, RegionsReport};
use crate::limits::Limits;
use crate::report::Report;

/// Names begin with this, so that they can be found in the kernel's list of sockets.
const PREFIX: &str = "farmem/";
/// A supervisor that is stopped, or frozen together with its application, doesn't answer; nobody else shall wait for it.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest report.
const REPORT_BYTES: usize = 64 << 10;

/// Most supervisors in the background whose names have the same process number in them.
const MOST_NAMESAKES: u32 = 100;

/// Opens the end at which the calling process hears of its processes. The socket and its name: a supervisor that goes on
/// in the background keeps its name, while its process number may be given out again.
///
/// # Errors
/// What the kernel says.
pub(crate) fn listen() -> Result<(OwnedFd, String), Errno> {
    let own = format!("{PREFIX}{}", std::process::id());
    let others = (1..MOST_NAMESAKES).map(|more| format!("{own}.{more}"));
    let mut outcome = Err(Errno::ADDRINUSE);
    for name in std::iter::once(own.clone()).chain(others) {
        outcome = listen_at(name.as_bytes()).map(|socket| (socket, name));
        if !matches!(outcome, Err(Errno::ADDRINUSE)) {
            break;
        }
    }
    outcome
}

/// The applications that run on this machine under this user's eyes, as they are at this moment.
pub fn applications() -> Vec<Report> {
    names().iter().filter_map(|name| ask(name)).collect()
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
}

/// Changes limits of the application of that name, or of that program's process number: all of them or none. How it is then.
///
/// # Errors
/// There is no such application or more than one, or its supervisor refuses.
pub fn set(name: &str, limits: Limits) -> Result<Report, SetError> {
    let (socket, _) = named(name)?;
    let answer = exchange(&socket, limits.request()).ok_or_else(|| SetError::Gone(name.to_owned()))?;
    match serde_json::from_slice::<String>(&answer) {
        Ok(reason) => Err(SetError::Refused(name.to_owned(), reason)),
        Err(_) => serde_json::from_slice(&answer).map_err(|_| SetError::Gone(name.to_owned())),
    }
}

/// The application of that name, or of that program's process number, as it is now.
///
/// # Errors
/// There is no such application, or more than one.
pub fn find(name: &str) -> Result<Report, SetError> {
    named(name).map(|(_, report)| report)
}

/// The processes of the application of that name, or of that program's process number, those with most memory first.
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
    let gone = || SetError::Gone(name.to_owned());
    let answer = exchange(&socket, Request::Look { process }).ok_or_else(gone)?;
    match serde_json::from_slice::<String>(&answer) {
        Ok(reason) => Err(SetError::Refused(name.to_owned(), reason)),
        Err(_) => serde_json::from_slice(&answer).map_err(|_| gone()),
    }
}

/// The same, and the socket of its supervisor.
fn named(name: &str) -> Result<(String, Report), SetError> {
    let mut all: Vec<(String, Report)> =
        names().into_iter().filter_map(|socket| ask(&socket).map(|report| (socket, report))).collect();
    if all.iter().any(|(_, report)| report.name == name) {
        all.retain(|(_, report)| report.name == name);
    } else {
        all.retain(|(_, report)| report.process.to_string() == name);
    }
    match all.len() {
        0 => Err(SetError::Unknown(name.to_owned())),
        1 => Ok(all.swap_remove(0)),
        many => Err(SetError::Ambiguous(name.to_owned(), many)),
    }
}

/// The one application whose supervisor is asked.
#[derive(Clone, Debug)]
pub struct Own {
    socket: String,
}

impl Own {
    /// That whose supervisor listens at this name.
    pub(crate) fn at(socket: &str) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// How it is at this moment; nothing while its supervisor doesn't answer.
    pub fn reports(&self) -> Vec<Report> {
        ask(&self.socket).into_iter().collect()
    }
}

/// The applications of that name.
pub fn query(name: &str) -> Vec<Report> {
    applications().into_iter().filter(|report| report.name == name).collect()
}

fn ask(name: &str) -> Option<Report> {
    serde_json::from_slice(&exchange(name, Request::Query)?).ok()
}

/// The answer of the supervisor that listens there.
fn exchange(name: &str, request: Request) -> Option<Vec<u8>> {
    let link = Link::connect(name.as_bytes()).ok()?;
    for direction in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&link, direction, Some(PATIENCE)).ok()?;
    }
    link.send(&request.encode(), &[]).ok()?;
    let mut text = vec![0; REPORT_BYTES];
    let (length, _) = link.receive(&mut text).ok()?;
    text.truncate(length);
    Some(text)
}
