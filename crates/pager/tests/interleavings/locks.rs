//! The runtime's lock.

use std::sync::atomic::{AtomicI32, Ordering};

use shuttle::sync::Arc;
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
