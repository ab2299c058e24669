//! What is to be done: which matches of rules get a supervisor, and which applications are left or get other
//! limits. Nothing here asks the machine.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::rules::{Rule, Rules, fixed};

/// After a first failure this passes until the next attempt, and twice as much after each further one, up to
/// the second.
const FIRST_REST: Duration = Duration::from_secs(5);
const LONGEST_REST: Duration = Duration::from_secs(60);
/// What has just begun is in nobody's list yet.
const PROBATION: Duration = Duration::from_secs(2);
/// Attempts at a time: each is a process.
pub(super) const MOST_STARTING: usize = 8;
/// Longest name of an application.
const LONGEST_NAME: usize = 64;
/// Letters of a container's ID that stand for it.
const SHORT: usize = 12;

/// What a rule has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// A control group: its path below a hierarchy, and its folders there.
    Group { path: String, folders: Vec<PathBuf> },
    /// A process, and when it began.
    Process { number: u32, began: u64 },
}

impl Target {
    /// Whatever becomes of it, it is known by this.
    pub(super) fn key(&self) -> String {
        match self {
            Self::Group { path, .. } => path.clone(),
            Self::Process { number, began } => format!("{number}@{began}"),
        }
    }

    /// For people.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Group { path, .. } => path.replace(char::is_control, "?"),
            Self::Process { number, .. } => format!("process {number}"),
        }
    }
}

/// A rule, by its place, and what it has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Match {
    pub(super) rule: usize,
    pub(super) target: Target,
}

/// An application that a rule has begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Managed {
    pub(super) name: String,
    pub(super) rule: String,
    pub(super) key: String,
    /// What it was given when it began.
    pub(super) terms: Vec<String>,
}

/// What the machine is asked, and only where the answer counts.
pub(super) trait Machine {
    /// Whether programs are there that can be managed.
    fn is_inhabited(&mut self, target: &Target) -> bool;
    /// Whether one of them was there at the look before.
    fn has_survivor(&mut self, target: &Target) -> bool;
    /// Whether that control group or process is still there.
    fn exists(&mut self, key: &str) -> bool;
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A supervisor for this match, and its application's name.
    Start { found: Match, name: String },
    /// The application, by its place, gets what the rule gives now instead of what it was given before.
    Change { application: usize, rule: usize, before: Vec<String> },
    /// The application, by its place, is left.
    Leave { application: usize },
    /// For people.
    Say(String),
}

/// An attempt that has failed, and the next one.
#[derive(Debug)]
struct Rest {
    attempts: u32,
    until: Instant,
}

/// What is known from earlier looks, by the keys of targets.
#[derive(Default, Debug)]
pub(super) struct Past {
    starting: HashSet<String>,
    /// What this host has begun, until it is seen. What was there before has been begun by a host that may
    /// have changed it since.
    begun: HashSet<String>,
    rests: HashMap<String, Rest>,
    /// Applications at the look before.
    managed: HashSet<String>,
    /// What was asked to leave.
    leaving: HashSet<String>,
    /// What somebody else has let go of: nobody takes that again.
    let_go: HashSet<String>,
    /// What applications have been given.
    given: HashMap<String, Vec<String>>,
}

impl Past {
    /// What is to be done after a look.
    pub(super) fn decide(
        &mut self,
        rules: &Rules,
        matches: &[Match],
        managed: &[Managed],
        taken: &HashSet<String>,
        machine: &mut impl Machine,
        now: Instant,
    ) -> Vec<Step> {
        let mut steps = Vec::new();
        let found: HashMap<String, &Match> =
            matches.iter().map(|found| (found.target.key(), found)).collect();
        for (application, of) in managed.iter().enumerate() {
            self.starting.remove(&of.key);
            self.mind(rules, &found, application, of, machine, now)
                .into_iter()
                .for_each(|step| steps.push(step));
        }
        let now_managed: HashSet<String> = managed.iter().map(|of| of.key.clone()).collect();
        let mut taken = taken.clone();
        for one in matches {
            let key = one.target.key();
            if now_managed.contains(&key) {
                continue;
            }
            let was_managed = self.managed.contains(&key);
            let is_asked_to_leave = self.leaving.remove(&key);
            self.given.remove(&key);
            if self.starting.contains(&key) {
                continue;
            }
            if !machine.is_inhabited(&one.target) {
                self.let_go.remove(&key);
                self.rests.remove(&key);
                continue;
            }
            if was_managed && !is_asked_to_leave && machine.has_survivor(&one.target) {
                let rule = &rules.rules[one.rule];
                steps.push(Step::Say(format!(
                    "rule {}: {} is no longer managed: it was detached, or its supervisor has ended; it is left alone until its processes have ended",
                    rule.name,
                    one.target.shown()
                )));
                self.let_go.insert(key.clone());
            }
            let rests = self.rests.get(&key).is_some_and(|rest| rest.until > now);
            if self.let_go.contains(&key) || rests || self.starting.len() >= MOST_STARTING {
                continue;
            }
            let name = name(&rules.rules[one.rule], &one.target, &taken);
            taken.insert(name.clone());
            self.starting.insert(key.clone());
            self.begun.insert(key);
            steps.push(Step::Start { found: one.clone(), name });
        }
        self.managed = now_managed;
        let is_found = |key: &String| found.contains_key(key);
        self.rests.retain(|key, _| is_found(key) || self.managed.contains(key));
        self.let_go.retain(is_found);
        self.begun.retain(is_found);
        self.leaving.retain(|key| self.managed.contains(key));
        self.given.retain(|key, _| self.managed.contains(key));
        steps
    }

