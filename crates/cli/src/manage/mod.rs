//! `farmem host --manage`: programs that nobody started under Farmem are managed as a file of rules says, as
//! they come and go.
//!
//! Each is managed by a supervisor of its own, as by `farmem attach`, which goes on when the host ends. It
//! tells by which host and rule it was begun, so the next host finds it. All of this happens in a thread next
//! to the broker, and takes at most a five-hundredth of a processor.

mod containers;
mod pattern;
mod policy;
mod rules;
mod sight;

use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use farmem::Failure;
use farmem_client::{ManagedBy, Own, all};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use self::policy::{Managed, Match, Past, Step, Target};
use self::rules::{Rules, changes};
use self::sight::{Sight, inhabited, is_within, own_paths};
use crate::log;
use crate::set::limits;

/// By this a supervisor is told on whose behalf it is.
const VARIABLE: &str = "FARMEM_MANAGED_BY";
/// Between two looks, and the longest pause where looking takes long.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// Looking takes at most this part of a processor's time.
const SHARE: u32 = 500;
/// What is read of what an attempt says.
const MOST_SAID: usize = 4096;

/// On whose behalf this process manages something, if a host has begun it.
pub(crate) fn managed_by() -> Option<ManagedBy> {
    serde_json::from_str(&std::env::var(VARIABLE).ok()?).ok()
}

/// The file of rules, and what of it is in force.
pub(crate) struct File {
    path: PathBuf,
    rules: Rules,
    /// What was read last, and what was seen since and may be half written.
    read: Option<Stamp>,
    seen: Option<Stamp>,
}

/// By this a file is known to be another one.
type Stamp = (u64, u64, i64, i64);

fn stamp(path: &Path) -> Option<Stamp> {
    let of = |found: Metadata| (found.ino(), found.len(), found.mtime(), found.mtime_nsec());
    std::fs::metadata(path).ok().map(of)
}

impl File {
    /// Reads it for the first time.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let read = stamp(&path);
        let rules = rules::read(&path).map_err(Failure::Unusable)?;
        Ok(Self { path, rules, read, seen: read })
    }

    /// Whether it has to be read again: it was asked for, or it is another one since the last reading and is
    /// no longer being written.
    fn is_due(&mut self, is_asked: bool) -> bool {
        let now = stamp(&self.path);
        let is_settled = std::mem::replace(&mut self.seen, now) == now;
        is_asked || is_settled && now != self.read
    }

    /// Reads it again. Whether other rules are in force now.
    fn read_again(&mut self) -> bool {
        self.read = stamp(&self.path);
        match rules::read(&self.path) {
            Ok(rules) if rules == self.rules => false,
            Ok(rules) => {
                tell(&format!("{} is in force as it is now, {}", self.path.display(), count(&rules)));
                self.rules = rules;
                true
            }
            Err(sentence) => {
                tell(&format!("{sentence}; the rules from before stay in force"));
                false
            }
        }
    }
}

fn count(rules: &Rules) -> String {
    match rules.rules.len() {
        1 => "1 rule".to_owned(),
        rules => format!("{rules} rules"),
    }
}

fn tell(sentence: &str) {
    log::tell(&format!("farmem host: {sentence}"));
}

/// Begins to manage what the file says, for the broker at that socket. Signals that ask for the file to be
/// read again must be blocked in the calling thread.
pub(crate) fn begin(file: File, socket: &Path) -> anyhow::Result<()> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGHUP);
    let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    tell(&format!("manages what {} says, {}", file.path.display(), count(&file.rules)));
    let mut manager = Manager {
        file,
        socket: socket.to_string_lossy().into_owned(),
        own_paths: own_paths(),
        sight: Sight::default(),
        past: Past::default(),
        known: HashMap::new(),
        attempts: Vec::new(),
        unsuited: HashSet::new(),
    };
    let run = move || {
        loop {
            let pause = manager.turn(heard(&signals));
            wait(&signals, pause);
        }
    };
    std::thread::Builder::new()
        .name("farmem-manage".to_owned())
        .spawn(run)
        .context("cannot begin to manage")?;
    Ok(())
}

fn heard(signals: &SignalFd) -> bool {
    std::iter::from_fn(|| signals.read_signal().ok().flatten()).count() > 0
}

fn wait(signals: &SignalFd, pause: Duration) {
    let timeout = PollTimeout::try_from(pause).unwrap_or(PollTimeout::ZERO);
    // Interrupted, it looks a little earlier.
    let _ = poll(&mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)], timeout);
}

/// An application that some host has begun; `None` for any other one.
type Known = Option<(String, ManagedBy)>;

