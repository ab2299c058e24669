//! What is measured of a connection, whoever is at its other end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use hdrhistogram::Histogram;

use super::report::{Latency, Side};

/// Longest latency that is told from longer ones, in nanoseconds, and digits that all are kept with.
const LONGEST_NS: u64 = 60_000_000_000;
const DIGITS: u8 = 3;
/// What the load has come at a time, between two looks whether it is to end.
const LOAD_BYTES: usize = 4 << 20;

/// This side of a connection whose other side has pages.
pub(super) trait End: Send {
    /// Has one page come while nothing else is under way; returns how long it took.
    fn fetch(&mut self) -> Result<Duration>;
    /// Sends so many bytes, and waits until they are there.
    fn send(&mut self, bytes: usize) -> Result<()>;
    /// Waits until so many bytes have come.
    fn receive(&mut self, bytes: usize) -> Result<()>;
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    /// Pages, one after the other.
    pub(super) fetches: u32,
    /// The longest time that they may take; under load, how long it goes on.
    pub(super) at_most: Duration,
    /// Bytes in each direction.
    pub(super) bytes: usize,
}

/// Measures one connection; `load` is another one to the same other side, by the same way.
pub(super) fn measure(end: &mut dyn End, load: &mut dyn End, amount: Amount) -> Result<Side> {
    let bytes = amount.bytes;
    Ok(Side {
        page: latency(end, amount)?,
        // All of the time: a moment is soon over, and the load may have had no processor in it.
        page_under_load: under_load(load, || latency(end, Amount { fetches: u32::MAX, ..amount }))?,
        write_bytes_per_second: rate(bytes, || end.send(bytes))?,
        read_bytes_per_second: rate(bytes, || end.receive(bytes))?,
    })
}

fn latency(end: &mut dyn End, amount: Amount) -> Result<Latency> {
    let mut nanoseconds = Histogram::<u64>::new_with_max(LONGEST_NS, DIGITS)?;
    let deadline = Instant::now() + amount.at_most;
    for _ in 0..amount.fetches {
        nanoseconds.saturating_record(end.fetch()?.as_nanos() as u64);
        if Instant::now() >= deadline {
            break;
        }
    }
    let us = |quantile| nanoseconds.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Latency { p50_us: us(0.5), p99_us: us(0.99) })
}

fn rate(bytes: usize, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let began = Instant::now();
    work()?;
    Ok(bytes as f64 / began.elapsed().as_secs_f64())
}

/// Does `work` while `load` receives as much as comes, and has begun to.
fn under_load<T>(load: &mut dyn End, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let is_over = AtomicBool::new(false);
    let (begun, has_begun) = channel();
    thread::scope(|scope| {
        let is_over = &is_over;
        let loading = scope.spawn(move || -> Result<()> {
            while !is_over.load(Ordering::Relaxed) {
                load.receive(LOAD_BYTES)?;
                // Only the first one is waited for.
                let _ = begun.send(());
            }
            Ok(())
        });
        // An error says that the load has failed: then joining tells why.
        let result = has_begun.recv().map(|()| work());
        is_over.store(true, Ordering::Relaxed);
        loading.join().map_err(|_| anyhow!("the load has panicked"))??;
        result?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use std::sync::atomic::AtomicUsize;

    /// Counts what has come; fails when it has no more.
    struct Counted<'a> {
        come: &'a AtomicUsize,
        most: usize,
    }

    impl End for Counted<'_> {
        fn fetch(&mut self) -> Result<Duration> {
            Ok(Duration::ZERO)
        }
        fn send(&mut self, _: usize) -> Result<()> {
            Ok(())
        }
        fn receive(&mut self, bytes: usize) -> Result<()> {
            if self.come.fetch_add(bytes, Ordering::Relaxed) + bytes > self.most {
                bail!("no more comes");
            }
            Ok(())
        }
    }

    #[test]
    fn work_begins_when_the_load_is_there() {
        let come = AtomicUsize::new(0);
        let seen =
            under_load(&mut Counted { come: &come, most: usize::MAX }, || Ok(come.load(Ordering::Relaxed)));
        assert!(seen.unwrap() >= LOAD_BYTES);
    }

    #[test]
    fn a_load_that_fails_is_an_error() {
        let come = AtomicUsize::new(0);
        let result = under_load(&mut Counted { come: &come, most: 0 }, || Ok(()));
        assert_eq!(result.unwrap_err().to_string(), "no more comes");
    }
}
