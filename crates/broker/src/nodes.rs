//! Which memory nodes a host names: text that the broker hands to `farmem run`, which reads it before
//! anything begins.
//!
//! It says where keys and certificates are, not what they are: `farmem run` opens their files with the rights
//! of its user.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use farmem_sys::Errno;
use farmem_sys::link::{Descriptors, Link};
use farmem_wire::host::{FromBroker, HOST_PACKET_BYTES, MOST_NODES_BYTES, ToBroker};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// A broker answers within this time.
const ANSWER: Duration = Duration::from_secs(2);
/// Between two looks for its answer.
const LOOK: Duration = Duration::from_millis(1);

/// What is said of a broker that says nothing, or not what it should.
pub const NO_ANSWER: &str = "the host's broker doesn't answer; try again, or see to it";

/// What is said of a socket at which nobody listens.
pub fn nobody_listens(socket: &Path) -> String {
    format!("no broker listens on {}; start one with `farmem host`, or give --host none", socket.display())
}

/// The text, in a memory file that all who ask share and that nobody can change.
pub(crate) struct Notice {
    file: File,
    length_bytes: u64,
}

impl Notice {
    pub(crate) fn new(text: &str) -> Result<Self> {
        let length_bytes = text.len() as u64;
        ensure!(length_bytes <= MOST_NODES_BYTES, "too many memory nodes are named; name them by a cluster");
        let cannot = "cannot make the memory that says which nodes there are";
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("farmem-nodes", flags).context(cannot)?);
        file.write_all_at(text.as_bytes(), 0).context(cannot)?;
        fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .context(cannot)?;
        Ok(Self { file, length_bytes })
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn length_bytes(&self) -> u64 {
        self.length_bytes
    }
}

/// What the broker of that socket says of memory nodes, if it names any.
///
/// # Errors
/// A sentence: there is no broker, it doesn't answer, or it is one that may not say where a program's memory
/// goes.
pub fn named_nodes(socket: &Path) -> Result<Option<String>> {
    let path = CString::new(socket.as_os_str().as_bytes())?;
    let link = Link::connect_to(&path).with_context(|| nobody_listens(socket))?;
    link.send(&ToBroker::Ask.encode(), &[]).context(NO_ANSWER)?;
    let Some((length_bytes, [file, ..])) = answer(&link) else { bail!(NO_ANSWER) };
    if length_bytes == 0 {
        return Ok(None);
    }
    let owner = getsockopt(&link, PeerCredentials).context(NO_ANSWER)?.uid();
    // Pages go where it says.
    if ![0, rustix::process::geteuid().as_raw()].contains(&owner) {
        bail!(
            "the broker on {} is another user's, and names memory nodes; name your own by --node, or give --node none",
            socket.display()
        );
    }
    file.and_then(|file| read(file, length_bytes)).map(Some).context(NO_ANSWER)
}

fn answer(link: &Link) -> Option<(u64, Descriptors)> {
    let began = Instant::now();
    let mut packet = [0; HOST_PACKET_BYTES + 1];
    loop {
        match link.receive(&mut packet) {
            Ok((length, descriptors)) => match FromBroker::decode(&packet[..length])? {
                FromBroker::Nodes { length_bytes } => return Some((length_bytes, descriptors)),
                _ => return None,
            },
            Err(Errno::AGAIN) if began.elapsed() < ANSWER => std::thread::sleep(LOOK),
            Err(_) => return None,
        }
    }
}

/// The text in a file, which must be one: a pipe could keep its reader waiting.
fn read(file: OwnedFd, length_bytes: u64) -> Option<String> {
    let file = File::from(file);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = vec![0; usize::try_from(length_bytes).ok()?];
    file.read_exact_at(&mut text, 0).ok()?;
    String::from_utf8(text).ok()
}