/// A call of `farmem attach`.
struct Attempt {
    key: String,
    shown: String,
    rule: String,
    name: String,
    /// Whether its application has been seen, and that was said.
    is_there: bool,
    child: Child,
}

impl Attempt {
    fn tell(&self) {
        tell(&format!("rule {}: {} is managed from now on, as {}", self.rule, self.shown, self.name));
    }
}

struct Manager {
    file: File,
    socket: String,
    own_paths: Vec<String>,
    sight: Sight,
    past: Past,
    known: HashMap<Own, Known>,
    attempts: Vec<Attempt>,
    /// Groups that this process is in, of which that was said.
    unsuited: HashSet<String>,
}

impl Manager {
    /// One look, and what comes of it; how long to wait for the next one.
    fn turn(&mut self, is_asked: bool) -> Duration {
        let began = cpu();
        if self.file.is_due(is_asked) && self.file.read_again() {
            self.past.forget_failures();
            self.sight.forget();
            self.unsuited.clear();
        }
        self.reap();
        let mut matches = self.sight.look(&self.file.rules);
        self.leave_out_own(&mut matches);
        let (applications, managed, taken) = self.applications();
        for attempt in &mut self.attempts {
            if !attempt.is_there && managed.iter().any(|of| of.key == attempt.key) {
                attempt.is_there = true;
                attempt.tell();
            }
        }
        let now = Instant::now();
        let steps = self.past.decide(&self.file.rules, &matches, &managed, &taken, &mut self.sight, now);
        for step in steps {
            match step {
                Step::Say(sentence) => tell(&sentence),
                Step::Start { found, name } => self.start(&found, &name),
                Step::Change { application, rule, before } => {
                    self.change(&applications[application], &managed[application], rule, &before);
                }
                Step::Leave { application } => self.leave(&applications[application], &managed[application]),
            }
        }
        (cpu().saturating_sub(began) * SHARE).clamp(SHORTEST, LONGEST)
    }

    /// The groups that this process is in are left alone.
    fn leave_out_own(&mut self, matches: &mut Vec<Match>) {
        matches.retain(|found| {
            let key = found.target.key();
            let is_own = key.starts_with('/') && self.own_paths.iter().any(|path| is_within(path, &key));
            if is_own && self.unsuited.insert(key.clone()) {
                let rule = &self.file.rules.rules[found.rule].name;
                tell(&format!("rule {rule}: {key} is left alone, because this host itself is in it"));
            }
            !is_own
        });
    }

    /// The applications that this host's rules have begun, and the names of all that hosts have begun.
    fn applications(&mut self) -> (Vec<Own>, Vec<Managed>, HashSet<String>) {
        let all = all();
        self.known.retain(|own, _| all.contains(own));
        for own in all {
            if self.known.contains_key(&own) {
                continue;
            }
            if !own.is_trusted() {
                self.known.insert(own, None);
            } else if let Some(report) = own.reports().pop() {
                let known = report.managed_by.map(|by| (report.name, by));
                self.known.insert(own, known);
            }
        }
        let mut applications = Vec::new();
        let mut managed = Vec::new();
        let mut taken = HashSet::new();
        for (own, known) in &self.known {
            let Some((name, by)) = known else { continue };
            taken.insert(name.clone());
            if by.host == self.socket {
                applications.push(own.clone());
                let (key, terms) = (by.subject.clone(), by.terms.clone());
                managed.push(Managed { name: name.clone(), rule: by.rule.clone(), key, terms });
            }
        }
        (applications, managed, taken)
    }

