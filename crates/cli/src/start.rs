//! How a program begins: reads its arguments, does what they say, and tells how it failed.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::process::ExitCode;
use std::thread;

use clap::error::ErrorKind;
use clap::{Command, Parser};
use rustix::process::{Resource, getrlimit};

use crate::Failure;

/// Bytes of stack with which arguments are parsed: ten times what it takes now.
const PARSER_STACK: usize = 1 << 20;

/// Does what the arguments of this process say. A failure is told in one sentence.
pub fn start<Arguments: Parser + Send>(
    dispatch: impl FnOnce(Arguments) -> Result<ExitCode, Failure>,
) -> ExitCode {
    let words: Vec<OsString> = env::args_os().collect();
    let outcome = match parse(&words) {
        Ok(arguments) => dispatch(arguments),
        Err(error) => from_clap(&error, &Arguments::command(), &words),
    };
    outcome.unwrap_or_else(|failure| {
        say(&format!("farmem: {failure}"));
        failure.status()
    })
}

/// Writes a line to standard error. Nobody may read there any more, which must end neither a node nor the
/// status that was to be returned.
pub fn say(sentence: &str) {
    let _ = io::stderr().write_all(format!("{sentence}\n").as_bytes());
}

/// Parses the arguments, on a thread of its own where the caller's limit leaves less stack than the options
/// of all commands may take. Where no thread can be made it is tried anyway.
fn parse<Arguments: Parser + Send>(words: &[OsString]) -> Result<Arguments, clap::Error> {
    let in_place = || Arguments::try_parse_from(words);
    if getrlimit(Resource::Stack).current.is_none_or(|bytes| bytes >= PARSER_STACK as u64) {
        return in_place();
    }
    thread::scope(|scope| {
        match thread::Builder::new().stack_size(PARSER_STACK).spawn_scoped(scope, in_place) {
            Ok(parser) => parser.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => in_place(),
        }
    })
}

/// Help and version are printed and are no failure; every other complaint becomes one sentence with a hint.
///
/// `words` are the words of the command line, its first one (the program) included.
fn from_clap(error: &clap::Error, root: &Command, words: &[OsString]) -> Result<ExitCode, Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that has seen enough, as in `farmem --help | head -1`, is no failure.
            let _ = error.print();
            Ok(ExitCode::SUCCESS)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let command = command_of(root, words);
            Err(Failure::Unusable(format!("no command was given; `{command} --help` lists them")))
        }
        _ => Err(Failure::Unusable(one_sentence(&error.to_string(), &command_of(root, words)))),
    }
}

/// The command that the words begin with, such as `farmem bench faults`.
fn command_of(root: &Command, words: &[OsString]) -> String {
    let mut command = root;
    let mut name = root.get_bin_name().unwrap_or_else(|| root.get_name()).to_owned();
    for word in words.iter().skip(1) {
        let Some(next) = command.find_subcommand(word) else { break };
        command = next;
        name = format!("{name} {}", next.get_name());
    }
    name
}

/// clap's message without its layout: the complaint, its tip if it has one, and where the help is.
fn one_sentence(rendered: &str, command: &str) -> String {
    let lines = || rendered.lines().map(str::trim);
    let complaint: Vec<&str> = lines().take_while(|line| !line.is_empty()).collect();
    let complaint = complaint.join(" ");
    let complaint = complaint.strip_prefix("error: ").unwrap_or(&complaint);
    let tip = lines().find_map(|line| line.strip_prefix("tip: "));
    let tip = tip.map_or_else(String::new, |tip| format!("; {tip}"));
    format!("{complaint}{tip}; see `{command} --help`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_of_several_lines_becomes_one_sentence() {
        let rendered = "error: the following required arguments were not provided:\n  <PROGRAM>...\n\nUsage: farmem \
                        run <PROGRAM>...\n\nFor more information, try '--help'.\n";

        assert_eq!(
            one_sentence(rendered, "farmem run"),
            "the following required arguments were not provided: <PROGRAM>...; see `farmem run --help`"
        );
    }

    #[test]
    fn a_tip_is_kept() {
        let rendered = "error: unexpected argument '--locl' found\n\n  tip: a similar argument exists: \
                        '--local'\n\nUsage: farmem run --local <SIZE> <PROGRAM>...\n";

        assert_eq!(
            one_sentence(rendered, "farmem run"),
            "unexpected argument '--locl' found; a similar argument exists: '--local'; see `farmem run --help`"
        );
    }

    #[test]
    fn the_hint_names_the_command_that_was_meant() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let below = |root: Command| {
            root.subcommand(Command::new("node").subcommand(Command::new("stat")))
                .subcommand(Command::new("run"))
        };
        let farmem = below(Command::new("farmem"));
        let bench = below(Command::new("farmem-bench").bin_name("farmem bench"));

        assert_eq!(command_of(&farmem, &words("farmem node stat --bad")), "farmem node stat");
        assert_eq!(command_of(&farmem, &words("farmem run stat")), "farmem run");
        assert_eq!(command_of(&farmem, &words("farmem --bad run")), "farmem");
        assert_eq!(command_of(&bench, &words("/usr/bin/farmem-bench node --bad")), "farmem bench node");
    }
}
