//! The least that a pager does which serves faults from a thread of its own: it reads the message, and copies
//! the page in. Far memory is one page that is always at hand; nothing leaves.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{anyhow, ensure};
use farmem_page::PAGE_BYTES;
use farmem_sys::affinity::stay_on;
use farmem_sys::uffd::{Message, Uffd, Waiters};

use super::primitives::{each, new_memory, registered};
use super::wake::Cores;

/// How soon the handler sees that it is to end.
const LOOK_NS: u64 = 5_000_000;
/// Odd, and far from a neighbour: each page is visited once.
const STRIDE: usize = 1_031;

/// The time of a touch of a missing page.
pub(super) fn fault(count: usize, cores: Cores) -> anyhow::Result<f64> {
    ensure!(count.is_power_of_two(), "pages are visited in an order for powers of two");
    let processors = cores.pair()?;
    let memory = new_memory(count)?;
    let (uffd, range) = registered(&memory)?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let handler = scope.spawn(|| {
            stay_on(processors[1]);
            let served = serve(&uffd, &over);
            if served.is_err() {
                // A fault that nobody answers would hold the other thread for ever.
                let _ = uffd.unregister(range);
            }
            served
        });
        let program = scope.spawn(|| {
            stay_on(processors[0]);
            let began = Instant::now();
            for step in 0..count {
                black_box(memory[(step * STRIDE) % count * PAGE_BYTES]);
            }
            each(began, count)
        });
        let time = program.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        over.store(true, Ordering::Relaxed);
        let served = handler.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        ensure!(served >= count, "{served} faults for {count} pages");
        Ok(time)
    })
}

/// Answers faults until `over`, and counts them.
fn serve(uffd: &Uffd, over: &AtomicBool) -> anyhow::Result<usize> {
    let content = [1; PAGE_BYTES];
    let mut served = 0;
    while !over.load(Ordering::Relaxed) {
        uffd.wait(&[], Some(LOOK_NS));
        while let Some(message) = uffd.read().map_err(|error| anyhow!("no messages: {error:?}"))? {
            let Message::Fault { address, .. } = message else { continue };
            let progress = uffd.copy_in(address.page(), &content, Waiters::Wake);
            ensure!(progress.stopped.is_none(), "the kernel did not copy: {:?}", progress.stopped);
            served += 1;
        }
    }
    Ok(served)
}