    fn start(&mut self, found: &Match, name: &str) {
        let rule = &self.file.rules.rules[found.rule];
        let (key, shown) = (found.target.key(), found.target.shown());
        let subject = match &found.target {
            Target::Process { number, .. } => vec![number.to_string()],
            Target::Group { folders, .. } => match inhabited(folders) {
                Some((folder, _)) => vec!["--cgroup".to_owned(), folder.to_string_lossy().into_owned()],
                None => return self.past.succeeded(&key, Instant::now()),
            },
        };
        let by = ManagedBy {
            host: self.socket.clone(),
            rule: rule.name.clone(),
            subject: key.clone(),
            terms: rule.terms.clone(),
        };
        // Another version may have been installed meanwhile, so no path of this program's file is good.
        let begun = Command::new("/proc/self/exe")
            .arg0("farmem")
            .arg("attach")
            .args(["--host", &self.socket, "--name", name])
            .args(&rule.terms)
            .args(subject)
            // Texts and names: always JSON.
            .env(VARIABLE, serde_json::to_string(&by).unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        let rule = rule.name.clone();
        match begun {
            Ok(child) => {
                let name = name.to_owned();
                self.attempts.push(Attempt { key, shown, rule, name, is_there: false, child });
            }
            Err(error) => self.fail(&key, &format!("rule {rule}: {shown} can't be managed: {error}")),
        }
    }

    fn fail(&mut self, key: &str, sentence: &str) {
        if self.past.failed(key, Instant::now()) {
            tell(sentence);
        }
    }

    /// Attempts that have ended.
    fn reap(&mut self) {
        let mut ended = Vec::new();
        self.attempts.retain_mut(|attempt| match attempt.child.try_wait() {
            Ok(None) => true,
            outcome => {
                let has_succeeded = outcome.is_ok_and(|status| status.is_some_and(|status| status.success()));
                if has_succeeded && !attempt.is_there {
                    attempt.tell();
                }
                let said = attempt.child.stderr.as_mut().map(said).unwrap_or_default();
                let is_good = has_succeeded || attempt.is_there;
                ended.push((attempt.key.clone(), attempt.shown.clone(), attempt.rule.clone(), is_good, said));
                false
            }
        });
        for (key, shown, rule, is_good, said) in ended {
            if is_good {
                self.past.succeeded(&key, Instant::now());
            } else {
                self.fail(&key, &format!("rule {rule}: {shown} is left alone for now: {said}"));
            }
        }
    }

    /// Gives an application what its rule gives now, as far as that can be changed.
    fn change(&mut self, own: &Own, of: &Managed, rule: usize, before: &[String]) {
        let now = &self.file.rules.rules[rule];
        let (settings, is_all) = changes(before, &now.terms);
        if !is_all {
            tell(&format!(
                "rule {}: not all that has changed can be changed while a program runs; {} gets the rest when it is managed the next time, as after `farmem detach {}` and its restart",
                now.name, of.name, of.name
            ));
        }
        if settings.is_empty() {
            return;
        }
        let outcome = limits(&settings).map_err(|failure| failure.to_string());
        let outcome = outcome.and_then(|limits| own.set(limits).map_err(|error| error.to_string()));
        match outcome {
            Ok(_) => tell(&format!("rule {}: {} has the budget that the rule gives now", now.name, of.name)),
            Err(reason) => {
                let sentence = format!("rule {}: {} keeps its limits: {reason}", now.name, of.name);
                self.past.unchanged(&of.key);
                self.fail(&of.key, &sentence);
            }
        }
    }

    fn leave(&mut self, own: &Own, of: &Managed) {
        match own.withdraw() {
            Ok(_) => {
                tell(&format!("rule {}: {} is no longer managed, as the rules say now", of.rule, of.name))
            }
            Err(error) => {
                let sentence = format!("rule {}: {} can't be left yet: {error}", of.rule, of.name);
                self.fail(&of.key, &sentence);
            }
        }
    }
}

/// What an attempt has said, in one line. Its supervisor may have the pipe open still: nobody waits for that.
fn said(pipe: &mut ChildStderr) -> String {
    let mut text = vec![0; MOST_SAID];
    let mut length = 0;
    if let Ok(flags) = fcntl_getfl(&*pipe) {
        let _ = fcntl_setfl(&*pipe, flags | OFlags::NONBLOCK);
        while length < text.len() {
            match pipe.read(&mut text[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    }
    let text = String::from_utf8_lossy(&text[..length])
        .replace(|letter: char| letter.is_control() && letter != '\n', "?");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.strip_prefix("farmem: ").unwrap_or(&text).to_owned();
    if text.is_empty() { "it ended without a word".to_owned() } else { text }
}

/// Processor time of this thread so far.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "[[rule]]\nname = \"a\"\nunit = \"a\"\nlocal = \"64M\"\n";

    #[test]
    fn a_file_that_changes_counts_once_it_is_no_longer_written_and_a_bad_one_never() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.toml");
        std::fs::write(&path, FIRST).unwrap();
        let mut file = File::open(&path).unwrap();
        assert!(!file.is_due(false));
        assert!(file.is_due(true) && !file.read_again());

        std::fs::write(&path, FIRST.to_owned() + FIRST.replace("\"a\"", "\"b\"").as_str()).unwrap();
        assert!(!file.is_due(false));
        assert!(file.is_due(false) && file.read_again());
        assert_eq!(file.rules.rules.len(), 2);

        std::fs::write(&path, "bad").unwrap();
        assert!(!file.is_due(false));
        assert!(file.is_due(false) && !file.read_again());
        assert!(!file.is_due(false), "it is said once");
        assert_eq!(file.rules.rules.len(), 2);
    }
}
