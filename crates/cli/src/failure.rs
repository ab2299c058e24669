//! How `farmem` itself fails: one sentence on standard error, and an exit status that says whose fault it is.

use std::fmt;
use std::process::ExitCode;

use clap::error::ErrorKind;

/// Why a command of `farmem` ended without doing what was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked for can't be started: wrong options, an unsuitable program, a machine that can't. Status 2.
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
pub(crate) fn from_clap(error: &clap::Error) -> Result<ExitCode, Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that has seen enough, as in `farmem --help | head -1`, is no failure.
            let _ = error.print();
            Ok(ExitCode::SUCCESS)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Failure::Unusable("no command was given; `farmem --help` lists them".to_owned()))
        }
        _ => Err(Failure::Unusable(one_sentence(&error.to_string()))),
    }
}

/// clap's message without its layout: the complaint, its tip if it has one, and where the help is.
fn one_sentence(rendered: &str) -> String {
    let mut complaint = Vec::new();
    let mut tip = None;
    let mut command = "farmem".to_owned();
    let mut in_complaint = true;
    for line in rendered.lines().map(str::trim) {
        if let Some(usage) = line.strip_prefix("Usage: ") {
            let words = usage.split_whitespace().take_while(|word| word.starts_with(char::is_lowercase));
            command = words.collect::<Vec<_>>().join(" ");
        } else if let Some(text) = line.strip_prefix("tip: ") {
            tip.get_or_insert(text.to_owned());
        } else if line.is_empty() {
            in_complaint = false;
        } else if in_complaint {
            complaint.push(line.strip_prefix("error: ").unwrap_or(line));
        }
    }
    let tip = tip.map_or_else(String::new, |tip| format!("; {tip}"));
    format!("{}{tip}; see `{command} --help`", complaint.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_of_several_lines_becomes_one_sentence() {
        let rendered = "error: the following required arguments were not provided:\n  <PROGRAM>...\n\nUsage: farmem \
                        run <PROGRAM>...\n\nFor more information, try '--help'.\n";

        assert_eq!(
            one_sentence(rendered),
            "the following required arguments were not provided: <PROGRAM>...; see `farmem run --help`"
        );
    }

    #[test]
    fn a_tip_is_kept() {
        let rendered = "error: unexpected argument '--locl' found\n\n  tip: a similar argument exists: \
                        '--local'\n\nUsage: farmem run --local <SIZE> <PROGRAM>...\n";

        assert_eq!(
            one_sentence(rendered),
            "unexpected argument '--locl' found; a similar argument exists: '--local'; see `farmem run --help`"
        );
    }
}
