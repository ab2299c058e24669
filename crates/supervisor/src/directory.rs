//! Finding running applications: each supervisor listens at a name that tells who it is.

use std::os::unix::ffi::OsStrExt;

use farmem_sys::link::{Link, listen_at};
use farmem_sys::{Errno, OwnedFd};
use farmem_wire::Request;

use crate::report::Report;

/// Names begin with this, so that they can be found in the kernel's list of sockets.
const PREFIX: &str = "farmem/";
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
    names.iter().filter_map(|name| ask(name)).collect()
}

/// The applications of that name.
pub fn query(name: &str) -> Vec<Report> {
    applications().into_iter().filter(|report| report.name == name).collect()
}

fn ask(name: &str) -> Option<Report> {
    let link = Link::connect(name.as_bytes()).ok()?;
    link.send(&Request::Query.encode(), &[]).ok()?;
    let mut text = vec![0; REPORT_BYTES];
    let (length, _) = link.receive(&mut text).ok()?;
    serde_json::from_slice(&text[..length]).ok()
}
