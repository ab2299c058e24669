//! Memory that processes of the application share: how much there is, which of them map it, and the pager
//! that manages it.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use farmem_machine::process;
use farmem_page::{ByteCount, PageCount};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, statfs};

use crate::processes::attacher::pager_command;

/// What a puppet has of memory, which its pager maps as well.
const PUPPET_FILE: &str = "/memfd:farmem-puppet";
/// What the kernel calls the file system of all shared memory that isn't in huge pages.
const TMPFS: i64 = 0x0102_1994;
/// How long no further pager comes when one has found nothing that it could manage.
const REST: Duration = Duration::from_secs(10);

/// What is found of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Found {
    /// Pages of anonymous shared memory that are there, each counted once however many processes map it.
    pub(super) resident: PageCount,
    /// The same of memory that has a name or a descriptor: it stays local.
    pub(super) named: PageCount,
    /// The processes that map any anonymous one.
    pub(super) processes: Vec<u32>,
}

/// Shared memory in a process's mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mapping<'a> {
    range: &'a str,
    device: &'a str,
    inode: u64,
    is_anonymous: bool,
}

/// Looks at the mappings of the processes; of those alone that have touched shared memory, unless `all` are
/// asked for.
pub(super) fn find(numbers: &[u32], all: bool) -> Found {
    let mut seen: HashSet<(String, u64)> = HashSet::new();
    let mut processes = Vec::new();
    let (mut anonymous, mut named) = (0, 0);
    for &number in numbers.iter().filter(|&&number| all || has_any(number)) {
        let maps = process::text(format!("/proc/{number}/maps")).unwrap_or_default();
        let mut has_anonymous = false;
        for mapping in maps.lines().filter_map(shared) {
            has_anonymous |= mapping.is_anonymous;
            if seen.insert((mapping.device.to_owned(), mapping.inode)) {
                let sum = if mapping.is_anonymous { &mut anonymous } else { &mut named };
                *sum += bytes_of(number, &mapping);
            }
        }
        if has_anonymous {
            processes.push(number);
        }
    }
    let pages = |bytes| ByteCount::new(bytes).pages();
    Found { resident: pages(anonymous), named: pages(named), processes }
}

/// Whether a process has touched shared memory.
fn has_any(number: u32) -> bool {
    let status = process::text(format!("/proc/{number}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("RssShmem:"))
        .and_then(|rest| rest.split_whitespace().next())
        .is_some_and(|kib| kib != "0")
}

/// A mapping that may be one of shared memory: of a file on no disk, which others see when it is written.
fn shared(line: &str) -> Option<Mapping<'_>> {
    let mut words = line.split_whitespace();
    let (range, rights, device) = (words.next()?, words.next()?, words.nth(1)?);
    let inode = words.next()?.parse().ok()?;
    let is_one = rights.ends_with('s') && device.starts_with("00:") && inode != 0;
    let name: Vec<&str> = words.collect();
    let is_anonymous = name == ["/dev/zero", "(deleted)"];
    let is_ours = name == [PUPPET_FILE, "(deleted)"];
    (is_one && !is_ours).then_some(Mapping { range, device, inode, is_anonymous })
}

/// What the object of a mapping has in memory; nothing where it is no shared memory but a file of another
/// kind.
fn bytes_of(number: u32, mapping: &Mapping<'_>) -> u64 {
    /// Of those that the kernel counts files in.
    const BLOCK_BYTES: u64 = 512;
    let range: Vec<&str> = mapping.range.split('-').map(|part| part.trim_start_matches('0')).collect();
    let path = format!("/proc/{number}/map_files/{}", range.join("-"));
    if !mapping.is_anonymous && !statfs(&*path).is_ok_and(|system| system.f_type == TMPFS) {
        return 0;
    }
    fs::metadata(path).map_or(0, |object| object.blocks() * BLOCK_BYTES)
}

/// The pager of shared memory, while there is one.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pager: Option<Child>,
    rest: Rest,
}

/// When another pager may come.
#[derive(Clone, Copy, Debug, Default)]
enum Rest {
    /// At any time.
    #[default]
    None,
    /// From then on: the last one has found nothing that it could manage.
    Until(Instant),
    /// Never: one was ended, and what it had far can't be had.
    ForEver,
}

impl Shared {
    /// The pager's number.
    pub(super) fn number(&self) -> Option<u32> {
        self.pager.as_ref().map(Child::id)
    }

    pub(super) fn is_pager(&self, number: u32) -> bool {
        self.number() == Some(number)
    }

    pub(super) fn has_pager(&self) -> bool {
        self.pager.is_some()
    }

    /// Starts it, unless it is there or none may come.
    pub(super) fn begin(&mut self, address: &str) -> io::Result<()> {
        let rests = match self.rest {
            Rest::None => false,
            Rest::Until(until) => Instant::now() < until,
            Rest::ForEver => true,
        };
        if self.pager.is_some() || rests {
            return Ok(());
        }
        let mut command = pager_command(address);
        let pager = command
            .arg("--shared")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        if let Some(input) = &pager.stdin {
            let flags = fcntl_getfl(input)?;
            fcntl_setfl(input, flags | OFlags::NONBLOCK)?;
        }
        self.pager = Some(pager);
        Ok(())
    }

    /// Tells it which processes there are.
    pub(super) fn tell(&mut self, processes: &[u32]) {
        let Some(input) = self.pager.as_mut().and_then(|pager| pager.stdin.as_mut()) else { return };
        let numbers = processes.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        // One that has ended hears nothing more, and for one that stands still nobody waits.
        let _ = input.write_all(format!("={numbers}.\n").as_bytes());
    }

    /// A child has ended, with that status if it has ended by itself; whether it was the pager.
    pub(super) fn ended(&mut self, number: u32, status: Option<i32>) -> bool {
        if self.pager.take_if(|pager| pager.id() == number).is_none() {
            return false;
        }
        self.rest = match status {
            Some(0) => Rest::None,
            Some(_) => Rest::Until(Instant::now() + REST),
            None => Rest::ForEver,
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_told_from_other_mappings() {
        let of = |is_anonymous| Mapping { range: "7f00-7f10", device: "00:01", inode: 1234, is_anonymous };
        let mapping = |rights: &str, device: &str, inode: u32, name: &str| {
            format!("7f00-7f10 {rights} 00000000 {device} {inode}                     {name}")
        };
        assert_eq!(shared(&mapping("rw-s", "00:01", 1234, "/dev/zero (deleted)")), Some(of(true)));
        for name in ["/memfd:a (deleted)", "/SYSV00000000 (deleted)", "/dev/shm/a", "/dev/zero", ""] {
            assert_eq!(shared(&mapping("rw-s", "00:01", 1234, name)), Some(of(false)), "{name}");
        }
        for other in [
            mapping("rw-p", "00:01", 1234, "/dev/zero (deleted)"),
            mapping("rw-s", "fe:00", 1234, "/var/lib/a"),
            mapping("rw-p", "00:00", 0, ""),
            mapping("rw-s", "00:01", 1234, "/memfd:farmem-puppet (deleted)"),
            String::new(),
        ] {
            assert_eq!(shared(&other), None, "{other}");
        }
    }
}
