//! The program that is measured: it fills memory, visits its pages in a pattern, and checks every byte at the
//! end.
//!
//! First touches are not measured: the data is filled, and a round of the pattern run, before the first
//! measured round. What the workload itself needs besides the data (the order of visits, counts of writes) is
//! small and hot.

mod content;
mod objects;
mod pattern;
mod protocol;

use std::collections::VecDeque;
use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use farmem_page::ByteCount;
use farmem_sys::shared;
use memmap2::MmapMut;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use procfs::process::Process;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use zerocopy::FromBytes;

pub use content::Compressibility;
use content::{Content, PAGE_WORDS, WORD_IDENTITY, WORD_NEXT, WORD_WRITES, identity};
use objects::Objects;
pub use pattern::Pattern;
use pattern::{Share, cycle};
pub use protocol::{Event, Outcome, Round};

/// What the workload does.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much memory it fills.
    pub data: ByteCount,
    /// The order of accesses.
    pub pattern: Pattern,
    /// Threads that access the data.
    pub threads: u32,
    /// How well the data compresses.
    pub compressibility: Compressibility,
    /// Accesses of each round, over all threads; `None` for the pattern's own number.
    pub accesses: Option<u64>,
    /// Rounds before the measured ones.
    pub warm_up: u32,
    /// Measured rounds.
    pub rounds: u32,
    /// Whether rounds go on until standard input ends, and each event is told. The outcome is that of the
    /// last ones, as many as `rounds` says.
    pub until_end: bool,
    /// Whether one more thread is kept busy that touches no data.
    pub sibling: bool,
    /// Whether the data is memory that processes may share.
    pub is_shared: bool,
    /// Whether to tell each event, and to wait for a line on standard input before going on.
    pub paced: bool,
}

/// Runs the workload in this process; prints events, the last of them with the outcome, on standard output.
///
/// # Errors
/// When there is no memory for the data, when standard input ends while a line is awaited, and when the data
/// was not what had been written.
pub fn run(options: &Options) -> anyhow::Result<()> {
    tell(options, &Event::Started { process: std::process::id() })?;
    let pages = usize::try_from(options.data.pages().get())?;
    ensure!(pages >= 2, "the data must be at least two pages");
    ensure!(u32::try_from(pages).is_ok(), "the data must be less than 16 TiB");
    let mut workload = Workload::prepare(options, pages);
    let (mut private, bytes) = (None, pages * PAGE_WORDS * size_of::<u64>());
    let no_memory = || format!("cannot map {} bytes of memory", options.data.get());
    let data: &[AtomicU64] = if options.is_shared {
        shared::words(pages * PAGE_WORDS).with_context(no_memory)?
    } else {
        let memory = private.insert(MmapMut::map_anon(bytes).with_context(no_memory)?);
        <[AtomicU64]>::mut_from_bytes(memory).map_err(|_| anyhow::anyhow!("unaligned memory"))?
    };
    workload.objects = Objects::of(options.pattern, data.as_ptr().addr() as u64, pages);
    let next = if options.pattern == Pattern::Chase {
        cycle(pages, &mut SmallRng::seed_from_u64(CYCLE_SEED))
    } else {
        Vec::new()
    };
    workload.fill(data, &next);
    drop(next);
    tell(options, &Event::Filled)?;
    let sibling_ends = AtomicBool::new(false);
    let rounds = thread::scope(|scope| {
        if options.sibling {
            scope.spawn(|| spin(&sibling_ends));
        }
        let rounds = workload.warm_up_and_measure(data, options);
        sibling_ends.store(true, Ordering::Relaxed);
        rounds
    })?;
    let mismatches = workload.mismatches.load(Ordering::Relaxed) + workload.verify(data);
    let outcome = Outcome {
        accesses: workload.accesses() as u64,
        pages: pages as u64,
        rounds,
        mismatches,
        resident_peak_bytes: resident_peak_bytes(),
    };
    print(&Event::Done(outcome))?;
    ensure!(mismatches == 0, "{mismatches} pages did not hold what was written to them");
    Ok(())
}

/// Seed of the order of a pointer chase; the same in filling and in checking.
const CYCLE_SEED: u64 = 0x5eed;
/// The most visits that are planned ahead for a thread; longer rounds go through them again. Keeps the plan
/// small compared with the data.
const PLAN_VISITS_MAXIMUM: usize = 1 << 16;

struct Workload {
    content: Content,
    pattern: Pattern,
    pages: usize,
    threads: Vec<ThreadPlan>,
    /// What the pages hold in patterns that follow references.
    objects: Option<Objects>,
    /// Writes to each page; empty unless the pattern writes.
    writes: Vec<AtomicU32>,
    /// Visits that found a page of another identity.
    mismatches: AtomicU64,
}

