//! Looks after the processes of one run: what they use, whether they are stuck, and their end.
//!
//! Nothing here reads a process's own memory. Files such as `cmdline` and `environ` do, and would wait with
//! the program for a page that never comes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The process and all its descendants that can still be found, parents before children.
pub(crate) fn process_tree(root: u32) -> Vec<u32> {
    let mut tree = vec![root];
    let mut next = 0;
    while next < tree.len() {
        for thread in thread_numbers(tree[next]) {
            let children = fs::read_to_string(format!("/proc/{}/task/{thread}/children", tree[next]))
                .unwrap_or_default();
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
    fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// The amount in the line of a process's file that starts with `name`, in bytes; `None` once the process is
/// gone.
fn amount_bytes(process: u32, file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/{file}")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kibibytes * 1024)
}

/// Resident anonymous memory of one process, in bytes; pages that it shares after a fork count in full.
fn anonymous_bytes(process: u32) -> Option<u64> {
    amount_bytes(process, "status", "RssAnon:")
}

/// The same, but of pages that it shares only its part. The kernel walks all of the memory for this.
fn anonymous_share_bytes(process: u32) -> Option<u64> {
    amount_bytes(process, "smaps_rollup", "Pss_Anon:")
}

/// The processes below `root`, and itself, but for Farmem's: pagers, and puppets, whose memory is their
/// programs'.
fn programs(root: u32) -> Vec<u32> {
    let mut processes = process_tree(root);
    processes.retain(|process| !command_name(*process).starts_with("farmem") && !is_vfork_child(*process));
    processes
}

/// Whether the process has its parent's memory, which then waits until it has another one: the same figures,
/// and a parent that can't be woken.
fn is_vfork_child(process: u32) -> bool {
    let read = |process: u32, file: &str| fs::read_to_string(format!("/proc/{process}/{file}"));
    let Ok(stat) = read(process, "stat") else { return false };
    let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
    parent.is_some_and(|parent| {
        let is_waiting = |thread: u32| {
            let stat = read(parent, &format!("task/{thread}/stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('D'))
        };
        thread_numbers(parent).into_iter().any(is_waiting)
            && read(parent, "statm").ok() == read(process, "statm").ok()
    })
}

/// What one run used at most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peak {
    /// Resident anonymous memory of all processes but the supervisor, in bytes; what several share counts
    /// once.
    pub(crate) anonymous_bytes: u64,
}

impl Peak {
    /// Takes one more sample of everything below `root`, which counts itself unless it is the supervisor.
    pub(crate) fn sample(&mut self, root: u32) {
        let processes = programs(root);
        let in_full: u64 = processes.iter().copied().filter_map(anonymous_bytes).sum();
        if in_full <= self.anonymous_bytes {
            return;
        }
        let used_bytes = if processes.len() > 1 {
            processes.iter().copied().filter_map(anonymous_share_bytes).sum()
        } else {
            in_full
        };
        // While a process was forked, shares before and after would be added up.
        if programs(root) == processes {
            self.anonymous_bytes = self.anonymous_bytes.max(used_bytes);
        }
    }
}

/// Tells what each thread below `root` is doing, for the report of a test that got stuck.
pub(crate) fn describe(root: u32) -> String {
    let mut report = String::new();
    for process in process_tree(root) {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
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
            let read = |name: &str| {
                fs::read_to_string(format!("/proc/{process}/task/{thread}/{name}")).unwrap_or_default()
            };
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
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
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
