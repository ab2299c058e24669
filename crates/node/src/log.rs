//! Standard error, with a bound: peers decide how much there is to say.

use std::io::{Write, stderr};
use std::time::Duration;

/// Most lines in a second.
const MOST_LINES: u32 = 20;

#[derive(Default)]
pub(crate) struct Log {
    second: u64,
    lines: u32,
}

impl Log {
    /// One line, unless there were many this second.
    pub(crate) fn say(&mut self, now: Duration, sentence: &str) {
        if self.second != now.as_secs() {
            if self.lines > MOST_LINES {
                say(&format!("{} more lines like these", self.lines - MOST_LINES));
            }
            *self = Self { second: now.as_secs(), lines: 0 };
        }
        self.lines += 1;
        if self.lines <= MOST_LINES {
            say(sentence);
        }
    }
}

/// One line; where events are logged, one of them instead.
fn say(sentence: &str) {
    if tracing::dispatcher::has_been_set() {
        tracing::warn!("{sentence}");
    } else {
        // Nobody may read there any more: that must not end the node.
        let _ = stderr().write_all(format!("farmem node: {sentence}\n").as_bytes());
    }
}
