//! The file of rules: which programs a host manages, and what it gives them. What is wrong in it is told in a
//! sentence with the line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Parser;
use farmem_machine::Memory;
use serde::Deserialize;
use toml::{Spanned, Value};

use super::pattern::{fits, is_exact, leads_to};
use crate::amount::{Setting, parse_name, parse_setting};
use crate::arguments::{Arguments, Command};

/// Longest file that is read.
pub(super) const MOST_BYTES: u64 = 1 << 20;
/// Most rules.
const MOST_RULES: usize = 1000;
/// A rule's name leaves room for that of what it has found.
const LONGEST_NAME: usize = 31;
/// Longest pattern.
const LONGEST_PATTERN: usize = 1024;
/// What a rule may give: options of `farmem attach`, as they are called there.
const TERMS: [&str; 17] = [
    "local",
    "stall",
    "pool",
    "disk",
    "partition",
    "cache",
    "weight",
    "no-borrow",
    "node",
    "cluster",
    "key",
    "plain",
    "redundancy",
    "transport",
    "bandwidth-in",
    "bandwidth-out",
    "prefetch",
];
/// What a rule may look for.
const WANTED: [&str; 4] = ["cgroup", "unit", "command", "container-label"];
/// What names of units end with, where it is left out.
const KINDS: [&str; 3] = ["", ".service", ".scope"];

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    containers: Vec<PathBuf>,
    rule: Vec<BTreeMap<Spanned<String>, Spanned<Value>>>,
}

/// What a file says.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Rules {
    /// The first that fits counts.
    pub(super) rules: Vec<Rule>,
    /// Further folders where an engine keeps what it knows of its containers.
    pub(super) containers: Vec<PathBuf>,
}

/// Which programs, and what they may have.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) wanted: Wanted,
    /// Options of `farmem attach`.
    pub(super) terms: Vec<String>,
}

/// What a rule looks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// Control groups, by their path.
    Group(String),
    /// Control groups of units, by the unit's name.
    Unit(String),
    /// Processes, by the file that they run: its path where there is a slash in it, else its name.
    Command(String),
    /// Control groups of containers, by a label and what it says.
    Label(String, Option<String>),
}

impl Wanted {
    /// Whether it is a control group of that path, in a container of those labels.
    pub(super) fn is_group(&self, path: &str, labels: Option<&BTreeMap<String, String>>) -> bool {
        let name = path.rsplit('/').next().unwrap_or_default();
        match self {
            Self::Group(pattern) => fits(pattern, path),
            Self::Unit(pattern) => KINDS.iter().any(|kind| fits(&format!("{pattern}{kind}"), name)),
            Self::Label(key, value) => labels
                .and_then(|labels| labels.get(key))
                .is_some_and(|found| value.as_ref().is_none_or(|value| fits(value, found))),
            Self::Command(_) => false,
        }
    }

    /// Whether control groups below that one have to be looked at.
    pub(super) fn leads_below(&self, path: &str) -> bool {
        match self {
            Self::Group(pattern) => leads_to(pattern, path),
            Self::Unit(_) | Self::Label(..) => true,
            Self::Command(_) => false,
        }
    }

    /// Whether it is a process that runs that file.
    pub(super) fn is_command(&self, file: &str) -> bool {
        match self {
            Self::Command(pattern) if pattern.contains('/') => fits(pattern, file),
            Self::Command(pattern) => fits(pattern, file.rsplit('/').next().unwrap_or_default()),
            _ => false,
        }
    }

    /// Whether there can be one alone.
    pub(super) fn is_one(&self) -> bool {
        matches!(self, Self::Group(pattern) | Self::Unit(pattern) if is_exact(pattern))
    }
}

/// The limits among an application's terms that can be changed while it runs, and whether all others are the
/// same.
pub(super) fn changes(before: &[String], now: &[String]) -> (Vec<Setting>, bool) {
    let setting = |term: &&String| {
        let word = term.strip_prefix("--").unwrap_or(term);
        parse_setting(word).ok()
    };
    let new: Vec<&String> = now.iter().filter(|term| !before.contains(term)).collect();
    let settings: Vec<Setting> = new.iter().filter_map(setting).collect();
    let key = |term: &str| term.split('=').next().unwrap_or_default().to_owned();
    let is_replaced = |term: &String| {
        let with = |other: &&&String| key(other) == key(term) && setting(other).is_some();
        // A budget that follows the program can't be made a fixed one by its words alone, but a new fixed one
        // ends that.
        new.iter().any(|other| with(&other))
    };
    let is_all =
        settings.len() == new.len() && before.iter().filter(|term| !now.contains(term)).all(is_replaced);
    (settings, is_all)
}

