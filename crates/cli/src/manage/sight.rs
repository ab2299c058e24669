//! What runs on this machine, as far as rules ask for it: control groups of either version of the kernel's
//! interface, processes, containers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use farmem_machine::process::OWN_NAMES;
use farmem_supervisor::group_members;
use procfs::process::{Process, Stat};

use super::containers::{Labels, labels};
use super::policy::{Machine, Match, Target, container};
use super::rules::{Rules, Wanted};

/// Where control groups are.
const ROOT: &str = "/sys/fs/cgroup";
/// There is one hierarchy alone where this file is.
const UNIFIED: &str = "/sys/fs/cgroup/cgroup.controllers";
/// Hierarchies of the kernel's first interface, of which each has all groups that matter.
const HIERARCHIES: [&str; 3] = ["unified", "systemd", "memory"];
/// Groups below each other that are looked at.
const DEEPEST: usize = 32;
/// Files of processes are asked for again at each so many looks: a process may begin another program at any
/// time, but most do soon after they begin.
const REFRESHED: u32 = 16;
const YOUNG: u32 = 5;
/// Attempts to read the labels of a container.
const MOST_READS: u32 = 10;
/// A process is left alone for its first ticks: it may be about to run another program.
const YOUNGEST_TICKS: u64 = 30;
/// Ancestors that are asked for.
const MOST_ANCESTORS: usize = 64;
/// What the kernel adds to the name of a file that was removed.
const DELETED: &str = " (deleted)";

/// A process that was seen.
#[derive(Debug)]
struct Seen {
    /// Looks so far, and at which it was seen last.
    looks: u32,
    last: u32,
    /// Whether it runs what a rule asks for, and which rule.
    rule: Option<usize>,
}

/// What is known from earlier looks.
#[derive(Debug, Default)]
pub(super) struct Sight {
    look: u32,
    processes: HashMap<u32, Seen>,
    containers: HashMap<String, (u32, Option<Labels>)>,
    /// In the kernel's ticks since it began: now, and at the look before.
    now: u64,
    before: u64,
}

impl Sight {
    /// All that the rules ask for.
    pub(super) fn look(&mut self, rules: &Rules) -> Vec<Match> {
        self.look = self.look.wrapping_add(1);
        (self.before, self.now) = (self.now, ticks());
        let mut matches = self.groups(rules);
        matches.extend(self.commands(rules, &matches));
        matches
    }

    /// Other rules: what was seen by the light of the ones before counts no more.
    pub(super) fn forget(&mut self) {
        self.processes.clear();
        self.containers.clear();
    }

    /// Control groups, from the outside inwards: what is in one that fits belongs to that.
    fn groups(&mut self, rules: &Rules) -> Vec<Match> {
        if rules.rules.iter().all(|rule| matches!(rule.wanted, Wanted::Command(_))) {
            return Vec::new();
        }
        let asks_for_labels = rules.rules.iter().any(|rule| matches!(rule.wanted, Wanted::Label(..)));
        let mut found: BTreeMap<String, (usize, Vec<PathBuf>)> = BTreeMap::new();
        let mut containers = HashSet::new();
        for root in roots() {
            let mut open = vec![(root, String::new(), 0)];
            while let Some((folder, path, depth)) = open.pop() {
                let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
                for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
                    let name = entry.file_name();
                    let Some(name) = name.to_str() else { continue };
                    let path = format!("{path}/{name}");
                    let id = container(name).filter(|_| asks_for_labels);
                    if let Some(id) = id {
                        containers.insert(id.to_owned());
                        self.read_labels(id, rules);
                    }
                    let labels = id.and_then(|id| self.containers.get(id)?.1.as_ref());
                    let rule = rules.rules.iter().position(|rule| rule.wanted.is_group(&path, labels));
                    if let Some(rule) = rule {
                        found.entry(path).or_insert((rule, Vec::new())).1.push(entry.path());
                    } else if depth < DEEPEST && rules.rules.iter().any(|rule| rule.wanted.leads_below(&path))
                    {
                        open.push((entry.path(), path, depth + 1));
                    }
                }
            }
        }
        self.containers.retain(|id, _| containers.contains(id));
        found
            .into_iter()
            .map(|(path, (rule, folders))| Match { rule, target: Target::Group { path, folders } })
            .collect()
    }

    fn read_labels(&mut self, id: &str, rules: &Rules) {
        let known = self.containers.entry(id.to_owned()).or_default();
        if known.1.is_none() && known.0 < MOST_READS {
            *known = (known.0 + 1, labels(id, &rules.containers));
        }
    }

    /// Processes, without those in such groups, and without those that come of another one of them.
    fn commands(&mut self, rules: &Rules, groups: &[Match]) -> Vec<Match> {
        if !rules.rules.iter().any(|rule| matches!(rule.wanted, Wanted::Command(_))) {
            return Vec::new();
        }
        let own = fs::read_link("/proc/self/exe").unwrap_or_default();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for number in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            let seen = self.processes.entry(number).or_insert(Seen { looks: 0, last: 0, rule: None });
            (seen.looks, seen.last) = (seen.looks.saturating_add(1), self.look);
            if seen.looks <= YOUNG || (number.wrapping_add(self.look)).is_multiple_of(REFRESHED) {
                seen.rule = running(number, &own)
                    .and_then(|file| rules.rules.iter().position(|rule| rule.wanted.is_command(&file)));
            }
        }
        self.processes.retain(|_, seen| seen.last == self.look);
        let fit: HashMap<u32, usize> =
            self.processes.iter().filter_map(|(&number, seen)| Some((number, seen.rule?))).collect();
        let is_in_group = |number: u32| {
            let paths = paths_of(number);
            groups.iter().any(|found| paths.iter().any(|path| is_within(path, &found.target.key())))
        };
        let mut matches: Vec<Match> = fit
            .iter()
            .filter_map(|(&number, &rule)| {
                let stat = stat(number)?;
                let is_ours =
                    OWN_NAMES.contains(&stat.comm.as_str()) || stat.starttime + YOUNGEST_TICKS > self.now;
                let belongs = is_ours || descends(&stat, &fit) || is_in_group(number);
                (!belongs)
                    .then_some(Match { rule, target: Target::Process { number, began: stat.starttime } })
            })
            .collect();
        matches.sort_by_key(|found| (found.rule, found.target.key()));
        matches
    }
}

