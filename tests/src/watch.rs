//! Looks after the processes of one run: what they use, whether they are stuck, and their end.
//!
//! Nothing here reads a process's own memory. Files such as `cmdline` and `environ` do, and would wait with
//! the program for a page that never comes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read as _;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A file of `/proc`, whose length nobody knows before: as a rule one call reads it. Empty when it is gone.
fn read(path: &str) -> String {
    let mut text = Vec::new();
    let mut part = [0; 4096];
    let Ok(mut file) = File::open(path) else { return String::new() };
    while let Ok(count @ 1..) = file.read(&mut part) {
        text.extend_from_slice(&part[..count]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The process and all its descendants that can still be found, parents before children.
pub(crate) fn process_tree(root: u32) -> Vec<u32> {
    let mut tree = vec![root];
    let mut next = 0;
    while next < tree.len() {
        for thread in thread_numbers(tree[next]) {
            let children = read(&format!("/proc/{}/task/{thread}/children", tree[next]));
            for child in children.split_ascii_whitespace().filter_map(|child| child.parse().ok()) {
                if !tree.contains(&child) {
                    tree.push(child);
                }
            }
        }
        next += 1;
    }
    tree
}

fn thread_numbers(process: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn command_name(process: u32) -> String {
    read(&format!("/proc/{process}/comm")).trim_end().to_owned()
}

/// The amount in the line of a process's file that starts with `name`, in bytes; `None` once the process is
/// gone.
fn amount_in(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kibibytes * 1024)
}

/// Resident memory of one process, in bytes, as far as it is no file's: what is private, where pages that it
/// shares after a fork count in full, and what it shares by mapping.
fn resident_bytes(process: u32) -> Option<[u64; 2]> {
    let status = read(&format!("/proc/{process}/status"));
    let of = |name| amount_in(&status, name);
    Some([of("RssAnon:")?, of("RssShmem:")?])
}

/// The same, but of pages that it shares only its part. The kernel walks all of the memory for this.
fn anonymous_share_bytes(process: u32) -> Option<u64> {
    amount_in(&read(&format!("/proc/{process}/smaps_rollup")), "Pss_Anon:")
}

/// A process and its descendants, found again only when there may be more of them: that takes ten times as
/// long as to read what they use.
#[derive(Debug, Default)]
struct Tree {
    processes: Vec<u32>,
    /// The number that the kernel gave last, when they were found: each new process and thread has another.
    last_number: Option<String>,
}

impl Tree {
    fn update(&mut self, root: u32) {
        let last_number = read("/proc/loadavg").split_ascii_whitespace().last().map(str::to_owned);
        if last_number.is_none() || self.last_number != last_number {
            self.processes = process_tree(root);
            self.last_number = last_number;
        }
    }

    /// Those but for Farmem's: pagers, and puppets, whose memory is their programs'.
    fn programs(&mut self, root: u32) -> Vec<u32> {
        self.update(root);
        let is_program =
            |process: u32| !command_name(process).starts_with("farmem") && !is_vfork_child(process);
        self.processes.iter().copied().filter(|&process| is_program(process)).collect()
    }
}

/// Whether the process has its parent's memory, which then waits until it has another one: the same figures,
/// and a parent that can't be woken.
fn is_vfork_child(process: u32) -> bool {
    let read = |process: u32, file: &str| read(&format!("/proc/{process}/{file}"));
    let stat = read(process, "stat");
    let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
    parent.is_some_and(|parent| {
        let is_waiting = |thread: u32| {
            let stat = read(parent, &format!("task/{thread}/stat"));
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('D'))
        };
        read(parent, "statm") == read(process, "statm") && thread_numbers(parent).into_iter().any(is_waiting)
    })
}

/// What one run used at most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peak {
    /// Resident anonymous memory of all processes but the supervisor, in bytes; what several share counts
    /// once.
    pub(crate) anonymous_bytes: u64,
    /// Resident memory that a process shares with others by mapping it, in bytes; of the one that has most.
    pub(crate) shared_bytes: u64,
}

/// Takes samples of what one run uses.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    tree: Tree,
    pub(crate) peak: Peak,
}

impl Sampler {
    /// Takes one more sample of everything below `root`, which counts itself unless it is the supervisor.
    pub(crate) fn sample(&mut self, root: u32) {
        let processes = self.tree.programs(root);
        let resident = processes.iter().copied().filter_map(resident_bytes);
        let (mut in_full, mut shared_bytes) = (0, 0);
        resident.for_each(|[private, shared]| {
            in_full += private;
            shared_bytes = shared.max(shared_bytes);
        });
        self.peak.shared_bytes = self.peak.shared_bytes.max(shared_bytes);
        if in_full <= self.peak.anonymous_bytes {
            return;
        }
        let used_bytes = if processes.len() > 1 {
            processes.iter().copied().filter_map(anonymous_share_bytes).sum()
        } else {
            in_full
        };
        // While a process was forked, shares before and after would be added up.
        if self.tree.programs(root) == processes {
            self.peak.anonymous_bytes = self.peak.anonymous_bytes.max(used_bytes);
        }
    }
}

/// Tells what each thread below `root` is doing, for the report of a test that got stuck.
pub(crate) fn describe(root: u32) -> String {
    let mut report = String::new();
    for process in process_tree(root) {
        let status = read(&format!("/proc/{process}/status"));
        let _ = writeln!(report, "process {process} ({})", command_name(process));
        for line in status.lines() {
            let wanted =
                ["State:", "PPid:", "VmRSS:", "RssAnon:", "RssShmem:", "Threads:", "SigPnd:", "ShdPnd:"];
            if wanted.iter().any(|name| line.starts_with(name)) {
                let _ = writeln!(report, "  {line}");
            }
        }
        // Threads in the same place are one line, so that a pool of hundred idle threads hides nothing.
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for thread in thread_numbers(process) {
            let read = |name: &str| read(&format!("/proc/{process}/task/{thread}/{name}"));
            let stack = read("stack");
            let frames: Vec<&str> = stack
                .lines()
                .filter_map(|line| line.split_ascii_whitespace().nth(1))
                .filter_map(|frame| frame.split('+').next())
                .collect();
            let state =
                read("stat").rsplit(')').next().unwrap_or_default().trim().chars().next().unwrap_or('?');
            let call = read("syscall").split_ascii_whitespace().next().unwrap_or("?").to_owned();
            let place = format!("{state}, wchan {}, syscall {call}, {}", read("wchan"), frames.join(" < "));
            places.entry(place).or_default().push(format!("{thread} {}", read("comm").trim_end()));
        }
        for (place, threads) in places {
            let _ = writeln!(report, "  threads [{}]\n    {place}", threads.join(", "));
        }
    }
    report
}

/// Of the process and its descendants those that have not ended.
pub(crate) fn living_tree(root: u32) -> Vec<u32> {
    let mut tree = process_tree(root);
    tree.retain(|process| {
        let stat = read(&format!("/proc/{process}/stat"));
        let state = stat.rsplit(')').next().unwrap_or_default().trim().chars().next();
        !matches!(state, None | Some('Z' | 'X'))
    });
    tree
}

/// Ends the process and all its descendants, and waits a bounded time until they are gone.
///
/// The caller must not have reaped `root` yet, so that the number can't belong to another process.
pub(crate) fn kill_tree(root: u32) {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let alive = living_tree(root);
        for &process in &alive {
            if let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) {
                // It may be gone already.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        if alive.is_empty() || Instant::now() > deadline {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
