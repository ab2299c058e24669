//! What the supervisor looks at from time to time: peaks, memory that forked processes share, pagers that no longer move.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farmem_page::{ByteCount, PageCount};
use farmem_store::PoolUsage;
use farmem_sys::AsFd;
use farmem_telemetry::{Counter, Header, SlotState};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, poll};

use crate::application::Application;
use crate::processes::Processes;

/// Asking for shared memory takes the kernel a walk over the process's pages: at most this part of the time.
const SHARED_TIME_SHARE: u32 = 20;
const SHARED_LEAST: Duration = Duration::from_millis(50);
/// A pager that has faults to read and does nothing for so long will never do anything.
const STALL: Duration = Duration::from_secs(20);

/// The watch.
pub(crate) struct Watch {
    application: Application,
    shared_due: Instant,
    beats: HashMap<usize, (u64, Instant)>,
    usage_due: Instant,
    peak: PoolUsage,
}

impl Watch {
    pub(crate) fn new(application: Application) -> Self {
        Self {
            application,
            shared_due: Instant::now(),
            beats: HashMap::new(),
            usage_due: Instant::now(),
            peak: PoolUsage::default(),
        }
    }

    /// One look.
    pub(crate) fn look(&mut self, processes: &Processes) {
        self.note_peaks();
        self.note_usage();
        if processes.each().any(|process| process.is_forked()) && Instant::now() >= self.shared_due {
            let began = Instant::now();
            self.measure_shared(processes);
            self.shared_due = Instant::now() + (began.elapsed() * SHARED_TIME_SHARE).max(SHARED_LEAST);
        }
        self.end_stalled(processes);
    }

    fn note_peaks(&self) {
        let ledger = self.application.ledger;
        let managed = ledger
            .slots()
            .filter(|slot| slot.state() != SlotState::Free)
            .map(|slot| slot.get(Counter::ManagedPages))
            .sum::<u64>();
        ledger.header(Header::ResidentPeakPages).fetch_max(ledger.resident().get(), Ordering::Relaxed);
        ledger.header(Header::ManagedPeakPages).fetch_max(managed, Ordering::Relaxed);
    }

    /// The pool when it held most, from the looks at it so far.
    pub(crate) fn peak(&self) -> PoolUsage {
        self.peak
    }

    fn note_usage(&mut self) {
        if Instant::now() < self.usage_due {
            return;
        }
        let began = Instant::now();
        let now = self.application.pool.usage();
        if now.stored_pages >= self.peak.stored_pages {
            self.peak = now;
        }
        self.usage_due = Instant::now() + (began.elapsed() * SHARED_TIME_SHARE).max(SHARED_LEAST);
    }

    /// Memory that a fork has left shared is resident in both processes, but there once.
    fn measure_shared(&self, processes: &Processes) {
        for process in processes.each() {
            let Some(slot) = process.slot() else { continue };
            let is_relative =
                process.is_forked() || processes.each().any(|other| other.ancestors().any(|it| it == slot));
            let Some(view) = self.application.ledger.slot(slot).filter(|_| is_relative) else { continue };
            if let Some(shared) = shared_pages(process.process) {
                view.set_shared(shared);
            }
        }
    }

    fn end_stalled(&mut self, processes: &Processes) {
        for process in processes.each() {
            let (Some(slot), Some(uffd)) = (process.slot(), process.uffd()) else { continue };
            let Some(view) = self.application.ledger.slot(slot) else { continue };
            let now = (view.heartbeat(), Instant::now());
            let has_messages = {
                let mut set = [PollFd::from_borrowed_fd(uffd.as_fd(), PollFlags::IN)];
                let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
                poll(&mut set, Some(&none)).is_ok_and(|ready| ready > 0)
                    && set[0].revents().contains(PollFlags::IN)
            };
            let entry = self.beats.entry(slot).or_insert(now);
            if !has_messages || entry.0 != now.0 {
                *entry = now;
            } else if entry.1.elapsed() > STALL {
                eprintln!(
                    "farmem: the pager of process {} has stopped; the process can't go on and is ended",
                    process.process
                );
                let _ = nix::sys::signal::kill(Pid::from_raw(process.process as i32), Signal::SIGKILL);
                *entry = now;
            }
        }
    }
}

/// Pages of a process that count for another one: what is resident, less its proportional share.
fn shared_pages(process: u32) -> Option<PageCount> {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    let bytes = |name: &str| {
        text.lines().find_map(|line| {
            let kib: u64 = line.strip_prefix(name)?.trim().strip_suffix(" kB")?.trim().parse().ok()?;
            Some(kib << 10)
        })
    };
    let shared = bytes("Anonymous:")?.saturating_sub(bytes("Pss_Anon:")?);
    Some(ByteCount::new(shared).pages())
}
