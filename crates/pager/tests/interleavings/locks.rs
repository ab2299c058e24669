//! The runtime's lock.

use std::sync::atomic::{AtomicI32, Ordering};

use shuttle::sync::Arc;
use shuttle::sync::atomic::AtomicU32;
use shuttle::thread;

use crate::check;
use crate::lock::Lock;

const THREADS: usize = 3;
const ROUNDS: usize = 2;

#[test]
fn one_thread_at_a_time_and_nobody_sleeps_for_ever() {
    check(|| {
        let shared = Arc::new((Lock::new(0_usize), AtomicI32::new(0)));
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    for _ in 0..ROUNDS {
                        let mut value = shared.0.lock();
                        assert_eq!(shared.1.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
                        thread::yield_now();
                        *value += 1;
                        shared.1.fetch_sub(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*shared.0.lock(), THREADS * ROUNDS);
    });
}

#[test]
fn who_only_tries_neither_waits_nor_gets_in_beside_another() {
    check(|| {
        let shared = Arc::new((Lock::new(()), AtomicI32::new(0)));
        let threads: Vec<_> = [true, false, true]
            .into_iter()
            .map(|tries| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let guard = if tries { shared.0.try_lock() } else { Some(shared.0.lock()) };
                    if guard.is_some() {
                        assert_eq!(shared.1.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
                        thread::yield_now();
                        shared.1.fetch_sub(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn who_takes_a_lock_that_was_seen_to_be_free_sees_what_was_done_before() {
    check(|| {
        let shared = Arc::new((Lock::new(()), AtomicU32::new(0), AtomicI32::new(0)));
        let taker = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            for _ in 0..ROUNDS {
                let guard = taker.0.lock();
                if taker.1.load(Ordering::SeqCst) == 0 {
                    taker.2.store(1, Ordering::SeqCst);
                    thread::yield_now();
                    taker.2.store(0, Ordering::SeqCst);
                }
                drop(guard);
            }
        });
        shared.1.store(1, Ordering::SeqCst);
        while !shared.0.is_free() {
            thread::yield_now();
        }
        assert_eq!(shared.2.load(Ordering::SeqCst), 0, "it goes on");
        thread::yield_now();
        assert_eq!(shared.2.load(Ordering::SeqCst), 0, "it has begun again");
        thread.join().unwrap();
    });
}
