//! How `farmem` itself fails: one sentence on standard error, and an exit status that says whose fault it is.

use std::ffi::OsString;
use std::fmt;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::ErrorKind;

use crate::arguments::Arguments;

/// Why a command of `farmem` ended without doing what was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked for can't be started: wrong options, an unsuitable program, a machine that can't.
    /// Status 2.
    Unusable(String),
    /// There is no such program. Status 127, as in a shell.
    NotFound(String),
    /// The program may not be executed. Status 126, as in a shell.
    NotExecutable(String),
    /// It started, and then failed. Status 1.
    Failed(anyhow::Error),
}

impl Failure {
    /// The exit status that tells it to scripts.
    pub(crate) fn status(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Failed(_) => 1,
            Self::Unusable(_) => 2,
            Self::NotExecutable(_) => 126,
            Self::NotFound(_) => 127,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable(sentence) | Self::NotFound(sentence) | Self::NotExecutable(sentence) => {
                f.write_str(sentence)
            }
            Self::Failed(error) => write!(f, "{error:#}"),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// Help and version are printed and are no failure; every other complaint becomes one sentence with a hint.
///
/// `words` are the words of the command line, its first one (the program) included.
pub(crate) fn from_clap(error: &clap::Error, words: &[OsString]) -> Result<ExitCode, Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that has seen enough, as in `farmem --help | head -1`, is no failure.
            let _ = error.print();
            Ok(ExitCode::SUCCESS)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Failure::Unusable(format!("no command was given; `{} --help` lists them", command_of(words))))
        }
        _ => Err(Failure::Unusable(one_sentence(&error.to_string(), &command_of(words)))),
    }
}

/// The command that the words begin with, such as `farmem bench faults`.
fn command_of(words: &[OsString]) -> String {
    let root = Arguments::command();
    let mut command = &root;
    let mut name = root.get_name().to_owned();
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

        assert_eq!(command_of(&words("farmem bench faults --bad")), "farmem bench faults");
        assert_eq!(command_of(&words("farmem run stat")), "farmem run");
        assert_eq!(command_of(&words("farmem --bad run")), "farmem");
    }
}
