//! What is run under each policy.

use std::ffi::{OsStr, OsString};
use std::process::Command;
use std::thread;

use anyhow::{Context, ensure};
use farmem_page::{ByteCount, PageCount};

use super::conversation::Conversation;
use crate::run::{Finished, Runner};
use crate::workload::Outcome;

/// A program with its arguments.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    name: String,
    command: Vec<OsString>,
    clock: Clock,
    /// What it has in memory at least: a run may be over before anybody has looked.
    least: ByteCount,
}

/// Whose time counts.
#[derive(Clone, Debug)]
pub(super) enum Clock {
    /// The whole run's.
    Whole,
    /// That of a workload's rounds, which checks its bytes by itself.
    Rounds,
    /// What the program writes in its last line, `seconds N`.
    Own,
    /// That of what a client asks.
    Client(Conversation),
}

/// What one run showed.
#[derive(Clone, Debug)]
pub(super) struct Ran {
    /// How `farmem run` saw it.
    pub(super) finished: Finished,
    /// The time that counts.
    pub(super) seconds: f64,
    /// Processor time of the same, of all threads of the process, those of the pager among them; `None` where
    /// it isn't told.
    pub(super) processor_seconds: Option<f64>,
    /// What must be the same in each run.
    pub(super) said: Vec<u8>,
    /// What it had in memory: seen from outside, and at least what is known.
    pub(super) memory: ByteCount,
}

impl Subject {
    pub(super) fn new(name: String, command: Vec<OsString>, clock: Clock) -> Self {
        Self { name, command, clock, least: ByteCount::ZERO }
    }

    /// The same, known to have so much in memory.
    pub(super) fn with_data(self, data: ByteCount) -> Self {
        Self { least: data, ..self }
    }

    /// A user's program, which writes the same to standard output every time.
    pub(super) fn of(command: &[OsString]) -> Self {
        let name = command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        Self::new(name, command.to_vec(), Clock::Whole)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Runs it to its end, with these options for `farmem run`.
    ///
    /// # Errors
    /// When it fails, or found other bytes than it had written.
    pub(super) fn run(
        &self,
        runner: &Runner,
        options: impl IntoIterator<Item: AsRef<OsStr>>,
    ) -> anyhow::Result<Ran> {
        let Clock::Client(conversation) = &self.clock else {
            let finished = runner.run(options, &self.command, Command::spawn)?;
            return self.ran(finished);
        };
        thread::scope(|scope| {
            let mut client = Some(scope.spawn(|| conversation.hold(runner.interrupt())));
            let mut seconds = None;
            let look = || {
                if let Some(over) = client.take_if(|client| client.is_finished()) {
                    seconds = Some(joined(over)?);
                }
                Ok(())
            };
            let finished = runner.run_looking(options, &self.command, Command::spawn, look)?;
            let seconds = match client {
                Some(client) => joined(client)?,
                None => seconds.context("nothing was asked")?,
            };
            let memory = resident_peak(&finished);
            Ok(Ran { finished, seconds, processor_seconds: None, said: Vec::new(), memory })
        })
    }

    fn ran(&self, finished: Finished) -> anyhow::Result<Ran> {
        let memory = resident_peak(&finished);
        Ok(match self.clock {
            Clock::Whole | Clock::Client(_) => Ran {
                seconds: finished.number("wall_seconds"),
                processor_seconds: None,
                said: finished.output.clone(),
                memory,
                finished,
            },
            Clock::Own => {
                let (said, seconds) = own_time(&finished.output).context("it doesn't tell its time")?;
                let memory = memory.max(self.least);
                Ran { seconds, processor_seconds: None, said, memory, finished }
            }
            Clock::Rounds => {
                let outcome = Outcome::last_of(&finished.output).context("it doesn't tell how it went")?;
                ensure!(
                    outcome.mismatches == 0,
                    "{} pages held other bytes than were written",
                    outcome.mismatches
                );
                let sum = |of: fn(&crate::workload::Round) -> f64| outcome.rounds.iter().map(of).sum::<f64>();
                Ran {
                    seconds: sum(|round| round.nanoseconds_per_access) * outcome.accesses as f64 / 1e9,
                    processor_seconds: Some(sum(|round| round.cpu_seconds)),
                    said: Vec::new(),
                    memory: memory.max(PageCount::new(outcome.pages).bytes()),
                    finished,
                }
            }
        })
    }
}

fn resident_peak(finished: &Finished) -> ByteCount {
    ByteCount::new(finished.number("resident_peak_bytes") as u64)
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    thread.join().map_err(|_| anyhow::anyhow!("the thread that asks has panicked"))?
}

/// What a program wrote before its last line, and the time in that.
fn own_time(output: &[u8]) -> Option<(Vec<u8>, f64)> {
    let text = output.strip_suffix(b"\n")?;
    let at = text.iter().rposition(|&byte| byte == b'\n')? + 1;
    let line = std::str::from_utf8(&text[at..]).ok()?;
    Some((text[..at].to_vec(), line.strip_prefix("seconds ")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn finished(output: &str) -> Finished {
        let statistics = json!({"wall_seconds": 2.0, "resident_peak_bytes": 4096});
        Finished { stolen_share: 0.0, output: output.into(), statistics }
    }

    #[test]
    fn a_program_takes_all_of_its_run() {
        let program = Subject::of(&["sort".into(), "data".into()]);
        let ran = program.ran(finished("one")).unwrap();
        assert_eq!((program.name(), ran.seconds, &ran.said[..]), ("sort data", 2.0, &b"one"[..]));
    }

    #[test]
    fn a_program_may_tell_its_own_time_which_need_not_be_the_same() {
        let data = ByteCount::new(1 << 20);
        let program = Subject::new("list".to_owned(), Vec::new(), Clock::Own).with_data(data);
        let ran = program.ran(finished("sum 7\nseconds 0.25\n")).unwrap();
        assert_eq!((ran.seconds, &ran.said[..], ran.memory), (0.25, &b"sum 7\n"[..], data));
        assert!(program.ran(finished("sum 7\n")).is_err());
    }

    #[test]
    fn a_workload_takes_its_rounds_and_must_find_its_bytes() {
        let workload = Subject::new("zipf".to_owned(), Vec::new(), Clock::Rounds);
        let said = |mismatches: u64| {
            let round =
                r#"{"nanoseconds_per_access":500.0,"major_faults":0,"minor_faults":0,"cpu_seconds":0.5}"#;
            finished(&format!(
                r#"{{"event":"done","accesses":1000000,"pages":256,"rounds":[{round},{round}],"mismatches":{mismatches},"resident_peak_bytes":0}}"#
            ))
        };
        let ran = workload.ran(said(0)).unwrap();
        assert_eq!((ran.seconds, ran.processor_seconds), (1.0, Some(1.0)));
        assert_eq!(ran.memory, PageCount::new(256).bytes());
        assert!(workload.ran(said(1)).is_err());
    }
}
