//! Calls of the kernel that wait, and must not notice that a pager comes.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use farmem_page::ByteCount;

use super::conversation::Conversation;
use super::workshop::Program;
use super::{Bench, Early, Found};
use crate::record::Measurement;

/// Attaches, over all processes.
const ATTACHES: u64 = 1000;
const ATTACHES_QUICK: u64 = 1;
/// What each process has, and what of it is local.
const OWN: ByteCount = ByteCount::new(3 << 19);
const LOCAL_OF: (u64, u64) = (3, 4);

pub(super) const CASE: &str = "calls that wait";
pub(super) const RETURNED: &str = "calls that returned early";

pub(super) fn measure(bench: &Bench<'_>) -> Result<Found> {
    let farmem = &bench.farmem;
    let mut command = Command::new(bench.workshop.make(Program::Waiting)?);
    let mut waiting = Conversation::begin(&mut command, farmem.interrupt())?;
    let kinds = tallies(&waiting.ask("")?)?.len() as u64;
    let local = ByteCount::new(kinds * OWN.get() / LOCAL_OF.1 * LOCAL_OF.0);
    let (attaches, mut done) = (bench.amount(ATTACHES, ATTACHES_QUICK), 0);
    // Memory first: whoever has none gets no pager.
    farmem.wait_for("all memory", || {
        let resident = super::managed::resident_below(waiting.process());
        Ok((resident.get() >= kinds * OWN.get()).then_some(()))
    })?;
    while done < attaches {
        let attached = farmem.attach(waiting.process(), local)?;
        // The parent of all has too little for a pager.
        farmem.wait_for_pagers(&attached.name, kinds)?;
        done += kinds;
        farmem.detach(&attached)?;
    }
    let early: Vec<Early> =
        tallies(&waiting.ask("")?)?.into_iter().filter(|early| early.returned > 0).collect();
    let returned: u64 = early.iter().map(|early| early.returned).sum();
    let figure = |measure, value| Measurement::less(CASE, "attach", measure, value, "");
    let measurements = vec![
        figure(RETURNED, returned as f64),
        Measurement::more(CASE, "attach", "attaches", done as f64, ""),
        Measurement::more(CASE, "attach", "kinds of calls", kinds as f64, ""),
    ];
    Ok(Found { measurements, early, left_out: Vec::new() })
}

/// What the program says of all its calls.
fn tallies(line: &str) -> Result<Vec<Early>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    ensure!(!words.is_empty() && words.len().is_multiple_of(3), "the program says something else: {line}");
    let number = |word: &str| word.parse::<u64>().context("the program says no number");
    let of = |words: &[&str]| {
        let (returned, errno) = (number(words[1])?, number(words[2])?);
        Ok(Early { call: words[0].to_owned(), returned, errno })
    };
    words.chunks_exact(3).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_three_words_for_each_call() {
        let early = tallies("read 0 0 epoll_wait 3 4").unwrap();
        assert_eq!(early[1], Early { call: "epoll_wait".to_owned(), returned: 3, errno: 4 });
        assert!(tallies("read 0").is_err() && tallies("").is_err() && tallies("read x 0").is_err());
    }
}
