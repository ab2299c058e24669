//! The gate (its invariants 1 to 3, and that everyone gets through).

use std::sync::atomic::{AtomicI32, Ordering};

use shuttle::sync::Arc;
use shuttle::thread;

use crate::check;
use crate::gate::Gate;

const ROUNDS: usize = 2;

/// The threads inside. Not a word of the model: looking at it is no step.
#[derive(Default)]
struct Inside {
    readings: AtomicI32,
    changes: AtomicI32,
    holdings: AtomicI32,
}

impl Inside {
    fn read(&self) {
        assert_eq!(self.readings.fetch_add(1, Ordering::SeqCst), 0, "two readings at once");
        assert_eq!(self.changes.load(Ordering::SeqCst), 0, "a reading during a change");
        thread::yield_now();
        assert_eq!(self.changes.load(Ordering::SeqCst), 0, "a change has begun during a reading");
        self.readings.fetch_sub(1, Ordering::SeqCst);
    }

    fn change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        assert_eq!(self.readings.load(Ordering::SeqCst), 0, "a change during a reading");
        thread::yield_now();
        assert_eq!(self.readings.load(Ordering::SeqCst), 0, "a reading has begun during a change");
        self.changes.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A gate that so many have been let into.
fn gate(parties: u32) -> Gate {
    let gate = Gate::new();
    gate.let_in(parties);
    gate
}

/// Holds something and changes it, over and over, as whoever serves faults does.
fn hold(gate: &Gate, inside: &Inside, party: usize) {
    for _ in 0..ROUNDS {
        let holding = gate.hold(party);
        inside.holdings.fetch_add(1, Ordering::SeqCst);
        thread::yield_now();
        let change = holding.change();
        if change.is_some() {
            inside.change();
        }
        drop(change);
        inside.holdings.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn nobody_holds_anything_once_a_reading_has_settled_and_everyone_gets_through() {
    check(|| {
        let shared = Arc::new((gate(3), Inside::default()));
        let mut threads = Vec::new();
        for party in 0..2 {
            let shared = Arc::clone(&shared);
            threads.push(thread::spawn(move || hold(&shared.0, &shared.1, party)));
        }
        // One that holds nothing waits for the same readings.
        let changer = Arc::clone(&shared);
        threads.push(thread::spawn(move || drop(changer.0.change(2))));
        for _ in 0..ROUNDS {
            let reading = shared.0.read();
            shared.1.read();
            reading.settle();
            assert_eq!(shared.1.holdings.load(Ordering::SeqCst), 0, "somebody holds something");
            thread::yield_now();
            assert_eq!(shared.1.holdings.load(Ordering::SeqCst), 0, "somebody has taken something");
            drop(reading);
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn a_reading_that_does_not_settle_waits_for_no_holder() {
    let body = || {
        let gate = Arc::new(gate(1));
        let holding = gate.hold(0);
        let reader = Arc::clone(&gate);
        // It gets through while the page is held: else this waits for ever.
        thread::spawn(move || drop(reader.read())).join().unwrap();
        assert!(holding.change().is_some());
    };
    shuttle::check_random(body, 1);
}

fn through(readers: usize, changers: usize) {
    let shared = Arc::new((gate(changers as u32), Inside::default()));
    let mut threads = Vec::new();
    for _ in 0..readers {
        let shared = Arc::clone(&shared);
        threads.push(thread::spawn(move || {
            for _ in 0..ROUNDS {
                let reading = shared.0.read();
                shared.1.read();
                drop(reading);
            }
        }));
    }
    for party in 0..changers {
        let shared = Arc::clone(&shared);
        threads.push(thread::spawn(move || {
            for _ in 0..ROUNDS {
                let change = shared.0.change(party);
                shared.1.change();
                drop(change);
            }
        }));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn readings_and_changes_exclude_each_other_and_everyone_gets_through() {
    check(|| through(2, 2));
}

#[test]
fn one_reader_and_three_changers_get_through() {
    check(|| through(1, 3));
}

/// A handler that is started while messages are read.
#[test]
fn a_party_that_has_just_been_let_in_changes_nothing_during_a_reading() {
    check(|| {
        let shared = Arc::new((gate(0), Inside::default()));
        let other = Arc::clone(&shared);
        let starts = thread::spawn(move || {
            other.0.let_in(1);
            hold(&other.0, &other.1, 0);
        });
        for _ in 0..ROUNDS {
            let reading = shared.0.read();
            shared.1.read();
            reading.settle();
            assert_eq!(shared.1.holdings.load(Ordering::SeqCst), 0, "somebody holds something");
            drop(reading);
        }
        starts.join().unwrap();
    });
}

#[test]
fn changes_do_not_exclude_each_other() {
    let body = || {
        let gate = Arc::new(gate(2));
        let first = gate.change(0);
        let other = Arc::clone(&gate);
        // The second gets through while the first is still inside: else this waits for ever.
        thread::spawn(move || drop(other.change(1))).join().unwrap();
        drop(first);
    };
    // Nothing runs at the same time as anything else here: one schedule shows it.
    shuttle::check_random(body, 1);
}

#[test]
fn who_waits_for_a_reading_sees_what_it_did() {
    check(|| {
        let shared = Arc::new((gate(1), AtomicI32::new(0)));
        let reader = Arc::clone(&shared);
        let reading = shared.0.read();
        let thread = thread::spawn(move || {
            drop(reader.0.change(0));
            assert_eq!(reader.1.load(Ordering::SeqCst), 1, "the reading was still under way");
        });
        thread::yield_now();
        shared.1.store(1, Ordering::SeqCst);
        drop(reading);
        thread.join().unwrap();
    });
}
