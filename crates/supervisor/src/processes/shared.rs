//! Memory that processes of the application share: how much there is, which of them map it, and the pager that manages it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use farmem_page::{ByteCount, PageCount};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::processes::attacher::pager_command;
use crate::processes::proc;

/// How long no further pager comes when one has found nothing that it could manage.
const REST: Duration = Duration::from_secs(10);

/// What is found of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Found {
    /// Pages that are there, each counted once however many processes map it.
    pub(super) resident: PageCount,
    /// The processes that map any.
    pub(super) processes: Vec<u32>,
}

/// Looks at the mappings of the processes; of those alone that have touched shared memory, unless `all` are asked for.
pub(super) fn find(numbers: &[u32], all: bool) -> Found {
    let mut seen: HashMap<u64, u64> = HashMap::new();
    let mut processes = Vec::new();
    for &number in numbers.iter().filter(|&&number| all || has_any(number)) {
        let maps = proc::text(format!("/proc/{number}/maps")).unwrap_or_default();
        let mut own: HashSet<u64> = HashSet::new();
        for (range, inode) in maps.lines().filter_map(anonymous_shared) {
            own.insert(inode);
            seen.entry(inode).or_insert_with(|| bytes_of(number, range));
        }
        if !own.is_empty() {
            processes.push(number);
        }
    }
    Found { resident: ByteCount::new(seen.values().sum()).pages(), processes }
}

/// Whether a process has touched shared memory.
fn has_any(number: u32) -> bool {
    let status = proc::text(format!("/proc/{number}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("RssShmem:"))
        .and_then(|rest| rest.split_whitespace().next())
        .is_some_and(|kib| kib != "0")
}

/// Range and file number of a mapping of anonymous shared memory.
fn anonymous_shared(line: &str) -> Option<(&str, u64)> {
    let mut words = line.split_whitespace();
    let (range, rights) = (words.next()?, words.next()?);
    let inode = words.nth(2)?.parse().ok()?;
    let is_one = rights.ends_with('s') && words.collect::<Vec<_>>() == ["/dev/zero", "(deleted)"];
    is_one.then_some((range, inode))
}

fn bytes_of(number: u32, range: &str) -> u64 {
    /// Of those that the kernel counts files in.
    const BLOCK_BYTES: u64 = 512;
    let range: Vec<&str> = range.split('-').map(|part| part.trim_start_matches('0')).collect();
    fs::metadata(format!("/proc/{number}/map_files/{}", range.join("-")))
        .map_or(0, |object| object.blocks() * BLOCK_BYTES)
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
    pub(super) fn is_pager(&self, number: u32) -> bool {
        self.pager.as_ref().is_some_and(|pager| pager.id() == number)
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
    fn anonymous_shared_memory_is_told_from_other_mappings() {
        let one = "7f00-7f10 rw-s 00000000 00:01 1234                     /dev/zero (deleted)";
        assert_eq!(anonymous_shared(one), Some(("7f00-7f10", 1234)));
        for other in [
            "7f00-7f10 rw-p 00000000 00:01 1234                     /dev/zero (deleted)",
            "7f00-7f10 rw-s 00000000 00:01 1234                     /memfd:a (deleted)",
            "7f00-7f10 rw-s 00000000 00:01 1234                     /dev/zero",
            "7f00-7f10 rw-p 00000000 00:00 0",
            "",
        ] {
            assert_eq!(anonymous_shared(other), None, "{other}");
        }
    }
}
