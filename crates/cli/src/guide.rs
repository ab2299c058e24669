//! What people are told to type, as far as no test runs it: units of systemd, manifests, commands for other
//! machines. The command line must take all of it. Next to it: each command says how it is used, and messages
//! that the guide explains are messages of Farmem.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};

use self::bench::Arguments as BenchArguments;
use crate::arguments::{Arguments, Command};

/// What follows `farmem bench` is defined by the program that it becomes.
#[allow(dead_code)]
#[path = "bin/farmem-bench/arguments.rs"]
mod bench;

/// Words of a line, as a shell would make them of a simple command.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for letter in line.chars() {
        match quote {
            Some(open) if letter == open => quote = None,
            Some(_) => word.push(letter),
            None if letter == '"' || letter == '\'' => quote = Some(letter),
            None if letter.is_whitespace() => {
                words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()))
            }
            None => word.push(letter),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

/// What a line calls `farmem` with, each time that it does.
fn calls(line: &str) -> Vec<Vec<String>> {
    let words = match line.trim().strip_prefix("command: ") {
        Some(list) => serde_json::from_str(list).expect("a list of words"),
        None => words(line.trim().strip_prefix("ExecStart=").unwrap_or(line)),
    };
    let ends = ["|", "||", "&&", "&", ">", "#", ";"];
    let simple = words.split(|word| ends.contains(&word.as_str()));
    let is_farmem = |word: &String| {
        let name = word.rsplit('/').next().unwrap_or_default();
        ["farmem", "farmem-bench"].contains(&name)
    };
    let calls = simple.filter_map(|words| Some(words[words.iter().position(is_farmem)?..].to_vec()));
    // A program that is copied somewhere isn't called, and a directory of that name in a manifest neither.
    calls.filter(|words| words.get(1).is_some_and(|word| !word.starts_with(['/', '}']))).collect()
}

/// What `farmem-bench` is called with, where the call is of it, or passed on to it.
fn passed(call: &[String]) -> Option<Vec<String>> {
    if call.first().is_some_and(|program| program.ends_with("farmem-bench")) {
        return Some(call.to_vec());
    }
    let name = call.get(1)?;
    let words = match Arguments::try_parse_from(call).ok()?.command {
        Command::Bench(arguments) => return Some(words_of(None, &arguments.words)),
        Command::Workload(arguments) | Command::Compression(arguments) => arguments.words,
        Command::Kernel(arguments) | Command::Readers(arguments) => arguments.words,
        _ => return None,
    };
    Some(words_of(Some(name), &words))
}

fn words_of(command: Option<&String>, words: &[OsString]) -> Vec<String> {
    let words = words.iter().map(|word| word.to_str().expect("text").to_owned());
    ["farmem-bench".to_owned()].into_iter().chain(command.cloned()).chain(words).collect()
}

/// Why the command line doesn't take a call.
fn refusal(call: &[String]) -> Option<String> {
    let error = match passed(call) {
        Some(call) => BenchArguments::try_parse_from(call).err()?,
        None => Arguments::try_parse_from(call).err()?,
    };
    // A help text is no refusal.
    error.use_stderr().then(|| error.to_string())
}

/// The lines of fenced blocks, those that go on in the next joined.
fn lines(text: &str) -> Vec<String> {
    let (mut lines, mut is_inside) = (Vec::new(), false);
    for line in text.replace("\\\n", " ").lines() {
        match line.strip_prefix("```") {
            Some(language) => is_inside = !is_inside && ["sh", "ini", "yaml"].contains(&language),
            None if is_inside => lines.push(line.to_owned()),
            None => {}
        }
    }
    lines
}

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = |folder: &str| {
        let pages = fs::read_dir(root.join(folder)).expect("pages");
        pages
            .map(|page| page.expect("a page").path())
            .filter(|page| page.extension().is_some_and(|end| end == "md"))
    };
    [root.join("README.md")].into_iter().chain(pages("docs/guide")).chain(pages("docs/results")).collect()
}

/// Whole commands in the cells of tables, which say how a figure is found.
fn calls_of_tables(text: &str) -> Vec<Vec<String>> {
    let rows = text.lines().filter(|line| line.starts_with('|'));
    let spans = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let is_call = |span: &&str| span.starts_with("farmem ") || span.starts_with("sudo farmem ");
    spans.filter(is_call).flat_map(calls).collect()
}

#[test]
fn what_the_documents_say_to_type_the_command_line_takes() {
    let mut taken = 0;
    for document in documents() {
        for line in lines(&fs::read_to_string(&document).expect("text")) {
            for call in calls(&line) {
                let call: Vec<String> = call.into_iter().filter(|word| word != "…").collect();
                assert_eq!(refusal(&call), None, "{}: {line}", document.display());
                taken += 1;
            }
        }
    }
    assert!(taken > 50, "{taken} commands");
}

