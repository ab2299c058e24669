//! Finding running applications: each supervisor listens at a name that tells who it is.

use std::os::unix::ffi::OsStrExt;

use farmem_sys::link::Link;
use farmem_wire::Request;

use crate::report::Report;

/// Names begin with this, so that they can be found in the kernel's list of sockets.
const PREFIX: &str = "farmem/";
/// Longest report.
const REPORT_BYTES: usize = 64 << 10;

/// The name at which the supervisor of process `supervisor` listens.
pub(crate) fn socket_name(supervisor: u32) -> String {
    format!("{PREFIX}{supervisor}")
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