    /// What is to be done about an application that runs.
    fn mind(
        &mut self,
        rules: &Rules,
        found: &HashMap<String, &Match>,
        application: usize,
        of: &Managed,
        machine: &mut impl Machine,
        now: Instant,
    ) -> Option<Step> {
        if self.rests.get(&of.key).is_some_and(|rest| rest.until > now) || self.leaving.contains(&of.key) {
            return None;
        }
        let rule = rules.rules.iter().position(|rule| rule.name == of.rule);
        let wanted = found.get(&of.key).map(|found| found.rule);
        let is_left = match (rule, wanted) {
            (None, _) => true,
            (Some(rule), Some(wanted)) => rule != wanted,
            // What has ended, its supervisor leaves by itself.
            (Some(_), None) => machine.exists(&of.key),
        };
        if is_left {
            self.leaving.insert(of.key.clone());
            return Some(Step::Leave { application });
        }
        let rule = rule?;
        let now_given = &rules.rules[rule].terms;
        let before = match self.given.get(&of.key) {
            Some(given) => given.clone(),
            None if self.begun.remove(&of.key) => of.terms.clone(),
            None => fixed(&of.terms),
        };
        self.given.insert(of.key.clone(), now_given.clone());
        (before != *now_given).then_some(Step::Change { application, rule, before })
    }

    /// An attempt has gone well. If there is no application nevertheless, there is no next attempt at once.
    pub(super) fn succeeded(&mut self, key: &str, now: Instant) {
        self.starting.remove(key);
        self.rests.insert(key.to_owned(), Rest { attempts: 0, until: now + PROBATION });
    }

    /// An attempt has failed: to manage, to change or to leave. Whether that is to be said, as it is the
    /// first one.
    pub(super) fn failed(&mut self, key: &str, now: Instant) -> bool {
        self.starting.remove(key);
        self.leaving.remove(key);
        let rest = self.rests.entry(key.to_owned()).or_insert(Rest { attempts: 0, until: now });
        let pause = FIRST_REST.saturating_mul(1 << rest.attempts.min(8)).min(LONGEST_REST);
        (rest.attempts, rest.until) = (rest.attempts.saturating_add(1), now + pause);
        rest.attempts == 1
    }

    /// What was to be given could not be.
    pub(super) fn unchanged(&mut self, key: &str) {
        self.given.remove(key);
    }

    /// Another file of rules is in force: what stood in the way may do so no longer.
    pub(super) fn forget_failures(&mut self) {
        self.rests.clear();
    }
}

/// What the application of that rule is called.
fn name(rule: &Rule, target: &Target, taken: &HashSet<String>) -> String {
    let whole = match target {
        _ if rule.wanted.is_one() => rule.name.clone(),
        Target::Group { path, .. } => format!("{}.{}", rule.name, leaf(path)),
        Target::Process { number, .. } => format!("{}.{number}", rule.name),
    };
    let cut = |length: usize| whole.get(..length.min(whole.len())).unwrap_or(&rule.name).to_owned();
    let numbered = (2..).map(|number: u32| format!("{}-{number}", cut(LONGEST_NAME - 11)));
    std::iter::once(cut(LONGEST_NAME)).chain(numbered).find(|name| !taken.contains(name)).unwrap_or(whole)
}

/// The name of a control group, without what engines and systemd put around it.
fn leaf(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    if let Some(id) = container(name) {
        return id[..SHORT].to_owned();
    }
    let short =
        [".service", ".scope", ".slice"].iter().find_map(|kind| name.strip_suffix(kind)).unwrap_or(name);
    short
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '_' })
        .collect()
}