#[test]
fn commands_by_which_results_say_a_figure_is_found_are_taken() {
    let results =
        documents().into_iter().filter(|page| page.parent().is_some_and(|at| at.ends_with("results")));
    let mut taken = 0;
    for page in results {
        for call in calls_of_tables(&fs::read_to_string(&page).expect("text")) {
            assert_eq!(refusal(&call), None, "{}: {call:?}", page.display());
            taken += 1;
        }
    }
    assert!(taken > 20, "{taken} commands");
}

#[test]
fn each_command_says_how_it_is_used_with_an_example() {
    let mut commands = vec![Arguments::command(), BenchArguments::command()];
    while let Some(command) = commands.pop() {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(after.starts_with("Example"), "{} has no example", command.get_name());
        // An example is one of this command, and the command line takes it.
        for call in after.lines().filter(|line| line.starts_with("  ")).flat_map(calls) {
            assert_eq!(refusal(&call), None, "{call:?}");
        }
        commands.extend(command.get_subcommands().cloned());
    }
}

/// What the sources of all crates say, tests left out, as it is printed but for what is filled in.
fn sources() -> String {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..")];
    let mut sources = String::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && !["tests", "examples", "benches", "target"].contains(&name) {
                folders.push(path);
            } else if name.ends_with(".rs") && !["tests.rs", "guide.rs"].contains(&name) {
                let text = fs::read_to_string(&path).expect("text");
                sources += text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            }
        }
    }
    // A literal that goes on in the next line.
    let mut joined = String::new();
    for (nth, part) in sources.split("\\\n").enumerate() {
        joined += if nth == 0 { part } else { part.trim_start() };
    }
    joined
}

/// Messages in the first column of tables that say so.
fn messages(document: &str) -> Vec<String> {
    let (mut messages, mut is_inside) = (Vec::new(), false);
    for line in document.lines() {
        let Some(row) = line.strip_prefix("| ") else {
            is_inside &= line.starts_with("|--");
            continue;
        };
        let first = row.split(" | ").next().unwrap_or_default();
        is_inside |= first == "message";
        let quoted = first.split('`').skip(1).step_by(2).filter(|_| is_inside);
        messages.extend(quoted.filter(|words| words.contains(' ')).map(str::to_owned));
    }
    messages
}

/// Whether a message can be printed: each part of it stands somewhere. Parts are divided by what is filled
/// in, of which options may be one, and where a reason follows what came of it.
fn is_said(sources: &str, message: &str) -> bool {
    let stands = |part: &str| sources.contains(part.trim());
    message.split('…').all(|part| {
        let is_filled = |word: &str| word.starts_with("--");
        stands(part)
            || part.split(": ").all(|part| {
                let words: Vec<&str> = part.split(' ').collect();
                stands(part) || words.split(|word| is_filled(word)).all(|words| stands(&words.join(" ")))
            })
    })
}

#[test]
fn messages_that_the_guide_explains_are_printed_so() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/troubleshooting.md");
    let messages = messages(&fs::read_to_string(guide).expect("text"));
    let sources = sources();
    let missing: Vec<&String> = messages.iter().filter(|message| !is_said(&sources, message)).collect();
    assert_eq!(missing, Vec::<&String>::new());
    assert!(messages.len() > 80, "{} messages", messages.len());
    for invented in ["cannot use node …; start a shop there", "process … was ended: pool and disk are full"]
    {
        assert!(!is_said(&sources, invented), "{invented}");
    }
}

#[test]
fn what_follows_bench_is_passed_on_as_it_is() {
    for (call, expected) in [
        ("farmem bench", "farmem-bench"),
        ("farmem bench --help", "farmem-bench --help"),
        ("farmem bench faults -h --quick", "farmem-bench faults -h --quick"),
        (
            "farmem bench prefetch --json -- ls -- -l --help",
            "farmem-bench prefetch --json -- ls -- -l --help",
        ),
        ("farmem workload --data 1M", "farmem-bench workload --data 1M"),
        ("farmem kernel sort", "farmem-bench kernel sort"),
    ] {
        assert_eq!(passed(&words(call)), Some(words(expected)), "{call}");
    }
    assert_eq!(passed(&words("farmem run -- farmem-bench workload")), None);
}

#[test]
fn words_and_calls_are_those_of_a_shell() {
    assert_eq!(words("a 'b c'  \"d\""), ["a", "b c", "d"]);
    assert_eq!(
        calls("sudo farmem host --pool 8G & farmem stat"),
        [vec!["farmem", "host", "--pool", "8G"], vec!["farmem", "stat"]]
    );
    assert_eq!(calls("install target/release/farmem /usr/local/bin"), Vec::<Vec<String>>::new());
}
