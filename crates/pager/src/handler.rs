//! Threads that serve faults.
//!
//! A fault wakes whoever waits at the userfaultfd. Waking a thread on another processor is dear (an idle one takes
//! tens of microseconds to wake), so a handler stays on the processor where faults happen: one handler follows a
//! program with one faulting thread; a second and further ones are armed while several threads fault.

use core::sync::atomic::Ordering;

use farmem_policy::Fault;
use farmem_sys::process::Threads;
use farmem_sys::{affinity, memory, thread};
use farmem_telemetry::Counter;

use crate::engine::{BATCH_PAGES, Engine};
use crate::events::Received;
use crate::serve::{Desk, Served};

/// Faults that wait for the address space to settle. More threads than these would be woken to fault again.
const DEFERRED: usize = 256;
/// Faults of one thread after which its processor is looked up again.
const FOLLOW_FAULTS: u32 = 64;
/// How often a handler looks around when nothing happens.
const IDLE_NS: u64 = 500_000_000;
/// How often while children are served.
const CHILDREN_NS: u64 = 2_000_000;
/// How long to wait for a program's thread to get on with the change that it was let go for.
const SETTLE_NS: u64 = 20_000;

struct Handler {
    engine: &'static Engine,
    party: usize,
    desk: Desk,
    deferred: [Option<Fault>; DEFERRED],
    deferred_count: usize,
    threads: Option<Threads>,
    last_thread: u32,
    since_look: u32,
    processor: Option<u32>,
}

/// Starts the handler of that number.
///
/// # Errors
/// No memory, or no thread.
pub(crate) fn start(engine: &'static Engine, party: usize) -> Result<(), farmem_sys::Errno> {
    let handler = memory::leak(Handler {
        engine,
        party,
        desk: Desk { content: memory::table_mut(BATCH_PAGES)?, reader: engine.vault.reader() },
        deferred: [None; DEFERRED],
        deferred_count: 0,
        threads: Threads::open().ok(),
        last_thread: 0,
        since_look: 0,
        processor: None,
    })?;
    thread::spawn_with(run, handler)?;
    Ok(())
}

fn run(handler: &'static mut Handler) -> ! {
    thread::name(c"farmem-fault");
    loop {
        handler.turn();
    }
}

impl Handler {
    /// Waits for messages and deals with them.
    fn turn(&mut self) {
        let engine = self.engine;
        if self.deferred_count == 0 {
            let timeout = if engine.children.is_empty() { IDLE_NS } else { CHILDREN_NS };
            let (children, count) = engine.children.descriptors();
            engine.uffd.wait(&children[..count], Some(timeout));
        }
        let received = engine.receive(&engine.gate.read());
        match received {
            Received::Fault(fault) => self.fault(fault),
            Received::Event => {}
            Received::Nothing if self.deferred_count > 0 => thread::sleep(SETTLE_NS),
            Received::Nothing => {}
        }
        if self.deferred_count > 0 {
            self.retry();
        }
        if !engine.children.is_empty() {
            engine.serve_children(&mut self.desk);
        }
    }

    fn fault(&mut self, fault: Fault) {
        let started_ns = thread::now_ns();
        self.follow(fault.thread);
        self.engine.slot.add(Counter::Faults, 1);
        if self.serve(fault) == Served::Again {
            self.defer(fault);
        }
        let took_ns = thread::now_ns() - started_ns;
        self.engine.slot.fault_latency().record(took_ns);
        self.engine.slot.add(Counter::StallNs, took_ns);
    }

    fn serve(&mut self, fault: Fault) -> Served {
        if self.engine.is_far_over() {
            self.engine.wait_for_room(self.party);
        }
        let change = self.engine.gate.change(self.party);
        self.engine.serve(&change, &mut self.desk, fault)
    }

    fn defer(&mut self, fault: Fault) {
        self.engine.slot.add(Counter::Retries, 1);
        match self.deferred.get_mut(self.deferred_count) {
            Some(place) => {
                *place = Some(fault);
                self.deferred_count += 1;
            }
            None => self.engine.wake_page(fault.page),
        }
    }

    fn retry(&mut self) {
        let count = core::mem::take(&mut self.deferred_count);
        for at in 0..count {
            if let Some(fault) = self.deferred[at].take()
                && self.serve(fault) == Served::Again
            {
                self.deferred[self.deferred_count] = Some(fault);
                self.deferred_count += 1;
            }
        }
    }

    /// Stays on the processor of the thread that faults most.
    fn follow(&mut self, faulting: u32) {
        if faulting != self.last_thread {
            self.last_thread = faulting;
            self.since_look = self.since_look.max(FOLLOW_FAULTS - 8);
        }
        self.since_look += 1;
        if self.since_look < FOLLOW_FAULTS {
            return;
        }
        self.since_look = 0;
        if self.engine.armed.load(Ordering::Relaxed) > 1 {
            return;
        }
        let processor = self.threads.as_ref().and_then(|threads| threads.processor(faulting));
        if let Some(processor) = processor
            && self.processor != Some(processor)
        {
            affinity::stay_on(processor);
            self.processor = Some(processor);
        }
    }
}