/// The ID of the container whose control group is called so: 64 letters, around which engines put words of
/// their own.
pub(super) fn container(name: &str) -> Option<&str> {
    const LENGTH: usize = 64;
    let is_digit = |letter: char| matches!(letter, '0'..='9' | 'a'..='f');
    name.split(|letter| !is_digit(letter)).find(|word| word.len() == LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manage::rules::parse;

    /// A machine on which all is there but for what is named.
    #[derive(Default)]
    struct Made {
        empty: HashSet<String>,
        is_fresh: bool,
        gone: HashSet<String>,
    }

    impl Machine for Made {
        fn is_inhabited(&mut self, target: &Target) -> bool {
            !self.empty.contains(&target.key())
        }

        fn has_survivor(&mut self, _: &Target) -> bool {
            !self.is_fresh
        }

        fn exists(&mut self, key: &str) -> bool {
            !self.gone.contains(key)
        }
    }

    fn rules(local: &str) -> Rules {
        let rule =
            |name, path| format!("[[rule]]\nname = \"{name}\"\ncgroup = \"{path}\"\nlocal = \"{local}\"\n");
        parse(&(rule("web", "/web*") + &rule("db", "/db"))).unwrap()
    }

    fn group(rule: usize, path: &str) -> Match {
        Match { rule, target: Target::Group { path: path.to_owned(), folders: Vec::new() } }
    }

    fn managed(rule: &str, key: &str, rules: &Rules) -> Managed {
        let terms = rules.rules[0].terms.clone();
        Managed { name: key[1..].to_owned(), rule: rule.to_owned(), key: key.to_owned(), terms }
    }

    fn decide(
        past: &mut Past,
        rules: &Rules,
        matches: &[Match],
        of: &[Managed],
        machine: &mut Made,
        now: Instant,
    ) -> Vec<Step> {
        past.decide(rules, matches, of, &HashSet::new(), machine, now)
    }

    #[test]
    fn a_match_is_begun_once_and_changed_or_left_as_its_rule_says() {
        let (mut past, rules_at_first, now) = (Past::default(), rules("64M"), Instant::now());
        let (matches, mut machine) = ([group(0, "/web-1")], Made::default());
        let mut step = |rules: &Rules, matches: &[Match], of: &[Managed]| {
            decide(&mut past, rules, matches, of, &mut machine, now)
        };
        let name = "web.web-1".to_owned();
        assert_eq!(step(&rules_at_first, &matches, &[]), [Step::Start { found: matches[0].clone(), name }]);
        assert_eq!(step(&rules_at_first, &matches, &[]), []);
        let application = [managed("web", "/web-1", &rules_at_first)];
        assert_eq!(step(&rules_at_first, &matches, &application), []);

        let other = rules("32M");
        let before = application[0].terms.clone();
        let change = Step::Change { application: 0, rule: 0, before };
        assert_eq!(step(&other, &matches, &application), [change]);
        assert_eq!(step(&other, &matches, &application), []);
        let before = other.rules[0].terms.clone();
        let change = Step::Change { application: 0, rule: 0, before };
        assert_eq!(step(&rules_at_first, &matches, &application), [change]);

        assert_eq!(step(&Rules::default(), &[], &application), [Step::Leave { application: 0 }]);
        assert_eq!(step(&Rules::default(), &[], &application), []);
    }

    #[test]
    fn what_an_earlier_host_has_begun_gets_the_limits_that_the_rules_give_now() {
        let (mut past, rules, now, mut machine) =
            (Past::default(), rules("64M"), Instant::now(), Made::default());
        let (matches, application) = ([group(0, "/web-1")], [managed("web", "/web-1", &rules)]);
        let steps = decide(&mut past, &rules, &matches, &application, &mut machine, now);
        assert_eq!(steps, [Step::Change { application: 0, rule: 0, before: Vec::new() }]);
        assert_eq!(decide(&mut past, &rules, &matches, &application, &mut machine, now), []);
    }

    #[test]
    fn what_was_left_by_another_rule_is_begun_by_the_first_one_that_fits() {
        let (mut past, rules, now, mut machine) =
            (Past::default(), rules("64M"), Instant::now(), Made::default());
        let application = [managed("db", "/web-1", &rules)];
        let matches = [group(0, "/web-1")];
        let steps = decide(&mut past, &rules, &matches, &application, &mut machine, now);
        assert_eq!(steps, [Step::Leave { application: 0 }]);
        let steps = decide(&mut past, &rules, &matches, &[], &mut machine, now);
        assert!(matches!(&steps[..], [Step::Start { name, .. }] if name == "web.web-1"), "{steps:?}");
    }

    #[test]
    fn what_somebody_detaches_is_left_alone_until_its_processes_have_ended() {
        let (mut past, rules, now, mut machine) =
            (Past::default(), rules("64M"), Instant::now(), Made::default());
        let (matches, application) = ([group(0, "/web-1")], [managed("web", "/web-1", &rules)]);
        decide(&mut past, &rules, &matches, &application, &mut machine, now);
        let steps = decide(&mut past, &rules, &matches, &[], &mut machine, now);
        assert!(matches!(&steps[..], [Step::Say(said)] if said.contains("left alone")), "{steps:?}");
        assert_eq!(decide(&mut past, &rules, &matches, &[], &mut machine, now), []);
        machine.empty.insert("/web-1".to_owned());
        assert_eq!(decide(&mut past, &rules, &matches, &[], &mut machine, now), []);
        machine.empty.clear();
        assert_eq!(decide(&mut past, &rules, &matches, &[], &mut machine, now).len(), 1);
    }

    #[test]
    fn a_group_that_comes_again_with_other_processes_is_begun_again() {
        let (mut past, rules, now) = (Past::default(), rules("64M"), Instant::now());
        let mut machine = Made { is_fresh: true, ..Made::default() };
        let (matches, application) = ([group(0, "/web-1")], [managed("web", "/web-1", &rules)]);
        decide(&mut past, &rules, &matches, &application, &mut machine, now);
        let steps = decide(&mut past, &rules, &matches, &[], &mut machine, now);
        assert!(matches!(&steps[..], [Step::Start { .. }]), "{steps:?}");
    }

    #[test]
    fn an_application_whose_group_has_gone_ends_by_itself() {
        let (mut past, rules, now, mut machine) =
            (Past::default(), rules("64M"), Instant::now(), Made::default());
        let application = [managed("web", "/web-1", &rules)];
        decide(&mut past, &rules, &[group(0, "/web-1")], &application, &mut machine, now);
        machine.gone.insert("/web-1".to_owned());
        assert_eq!(decide(&mut past, &rules, &[], &application, &mut machine, now), []);
        machine.gone.clear();
        let steps = decide(&mut past, &rules, &[], &application, &mut machine, now);
        assert_eq!(steps, [Step::Leave { application: 0 }]);
    }

    #[test]
    fn a_failure_is_said_once_and_tried_again_ever_less_often() {
        let (mut past, rules, began, mut machine) =
            (Past::default(), rules("64M"), Instant::now(), Made::default());
        let matches = [group(0, "/web-1")];
        let (mut said, mut attempts) = (0, 0);
        for second in 0..300 {
            let now = began + Duration::from_secs(second);
            if decide(&mut past, &rules, &matches, &[], &mut machine, now).is_empty() {
                continue;
            }
            attempts += 1;
            said += u32::from(past.failed("/web-1", now));
        }
        assert_eq!((said, attempts), (1, 8));
    }

    #[test]
    fn so_many_are_begun_at_a_time() {
        let (mut past, rules, now, mut machine) =
            (Past::default(), rules("64M"), Instant::now(), Made::default());
        let matches: Vec<Match> = (0..20).map(|number| group(0, &format!("/web-{number}"))).collect();
        assert_eq!(decide(&mut past, &rules, &matches, &[], &mut machine, now).len(), MOST_STARTING);
        past.succeeded("/web-0", now);
        let now = now + PROBATION;
        assert_eq!(decide(&mut past, &rules, &matches, &[], &mut machine, now).len(), 1);
    }

    #[test]
    fn applications_are_called_by_rule_and_group_and_never_alike() {
        let rules = rules("64M");
        let id = "3f4e5d6c7b8a9f0e".repeat(4);
        let of = |rule: usize, path: &str, taken: &[&str]| {
            name(
                &rules.rules[rule],
                &group(rule, path).target,
                &taken.iter().map(|&name| name.to_owned()).collect(),
            )
        };
        assert_eq!(of(1, "/db", &[]), "db");
        assert_eq!(of(1, "/db", &["db"]), "db-2");
        assert_eq!(of(0, "/a/web@1.service", &[]), "web.web_1");
        assert_eq!(of(0, &format!("/docker-{id}.scope"), &[]), "web.3f4e5d6c7b8a");
        assert!(of(0, &format!("/{}", "x".repeat(200)), &[]).len() <= LONGEST_NAME);
        let process = Target::Process { number: 12, began: 7 };
        assert_eq!(name(&rules.rules[0], &process, &HashSet::new()), "web.12");
        assert_eq!(container(&format!("crio-{id}")), Some(id.as_str()));
        assert_eq!(container("docker.service"), None);
    }
}
