//! What a server says on standard error, with a bound: its peers decide how much there is to say.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

use std::io::{Write, stderr};
use std::time::Duration;

/// Most lines in a second.
const MOST_LINES: u32 = 20;

/// The lines of one server. Belongs to one thread.
#[derive(Debug)]
pub struct BoundedLog {
    /// What each line begins with.
    server: &'static str,
    second: u64,
    lines: u32,
}

impl BoundedLog {
    /// `server` is what each line begins with, as in `farmem node`.
    pub const fn new(server: &'static str) -> Self {
        Self { server, second: 0, lines: 0 }
    }

    /// One line, unless there were twenty this second. Of the others it is said how many there were, with the
    /// first line of a later second. `now` is the time since the server began.
    pub fn say(&mut self, now: Duration, sentence: &str) {
        let server = self.server;
        self.admit(now, sentence, &mut |line| write(server, line));
    }

    fn admit(&mut self, now: Duration, sentence: &str, write: &mut dyn FnMut(&str)) {
        if self.second != now.as_secs() {
            let left_out = self.lines.saturating_sub(MOST_LINES);
            if left_out > 0 {
                write(&format!("{left_out} more lines like these"));
            }
            (self.second, self.lines) = (now.as_secs(), 0);
        }
        self.lines = self.lines.saturating_add(1);
        if self.lines <= MOST_LINES {
            write(sentence);
        }
    }
}

/// One line; where events are logged, one of them instead.
fn write(server: &str, sentence: &str) {
    if tracing::dispatcher::has_been_set() {
        tracing::warn!("{sentence}");
    } else {
        // Nobody may read there any more: that must not end a server.
        let _ = stderr().write_all(format!("{server}: {sentence}\n").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_beyond_twenty_lines_a_second_is_counted_and_said_later() {
        let mut log = BoundedLog::new("farmem test");
        let mut lines: Vec<String> = Vec::new();
        let mut say = |log: &mut BoundedLog, seconds, sentence: &str| {
            log.admit(Duration::from_secs(seconds), sentence, &mut |line| lines.push(line.to_owned()));
        };
        (0..23).for_each(|_| say(&mut log, 5, "again"));
        say(&mut log, 7, "later");
        say(&mut log, 8, "last");
        assert_eq!(lines.len(), 23);
        assert!(lines[..20].iter().all(|line| line == "again"));
        assert_eq!(lines[20..], ["3 more lines like these", "later", "last"]);
    }
}
