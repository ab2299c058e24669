//! How a command fails: one sentence on standard error, and an exit status that says whose fault it is.

use std::fmt;
use std::process::ExitCode;

/// Why a command ended without doing what was asked.
#[derive(Debug)]
pub enum Failure {
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
    #[must_use]
    pub fn status(&self) -> ExitCode {
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