impl Machine for Sight {
    fn is_inhabited(&mut self, target: &Target) -> bool {
        match target {
            Target::Group { folders, .. } => inhabited(folders).is_some(),
            Target::Process { .. } => true,
        }
    }

    fn has_survivor(&mut self, target: &Target) -> bool {
        match target {
            Target::Group { folders, .. } => {
                let members = inhabited(folders).map(|(_, members)| members).unwrap_or_default();
                members
                    .into_iter()
                    .any(|member| stat(member).is_some_and(|stat| stat.starttime < self.before))
            }
            Target::Process { .. } => true,
        }
    }

    fn exists(&mut self, key: &str) -> bool {
        match key
            .split_once('@')
            .and_then(|(number, began)| Some((number.parse().ok()?, began.parse::<u64>().ok()?)))
        {
            Some((number, began)) => {
                stat(number).is_some_and(|stat| stat.starttime == began && stat.state != 'Z')
            }
            None => roots().iter().any(|root| root.join(key.trim_start_matches('/')).is_dir()),
        }
    }
}

/// Where control groups are here.
fn roots() -> Vec<PathBuf> {
    if Path::new(UNIFIED).exists() {
        return vec![PathBuf::from(ROOT)];
    }
    HIERARCHIES.iter().map(|name| Path::new(ROOT).join(name)).filter(|root| root.is_dir()).collect()
}

/// The folder of a group in which there are processes, and these.
pub(super) fn inhabited(folders: &[PathBuf]) -> Option<(&PathBuf, Vec<u32>)> {
    folders.iter().map(|folder| (folder, group_members(folder))).find(|(_, members)| !members.is_empty())
}

/// The paths of this process's own control groups.
pub(super) fn own_paths() -> Vec<String> {
    paths_of(std::process::id())
}

/// The paths of a process's control groups, in all hierarchies.
fn paths_of(number: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{number}/cgroup")).unwrap_or_default();
    text.lines().filter_map(|line| Some(line.splitn(3, ':').nth(2)?.to_owned())).collect()
}

/// Whether a group is another one, or below it.
pub(super) fn is_within(path: &str, other: &str) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The file that a process runs, unless it is this program's.
fn running(number: u32, own: &Path) -> Option<String> {
    let file = fs::read_link(format!("/proc/{number}/exe")).ok()?;
    if file == own {
        return None;
    }
    let file = file.into_os_string().into_string().ok()?;
    Some(file.strip_suffix(DELETED).map(str::to_owned).unwrap_or(file))
}

fn stat(number: u32) -> Option<Stat> {
    Process::new(i32::try_from(number).ok()?).ok()?.stat().ok()
}

/// Whether a process comes of one of these.
fn descends(of: &Stat, fit: &HashMap<u32, usize>) -> bool {
    let mut parent = of.ppid;
    for _ in 0..MOST_ANCESTORS {
        let Some(number) = u32::try_from(parent).ok().filter(|&number| number > 1) else { return false };
        if fit.contains_key(&number) {
            return true;
        }
        let Some(stat) = stat(number) else { return false };
        parent = stat.ppid;
    }
    false
}

/// The kernel's ticks since it began.
fn ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let ticks = procfs::ticks_per_second();
    now.tv_sec as u64 * ticks + now.tv_nsec as u64 * ticks / 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manage::rules::parse;

    #[test]
    fn groups_below_count_as_within_and_neighbours_do_not() {
        assert!(is_within("/a/b", "/a") && is_within("/a", "/a"));
        assert!(!is_within("/ab", "/a") && !is_within("/a", "/a/b"));
    }

    #[test]
    fn a_process_is_found_by_what_it_runs_and_this_program_is_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let file = fs::read_link("/proc/self/exe").unwrap();
        let own = file.file_name().unwrap().to_str().unwrap();
        let rule = |name: &str, command: &str| {
            format!("[[rule]]\nname = \"{name}\"\ncommand = \"{command}\"\nlocal = \"64M\"\n")
        };
        let rules = parse(&(rule("sleep", "sleep") + &rule("own", own))).unwrap();
        let (mut sight, began) = (Sight::default(), std::time::Instant::now());
        let is_it =
            |found: &Match| matches!(found.target, Target::Process { number, .. } if number == child.id());
        let found = loop {
            assert!(began.elapsed() < std::time::Duration::from_secs(20));
            let matches = sight.look(&rules);
            assert!(matches.iter().all(|found| found.rule == 0), "{matches:?}");
            if let Some(found) = matches.iter().find(|found| is_it(found)) {
                break found.clone();
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        assert!(sight.is_inhabited(&found.target) && sight.exists(&found.target.key()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!sight.exists(&found.target.key()));
    }
}
