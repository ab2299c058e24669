//! Visits pages by a rule that no policy finds out, with a prefetcher that knows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use farmem_hints::{Prefetcher, cold, is_present, pin, prefetch};

const PAGE_WORDS: usize = 512;
const PAGES: usize = 12_288;

fn next(page: usize) -> usize {
    (page * 365 + 211) % PAGES
}

fn main() -> Result<(), farmem_hints::Error> {
    let words: &'static [u64] = (0..PAGES * PAGE_WORDS).map(|at| at as u64).collect::<Vec<_>>().leak();
    let start = words.as_ptr().addr();
    let followed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&followed);
    let prefetcher = Prefetcher::register(
        move |fault| {
            let Some(mut page) = fault.address.checked_sub(start).map(|offset| offset / 8 / PAGE_WORDS)
            else {
                return;
            };
            for _ in 0..if page < PAGES { 32 } else { 0 } {
                page = next(page);
                let _ = prefetch(&words[page * PAGE_WORDS..(page + 1) * PAGE_WORDS]);
            }
            count.fetch_add(1, Ordering::Relaxed);
        },
        20,
    )?;
    // Where memory is short from the start a pager comes all the same, but after some milliseconds.
    if std::env::var_os("HINTS_HAVE_A_PAGER").is_some() {
        let began = Instant::now();
        while !is_present() && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let index: Vec<u64> = (0..PAGE_WORDS as u64 * 16).collect();
    let pin = pin(&index)?;
    let (mut page, mut sum) = (1, 0_u64);
    for _ in 0..4 * PAGES {
        sum = sum.wrapping_add(words[page * PAGE_WORDS..(page + 1) * PAGE_WORDS].iter().sum());
        page = next(page);
    }
    drop(pin);
    cold(words)?;
    drop(prefetcher);
    let has_followed = followed.load(Ordering::Relaxed) > 0;
    println!("{} {sum}", has_followed == is_present());
    Ok(())
}