/// What one thread does in a round.
struct ThreadPlan {
    random: SmallRng,
    visits: Vec<u32>,
    /// How often the visits are gone through in a round.
    passes: usize,
    /// Visits of all rounds so far; in a pointer chase the page to go on from.
    position: usize,
    /// Addresses of objects to visit, the next one last.
    path: Vec<u64>,
}

impl Workload {
    fn prepare(options: &Options, pages: usize) -> Self {
        let thread_count = options.threads as usize;
        let accesses =
            options.accesses.map_or_else(|| options.pattern.accesses(pages), |accesses| accesses as usize);
        let for_each = (accesses / thread_count).max(1);
        let passes = for_each.div_ceil(PLAN_VISITS_MAXIMUM.min(pages));
        let threads = (0..thread_count)
            .map(|thread| ThreadPlan {
                random: SmallRng::seed_from_u64(thread as u64),
                visits: vec![0; for_each / passes],
                passes,
                position: if options.pattern == Pattern::Chase {
                    Share { pages, thread, threads: thread_count }.part().0
                } else {
                    0
                },
                path: Vec::new(),
            })
            .collect();
        let written = if options.pattern == Pattern::RandomWrite { pages } else { 0 };
        Self {
            content: Content { compressibility: options.compressibility },
            pattern: options.pattern,
            pages,
            threads,
            objects: None,
            writes: (0..written).map(|_| AtomicU32::new(0)).collect(),
            mismatches: AtomicU64::new(0),
        }
    }

    /// Accesses of a round, over all threads.
    fn accesses(&self) -> usize {
        self.threads.iter().map(|plan| plan.visits.len() * plan.passes).sum()
    }

    fn fill(&self, data: &[AtomicU64], next: &[u32]) {
        let mut words = [0; PAGE_WORDS];
        for (page, target) in data.chunks_exact(PAGE_WORDS).enumerate() {
            self.generate(page, next, &mut words);
            for (to, from) in target.iter().zip(words) {
                to.store(from, Ordering::Relaxed);
            }
        }
    }

    /// What page `page` holds before any write.
    fn generate(&self, page: usize, next: &[u32], words: &mut [u64; PAGE_WORDS]) {
        self.content.generate(page, next.get(page).map_or(0, |&next| u64::from(next)), words);
        if let Some(objects) = self.objects {
            objects.overlay(page, words);
        }
    }

    fn warm_up_and_measure(&mut self, data: &[AtomicU64], options: &Options) -> anyhow::Result<Vec<Round>> {
        for _ in 0..options.warm_up {
            self.round(data)?;
        }
        tell(options, &Event::Warm)?;
        if !options.until_end {
            return (0..options.rounds).map(|_| self.round(data)).collect();
        }
        let is_over = end_of_input();
        let mut rounds = VecDeque::new();
        loop {
            rounds.push_back(self.round(data)?);
            if rounds.len() > options.rounds as usize {
                rounds.pop_front();
            }
            if is_over.load(Ordering::Relaxed) {
                return Ok(rounds.into());
            }
        }
    }

    fn round(&mut self, data: &[AtomicU64]) -> anyhow::Result<Round> {
        let accesses = self.accesses();
        let thread_count = self.threads.len();
        for (thread, plan) in self.threads.iter_mut().enumerate() {
            let share = Share { pages: self.pages, thread, threads: thread_count };
            self.pattern.plan(&mut plan.visits, share, plan.position, &mut plan.random);
        }
        let barrier = Barrier::new(thread_count);
        let (pattern, writes, mismatches) = (self.pattern, self.writes.as_slice(), &self.mismatches);
        let objects = self.objects;
        let before = getrusage(UsageWho::RUSAGE_SELF)?;
        let spans = thread::scope(|scope| {
            let running: Vec<_> = self
                .threads
                .iter_mut()
                .map(|plan| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        let start = Instant::now();
                        let wrong = match objects {
                            Some(objects) => plan.visit_objects(pattern, data, objects),
                            None => plan.visit_all(pattern, data, writes),
                        };
                        mismatches.fetch_add(wrong, Ordering::Relaxed);
                        (start, Instant::now())
                    })
                })
                .collect();
            running.into_iter().map(|thread| thread.join().ok()).collect::<Option<Vec<_>>>()
        });
        let after = getrusage(UsageWho::RUSAGE_SELF)?;
        let Some(spans) = spans else { bail!("a thread of the workload panicked") };
        let start = spans.iter().map(|span| span.0).min().context("no thread")?;
        let end = spans.iter().map(|span| span.1).max().context("no thread")?;
        Ok(Round {
            nanoseconds_per_access: (end - start).as_nanos() as f64 / accesses as f64,
            major_faults: (after.major_page_faults() - before.major_page_faults()) as u64,
            minor_faults: (after.minor_page_faults() - before.minor_page_faults()) as u64,
            cpu_seconds: cpu_seconds(&after) - cpu_seconds(&before),
        })
    }

    /// Pages that don't hold every byte that was written to them.
    fn verify(&self, data: &[AtomicU64]) -> u64 {
        let next = if self.pattern == Pattern::Chase {
            cycle(self.pages, &mut SmallRng::seed_from_u64(CYCLE_SEED))
        } else {
            Vec::new()
        };
        let mut words = [0; PAGE_WORDS];
        let mut wrong = 0;
        for (page, found) in data.chunks_exact(PAGE_WORDS).enumerate() {
            self.generate(page, &next, &mut words);
            if let Some(count) = self.writes.get(page) {
                words[WORD_WRITES] = u64::from(count.load(Ordering::Relaxed));
            }
            wrong += u64::from(
                !found.iter().zip(words).all(|(found, word)| found.load(Ordering::Relaxed) == word),
            );
        }
        wrong
    }
}

