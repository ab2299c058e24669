//! The process that was called as `farmem attach` looks on until the processes are within their budget: its
//! supervisor, a process of its own in the background, tells it how it stands, a line of JSON each time.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// Between two words.
const PERIOD: Duration = Duration::from_millis(50);
/// Nothing more leaves when for so long less than [`WORTH_BYTES`] has left.
const STANDSTILL: Duration = Duration::from_secs(2);
const WORTH_BYTES: u64 = 1 << 20;
/// Faults bring in pages before others leave: above the budget by less than this is within it.
const TOLERATED_BYTES: u64 = 1 << 20;

/// How processes stand that were attached to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Standing {
    /// The application's name.
    pub name: String,
    /// The process that it is known by.
    pub process: u32,
    /// Processes that belong to it.
    pub processes: u64,
    /// Of these, those that have a pager.
    pub managed: u64,
    /// What they may have in local memory, at this moment.
    pub budget_bytes: u64,
    /// What they have there.
    pub resident_bytes: u64,
    /// What is far.
    pub far_bytes: u64,
    /// Why a process has no pager, if one could not be attached to.
    pub refusal: Option<String>,
    /// Whether no more is to be expected: they are within their budget, or nothing more can be done.
    pub is_over: bool,
}

impl Standing {
    /// Whether they have no more than they may.
    pub fn is_within_budget(&self) -> bool {
        self.resident_bytes <= self.budget_bytes + TOLERATED_BYTES
    }
}

/// What is said.
#[derive(Debug, Serialize, Deserialize)]
enum Word {
    Standing(Standing),
    Refused(String),
}

/// The caller, as its supervisor sees it.
pub(crate) struct Onlooker {
    link: UnixStream,
    told: Option<Instant>,
    /// What was local when that was last worth to be called less, and since when.
    least: u64,
    since: Instant,
}

impl Onlooker {
    pub(crate) fn new(link: UnixStream) -> Self {
        Self { link, told: None, least: u64::MAX, since: Instant::now() }
    }

    pub(crate) fn is_due(&self) -> bool {
        self.told.is_none_or(|told| told.elapsed() >= PERIOD)
    }

    /// Tells how it stands. Whether that was the last word: there is no more to be told, or nobody who hears
    /// it. With `is_falling` the budget isn't yet what it is to be.
    pub(crate) fn tell(&mut self, mut standing: Standing, is_falling: bool) -> bool {
        self.told = Some(Instant::now());
        if standing.resident_bytes.saturating_add(WORTH_BYTES) <= self.least {
            (self.least, self.since) = (standing.resident_bytes, Instant::now());
        }
        let is_standing_still = self.since.elapsed() > STANDSTILL;
        standing.is_over = is_standing_still || !is_falling && standing.is_within_budget();
        let is_over = standing.is_over;
        !self.say(&Word::Standing(standing)) || is_over
    }

    /// Says why nothing is managed.
    pub(crate) fn refuse(&mut self, reason: &str) {
        self.say(&Word::Refused(reason.to_owned()));
    }

    fn say(&mut self, word: &Word) -> bool {
        // Numbers and names: always JSON.
        let text = serde_json::to_string(word).unwrap_or_default() + "\n";
        self.link.write_all(text.as_bytes()).is_ok()
    }
}

/// On the caller's side: hears how it stands, until it is over.
///
/// # Errors
/// Nothing is managed, for the reason that is given.
pub(crate) fn look_on(link: UnixStream, mut hear: impl FnMut(&Standing)) -> Result<Standing> {
    for line in BufReader::new(link).lines() {
        match serde_json::from_str(&line?).context("the supervisor sent an invalid message")? {
            Word::Refused(reason) => bail!(reason),
            Word::Standing(standing) if standing.is_over => return Ok(standing),
            Word::Standing(standing) => hear(&standing),
        }
    }
    bail!("the processes have ended, or were detached, before they were within their budget")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(resident_bytes: u64) -> Standing {
        Standing { budget_bytes: 100 << 20, resident_bytes, ..Standing::default() }
    }

    #[test]
    fn who_looks_on_hears_all_until_they_are_within_their_budget() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut onlooker = Onlooker::new(theirs);
        assert!(onlooker.is_due());
        assert!(!onlooker.tell(standing(300 << 20), true));
        assert!(!onlooker.is_due());
        assert!(!onlooker.tell(standing(50 << 20), true));
        assert!(onlooker.tell(standing(100 << 20), false));

        let mut heard = Vec::new();
        let last = look_on(ours, |now| heard.push(now.resident_bytes >> 20)).expect("it went well");
        assert_eq!(heard, [300, 50]);
        assert!(last.is_over && last.is_within_budget());
    }

    #[test]
    fn a_refusal_is_an_error_and_so_is_silence() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        Onlooker::new(theirs).refuse("no");
        assert_eq!(look_on(ours, |_| {}).expect_err("refused").to_string(), "no");
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        drop(theirs);
        assert!(look_on(ours, |_| {}).is_err());
    }

    #[test]
    fn nobody_waits_for_a_link_that_is_closed() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        drop(ours);
        assert!(Onlooker::new(theirs).tell(standing(300 << 20), true));
    }
}
