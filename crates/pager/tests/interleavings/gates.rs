//! The gate (its invariants 1 and 2, and that everyone gets through).

use std::sync::atomic::{AtomicI32, Ordering};

use shuttle::sync::Arc;
use shuttle::thread;

use crate::check;
use crate::gate::Gate;

const ROUNDS: usize = 2;

/// Who is inside. Not a word of the model: looking at it is no step.
#[derive(Default)]
struct Inside {
    readings: AtomicI32,
    changes: AtomicI32,
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

fn through(readers: usize, changers: usize) {
    let shared = Arc::new((Gate::new(), Inside::default()));
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

#[test]
fn changes_do_not_exclude_each_other() {
    let body = || {
        let gate = Arc::new(Gate::new());
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
        let shared = Arc::new((Gate::new(), AtomicI32::new(0)));
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