/// Those that can't be changed while a program runs.
pub(super) fn fixed(terms: &[String]) -> Vec<String> {
    let is_fixed = |term: &&String| parse_setting(term.strip_prefix("--").unwrap_or(term)).is_err();
    terms.iter().filter(is_fixed).cloned().collect()
}

/// Reads the file.
///
/// # Errors
/// A sentence that says where it is wrong, and what to do.
pub(crate) fn read(path: &Path) -> Result<Rules, String> {
    let shown = path.display();
    let found = std::fs::metadata(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    if !found.is_file() || found.len() > MOST_BYTES {
        return Err(format!("{shown} is not a file of rules; name a file of up to {} KiB", MOST_BYTES >> 10));
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    parse(&text).map_err(|Wrong { line, sentence }| format!("{shown}, line {line}: {sentence}"))
}

/// What is wrong, and where.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Wrong {
    pub(super) line: usize,
    pub(super) sentence: String,
}

/// Reads a file's text.
pub(super) fn parse(text: &str) -> Result<Rules, Wrong> {
    let at = |place: usize| {
        text.as_bytes()[..place.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
    };
    let wrong = |place: usize, sentence: String| Wrong { line: at(place), sentence };
    let written: Written = toml::from_str(text).map_err(|error| {
        let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        let message = match message.as_str() {
            "missing field `rule`" => "there is no rule; begin one with a line [[rule]]".to_owned(),
            _ => format!("{message}; a rule is a line [[rule]] and lines such as name = \"web\" below it"),
        };
        wrong(error.span().map_or(0, |span| span.start), message)
    })?;
    if written.rule.len() > MOST_RULES {
        return Err(wrong(
            0,
            format!("there are more than {MOST_RULES} rules; join some of them by patterns"),
        ));
    }
    let mut rules: Vec<Rule> = Vec::new();
    for fields in &written.rule {
        let begins = fields.keys().map(|key| key.span().start).min().unwrap_or(0);
        let (rule, place) =
            rule(fields).map_err(|(place, sentence)| wrong(place.unwrap_or(begins), sentence))?;
        if rules.iter().any(|other| other.name == rule.name) {
            let sentence =
                format!("a rule above is named {} already; give each rule a name of its own", rule.name);
            return Err(wrong(place, sentence));
        }
        rules.push(rule);
    }
    Ok(Rules { rules, containers: written.containers })
}

type Misplaced = (Option<usize>, String);

/// One rule, and where its name stands.
fn rule(fields: &BTreeMap<Spanned<String>, Spanned<Value>>) -> Result<(Rule, usize), Misplaced> {
    let (mut name, mut wanted, mut terms) = (None, None, Vec::new());
    for (key, value) in fields {
        let place = Some(value.span().start);
        let (key, key_place) = (key.get_ref().as_str(), Some(key.span().start));
        let wrong = |sentence: String| (place, sentence);
        match key {
            "name" => {
                let text = text(key, value.get_ref()).map_err(wrong)?;
                let text = parse_name(&text).map_err(|reason| wrong(format!("name: {reason}")))?;
                if text.len() > LONGEST_NAME {
                    return Err(wrong(format!(
                        "name: a rule's name has up to {LONGEST_NAME} letters; give a shorter one"
                    )));
                }
                name = Some((text, value.span().start));
            }
            key if WANTED.contains(&key) => {
                let text = text(key, value.get_ref()).map_err(wrong)?;
                let new = what(key, text).map_err(|reason| wrong(format!("{key}: {reason}")))?;
                if wanted.replace(new).is_some() {
                    return Err((
                        key_place,
                        format!("a rule looks for one thing; leave one of {} in it", WANTED.join(", ")),
                    ));
                }
            }
            key if TERMS.contains(&key) => {
                if let Some(term) = term(key, value.get_ref()).map_err(wrong)? {
                    checked(&term).map_err(wrong)?;
                    terms.push(term);
                }
            }
            _ => {
                let known =
                    ["name"].iter().chain(&WANTED).chain(&TERMS).copied().collect::<Vec<_>>().join(", ");
                return Err((key_place, format!("a rule has no {key}; write one of {known}")));
            }
        }
    }
    let (name, place) =
        name.ok_or((None, "this rule has no name; add a line such as name = \"web\"".to_owned()))?;
    let wanted = wanted.ok_or_else(|| {
        (None, format!("rule {name} looks for nothing; add a line with one of {}", WANTED.join(", ")))
    })?;
    if !terms.iter().any(|term| term.starts_with("--local=")) {
        return Err((None, format!("rule {name} gives no budget; add a line such as local = \"256M\"")));
    }
    together(&terms).map_err(|reason| (None, format!("rule {name}: {reason}")))?;
    Ok((Rule { name, wanted, terms }, place))
}

fn text(key: &str, value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("{key} is a text; write it in quotes"))
}

fn what(key: &str, text: String) -> Result<Wanted, String> {
    let is_clean = !text.is_empty() && text.len() <= LONGEST_PATTERN && !text.contains(char::is_control);
    if !is_clean {
        return Err("it is empty, or has letters that can't be shown; write what to look for".to_owned());
    }
    Ok(match key {
        "cgroup" => {
            let text = text.strip_prefix("/sys/fs/cgroup").unwrap_or(&text).trim_end_matches('/').to_owned();
            if !text.starts_with('/') {
                return Err(
                    "write the path below /sys/fs/cgroup, such as \"/system.slice/web*.service\"".to_owned()
                );
            }
            Wanted::Group(text)
        }
        "unit" | "command" if key == "unit" && text.contains('/') => {
            return Err(
                "a unit is a name, such as \"redis.service\"; write a path as cgroup = \"/…\"".to_owned()
            );
        }
        "unit" => Wanted::Unit(text),
        "command" => Wanted::Command(text),
        _ => match text.split_once('=') {
            Some(("", _)) => return Err("write it as \"KEY\" or \"KEY=VALUE\"".to_owned()),
            Some((label, value)) => Wanted::Label(label.to_owned(), Some(value.to_owned())),
            None => Wanted::Label(text, None),
        },
    })
}

/// The word on a command line; none for what is not wanted.
fn term(key: &str, value: &Value) -> Result<Option<String>, String> {
    let value = match value {
        Value::Boolean(true) => return Ok(Some(format!("--{key}"))),
        Value::Boolean(false) => return Ok(None),
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Array(values) if values.iter().all(Value::is_str) => {
            values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
        }
        _ => return Err(format!("{key}: write it as the command line has it, such as {key} = \"256M\"")),
    };
    Ok(Some(format!("--{key}={value}")))
}

/// Checks one option as the command line does.
fn checked(term: &str) -> Result<(), String> {
    together(&[term.to_owned()])
}

/// The same of all of them.
fn together(terms: &[String]) -> Result<(), String> {
    let words = ["farmem", "attach", "1"].into_iter().map(str::to_owned).chain(terms.iter().cloned());
    let arguments = Arguments::try_parse_from(words).map_err(|error| {
        let rendered = error.to_string();
        let complaint: Vec<&str> =
            rendered.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
        let complaint = complaint.join(" ");
        let complaint = complaint.strip_prefix("error: ").unwrap_or(&complaint);
        format!("{complaint}; it is what `farmem attach --help` says")
    })?;
    let Command::Attach(arguments) = arguments.command else { return Ok(()) };
    let memory = Memory::current().map_err(|error| error.to_string())?;
    arguments.application.local.resolve(memory.usable()).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn a_file_of_rules_is_read() {
        let rules = parse(
            "containers = [\"/data/docker/containers\"]\n[[rule]]\nname = \"web\"\ncgroup = \"/sys/fs/cgroup/system.slice/web*.service\"\nlocal = \"256M\"\npool = \"64M-1G\"\nweight = 2\nno-borrow = true\n\
             [[rule]]\nname = \"cache\"\ncommand = \"redis-server\"\nlocal = \"10%\"\n[[rule]]\nname = \"box\"\ncontainer-label = \"tier=cold*\"\nlocal = \"64M\"\n",
        )
        .unwrap();
        assert_eq!(rules.containers, [Path::new("/data/docker/containers")]);
        let [web, cache, container] = &rules.rules[..] else { panic!("{rules:?}") };
        assert_eq!(web.wanted, Wanted::Group("/system.slice/web*.service".to_owned()));
        assert_eq!(web.terms, ["--local=256M", "--no-borrow", "--pool=64M-1G", "--weight=2"]);
        assert_eq!(cache.wanted, Wanted::Command("redis-server".to_owned()));
        assert_eq!(container.wanted, Wanted::Label("tier".to_owned(), Some("cold*".to_owned())));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let rule = "[[rule]]\nname = \"web\"\n";
        for (text, line, says) in [
            ("\n[[rule]\n".to_owned(), 2, "a rule is a line [[rule]]"),
            (String::new(), 1, "begin one with a line [[rule]]"),
            (format!("{rule}unit = \"a\"\nlocal = \"much\"\n"), 4, "--local"),
            (format!("{rule}unit = \"a\"\nlocal = \"1K\"\n"), 4, "too small"),
            (format!("{rule}unit = \"a\"\n"), 2, "add a line such as local"),
            (format!("{rule}local = \"64M\"\n"), 2, "looks for nothing"),
            (format!("{rule}unit = \"a\"\ncommand = \"b\"\nlocal = \"64M\"\n"), 3, "looks for one thing"),
            (format!("{rule}unit = 5\n"), 3, "write it in quotes"),
            (format!("{rule}unit = \"a/b\"\n"), 3, "write a path as cgroup"),
            (format!("{rule}cgroup = \"web\"\n"), 3, "below /sys/fs/cgroup"),
            (format!("{rule}speed = 5\n"), 3, "a rule has no speed"),
            (
                format!("{rule}unit = \"a\"\nlocal = \"64M\"\n{rule}unit = \"b\"\nlocal = \"64M\"\n"),
                6,
                "named web already",
            ),
            ("[[rule]]\nunit = \"a\"\nlocal = \"64M\"\n".to_owned(), 2, "has no name"),
            ("[[rule]]\nname = \"a b\"\n".to_owned(), 2, "a name has up to"),
        ] {
            let wrong = parse(&text).expect_err(&text);
            assert_eq!(wrong.line, line, "{text}: {}", wrong.sentence);
            assert!(
                wrong.sentence.contains(says) && wrong.sentence.lines().count() == 1,
                "{}",
                wrong.sentence
            );
        }
    }

    #[test]
    fn no_rules_are_rules_where_the_file_says_so() {
        assert_eq!(parse("rule = []").unwrap(), Rules::default());
    }

    #[test]
    fn limits_can_be_changed_and_the_rest_can_not() {
        let before = terms(&["--local=256M", "--pool=1G"]);
        let (settings, is_all) = changes(&before, &terms(&["--local=128M", "--pool=1G", "--weight=3"]));
        assert_eq!((settings.len(), is_all), (2, true));
        let (settings, is_all) = changes(&before, &terms(&["--local=128M", "--pool=1G", "--no-borrow"]));
        assert_eq!((settings.len(), is_all), (1, false));
        let (settings, is_all) = changes(&before, &terms(&["--local=256M"]));
        assert_eq!((settings.len(), is_all), (0, false));
        let (settings, is_all) = changes(&before, &terms(&["--local=auto", "--pool=1G"]));
        assert_eq!((settings.len(), is_all), (0, false));
        assert!(changes(&before, &before).1);
    }

    #[test]
    fn units_are_named_with_their_kind_or_without_and_commands_by_name_or_path() {
        let unit = Wanted::Unit("redis".to_owned());
        assert!(unit.is_group("/system.slice/redis.service", None));
        assert!(unit.is_group("/a/b/redis", None));
        assert!(!unit.is_group("/system.slice/redis-2.service", None));
        assert!(Wanted::Command("redis-*".to_owned()).is_command("/usr/bin/redis-server"));
        assert!(!Wanted::Command("redis".to_owned()).is_command("/usr/bin/redis-server"));
        assert!(Wanted::Command("/usr/bin/*".to_owned()).is_command("/usr/bin/redis-server"));
        let labels = BTreeMap::from([("tier".to_owned(), "cold-1".to_owned())]);
        assert!(
            Wanted::Label("tier".to_owned(), Some("cold*".to_owned())).is_group("/docker/x", Some(&labels))
        );
        assert!(Wanted::Label("tier".to_owned(), None).is_group("/docker/x", Some(&labels)));
        assert!(
            !Wanted::Label("tier".to_owned(), Some("hot".to_owned())).is_group("/docker/x", Some(&labels))
        );
        assert!(!Wanted::Label("tier".to_owned(), None).is_group("/docker/x", None));
    }
}
