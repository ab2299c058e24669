//! What is run under each policy.

use std::ffi::OsString;
use std::path::Path;

use farmem_page::{ByteCount, PageCount};

use crate::option;
use crate::workload::{Outcome, Pattern};

/// A program with its arguments.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    name: String,
    command: Vec<OsString>,
    /// Whether it is the workload, which measures itself.
    is_pattern: bool,
}

/// Rounds of a pattern: enough that filling the data is a small part.
const ROUNDS: u32 = 6;
const PATTERNS: [Pattern; 8] = [
    Pattern::Sequential,
    Pattern::Strided,
    Pattern::Zipf,
    Pattern::RandomRead,
    Pattern::Chase,
    Pattern::List,
    Pattern::Tree,
    Pattern::Search,
];
/// The pattern in which there is nothing to find.
pub(super) const UNPREDICTABLE: Pattern = Pattern::RandomRead;
/// The pattern in which only references say what comes.
pub(super) const REFERENCES: Pattern = Pattern::List;

impl Subject {
    /// The workload, in each of its patterns that read.
    pub(super) fn patterns(farmem: &Path, data: ByteCount) -> Vec<Self> {
        let workload = |pattern| {
            let name = option::name(&pattern);
            let words = ["workload", "--data", &data.get().to_string(), "--rounds", &ROUNDS.to_string()];
            let command = [farmem.into()].into_iter().chain(words.map(OsString::from));
            let command = command.chain(["--pattern".into(), OsString::from(&name)]).collect();
            Self { name, command, is_pattern: true }
        };
        PATTERNS.map(workload).to_vec()
    }

    /// A user's program.
    pub(super) fn of(command: &[OsString]) -> Self {
        let name = command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        Self::named(&name, command)
    }

    /// A program that writes the same to standard output every time.
    pub(super) fn named(name: &str, command: &[OsString]) -> Self {
        Self { name: name.to_owned(), command: command.to_vec(), is_pattern: false }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn command(&self) -> &[OsString] {
        &self.command
    }

    /// Whether two runs came to the same: a workload found its bytes, any other program wrote the same to standard output.
    pub(super) fn is_same(&self, one: &[u8], other: &[u8]) -> bool {
        if self.is_pattern {
            Outcome::last_of(other).is_some_and(|outcome| outcome.mismatches == 0)
        } else {
            one == other
        }
    }

    /// What it had in memory where nothing limited it: `seen` from outside, and at least the data of a workload, which may be over before anybody has looked.
    pub(super) fn memory(&self, seen: ByteCount, output: &[u8]) -> ByteCount {
        self.outcome(output).map_or(seen, |outcome| seen.max(PageCount::new(outcome.pages).bytes()))
    }

    /// The time that counts, in seconds: that of a workload's rounds, of any other program all of it.
    pub(super) fn seconds(&self, wall_seconds: f64, output: &[u8]) -> f64 {
        match self.outcome(output) {
            Some(outcome) => {
                let nanoseconds: f64 = outcome.rounds.iter().map(|round| round.nanoseconds_per_access).sum();
                nanoseconds * outcome.accesses as f64 / 1e9
            }
            None => wall_seconds,
        }
    }

    /// What a workload tells of itself.
    fn outcome(&self, output: &[u8]) -> Option<Outcome> {
        Outcome::last_of(output).filter(|_| self.is_pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_must_write_the_same_and_a_workload_find_its_bytes() {
        let program = Subject::of(&["sort".into(), "data".into()]);
        assert!(program.is_same(b"one", b"one") && !program.is_same(b"one", b"other"));
        assert_eq!((program.name(), program.seconds(2.0, b"one")), ("sort data", 2.0));

        let workload = &Subject::patterns(Path::new("/farmem"), ByteCount::new(1 << 20))[0];
        let said = |mismatches: u64| {
            let round =
                r#"{"nanoseconds_per_access":500.0,"major_faults":0,"minor_faults":0,"cpu_seconds":0.0}"#;
            format!(
                r#"{{"event":"done","accesses":1000000,"pages":256,"rounds":[{round},{round}],"mismatches":{mismatches},"resident_peak_bytes":0}}"#
            )
        };
        assert!(workload.is_same(b"", said(0).as_bytes()) && !workload.is_same(b"", said(1).as_bytes()));
        assert_eq!(workload.seconds(9.0, said(0).as_bytes()), 1.0);
    }
}