impl ThreadPlan {
    /// Visits as planned; returns how many pages were not what they should be.
    fn visit_all(&mut self, pattern: Pattern, data: &[AtomicU64], writes: &[AtomicU32]) -> u64 {
        let mut wrong = 0;
        for _ in 0..self.passes {
            match pattern {
                Pattern::Chase => {
                    for _ in 0..self.visits.len() {
                        let page = self.position;
                        wrong += u64::from(read(data, page, WORD_IDENTITY) != identity(page));
                        // A wrong page must not lead out of the data.
                        self.position = read(data, page, WORD_NEXT) as usize % (data.len() / PAGE_WORDS);
                    }
                }
                Pattern::RandomWrite => {
                    for &page in &self.visits {
                        let page = page as usize;
                        data[page * PAGE_WORDS + WORD_WRITES].fetch_add(1, Ordering::Relaxed);
                        wrong += u64::from(read(data, page, WORD_IDENTITY) != identity(page));
                        writes[page].fetch_add(1, Ordering::Relaxed);
                    }
                }
                _ => {
                    for &page in &self.visits {
                        let page = page as usize;
                        wrong += u64::from(read(data, page, WORD_IDENTITY) != identity(page));
                    }
                }
            }
        }
        if pattern != Pattern::Chase {
            self.position += self.visits.len();
        }
        black_box(wrong)
    }
}

impl ThreadPlan {
    /// Visits as many objects as are planned; returns how many were not what they should be.
    fn visit_objects(&mut self, pattern: Pattern, data: &[AtomicU64], objects: Objects) -> u64 {
        let (identity_word, references) = Objects::words();
        let mut wrong = 0;
        for _ in 0..self.visits.len() * self.passes {
            let address = self.path.pop().unwrap_or_else(|| objects.start());
            let at = objects.position(address);
            let word = |word: usize| data[at + word].load(Ordering::Relaxed);
            wrong += u64::from(!objects.is_right(address, word(identity_word)));
            let [first, second] = references.map(word);
            let next = match pattern {
                Pattern::Search if self.random.random() => [0, second],
                Pattern::Search => [0, first],
                _ => [second, first],
            };
            self.path.extend(next.into_iter().filter(|&address| address != 0));
        }
        black_box(wrong)
    }
}

fn read(data: &[AtomicU64], page: usize, word: usize) -> u64 {
    data[page * PAGE_WORDS + word].load(Ordering::Relaxed)
}

/// Keeps a processor busy in user mode, without touching memory, until told to end.
fn spin(ends: &AtomicBool) {
    let mut state = 1_u64;
    while !ends.load(Ordering::Relaxed) {
        for _ in 0..1000 {
            state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

fn cpu_seconds(usage: &Usage) -> f64 {
    (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6
}

fn resident_peak_bytes() -> u64 {
    let peak_kib = Process::myself().and_then(|this| this.status()).ok().and_then(|status| status.vmhwm);
    peak_kib.unwrap_or(0) * 1024
}

/// Set when standard input has ended.
fn end_of_input() -> Arc<AtomicBool> {
    let has_ended = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&has_ended);
    // It waits for as long as the workload goes on, and ends with the process.
    thread::spawn(move || {
        // Whoever can't be heard any more has gone, too.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        ends.store(true, Ordering::Relaxed);
    });
    has_ended
}

/// Tells an event, if somebody wants to know, and waits for leave to go on, if the workload is paced.
fn tell(options: &Options, event: &Event) -> anyhow::Result<()> {
    if options.paced || options.until_end {
        print(event)?;
    }
    if !options.paced {
        return Ok(());
    }
    let mut line = String::new();
    ensure!(io::stdin().lock().read_line(&mut line)? > 0, "nobody paces the workload any more");
    Ok(())
}

fn print(event: &Event) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(event)?)?;
    output.flush()?;
    Ok(())
}
