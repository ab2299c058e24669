//! A program whose threads read pages at random, next to a thread that has memory of its own: the bystander.
//! It shows whether threads that wait for pages of memory nodes hold up each other, and those that want
//! nothing of the nodes.
//!
//! It does what it is told on standard input, and tells on standard output what came of it.

mod protocol;

use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use farmem_page::{ByteCount, PAGE_BYTES};
use memmap2::MmapMut;
use nix::sys::resource::{UsageWho, getrusage};
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use zerocopy::FromBytes;

pub use protocol::{Event, Order, Pace, Steps};

/// A page that takes longer came from a memory node, if the node is twice as far away.
pub(crate) const AWAITED: Duration = Duration::from_millis(1);

const PAGE_WORDS: usize = PAGE_BYTES / size_of::<u64>();
/// Words of a page of the bystander: what it holds, and how often it was written.
const WORD_IDENTITY: usize = 0;
const WORD_WRITES: usize = 1;
/// How often the bystander's pages are gone through at most until hardly any of them is on a node.
const PASSES: u32 = 10;
/// Hardly any is one of so many at most.
const CLEAN_PART: usize = 64;
/// Passes in a row that must find that: while one goes on, what it has found in the pool may leave.
const CLEAN_PASSES: u32 = 2;
/// Memory that the bystander maps, touches and unmaps in each step.
const STEP_BYTES: usize = 64 << 10;
/// Pages of its own that it reads in each step.
const STEP_READS: usize = 4;
/// Between two steps: the processors are for those who wait, too.
const STEP_PAUSE: Duration = Duration::from_micros(200);
/// How long threads read before the bystander takes its first step: all of them wait for the node by then.
pub(crate) const HEAD_START: Duration = Duration::from_millis(200);

/// How much memory the program fills.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What threads read. It doesn't compress.
    pub data: ByteCount,
    /// What the bystander reads. Its pages are zeros but for a word.
    pub own: ByteCount,
}

/// Runs the program in this process until its standard input ends.
///
/// # Errors
/// When there is no memory, when it is told what it doesn't understand, and when memory was not what had been
/// written.
pub fn run(options: &Options) -> Result<()> {
    let (mut data, mut own) = (map(options.data)?, map(options.own)?);
    let data = <[AtomicU64]>::mut_from_bytes(&mut data).map_err(|_| anyhow!("unaligned memory"))?;
    let own = <[AtomicU64]>::mut_from_bytes(&mut own).map_err(|_| anyhow!("unaligned memory"))?;
    let program = Program::new(data, own);
    program.fill();
    tell(&Event::Filled)?;
    let mut home: Vec<u32> = (0..own.len() / PAGE_WORDS).map(|page| page as u32).collect();
    for line in io::stdin().lock().lines() {
        let line = line?;
        match serde_json::from_str(&line).with_context(|| format!("not an order: {line}"))? {
            Order::Read { threads, milliseconds } => {
                let wait = || {
                    thread::sleep(Duration::from_millis(milliseconds));
                    Ok(())
                };
                tell(&Event::Read(program.read_meanwhile(threads, wait)?))?;
            }
            Order::Settle => {
                home = program.settle();
                let pages = (own.len() / PAGE_WORDS) as u64;
                tell(&Event::Settled { pages, home: home.len() as u64 })?;
            }
            Order::Stand { threads, milliseconds } => {
                let stand =
                    || tell(&Event::Stood(program.stand(Duration::from_millis(milliseconds), &home)?));
                tell(&Event::Read(program.read_meanwhile(threads, stand)?))?;
            }
        }
    }
    let mismatches = program.mismatches.load(Ordering::Relaxed) + program.verify();
    tell(&Event::Done { mismatches })?;
    ensure!(mismatches == 0, "{mismatches} pages did not hold what was written to them");
    Ok(())
}

fn map(size: ByteCount) -> Result<MmapMut> {
    let pages = usize::try_from(size.pages().get())?;
    ensure!(pages > 0, "there must be a page at least");
    MmapMut::map_anon(pages * PAGE_BYTES).with_context(|| format!("cannot map {} bytes", size.get()))
}

/// What a word of the data holds: different in every word, so that it doesn't compress.
fn content(word: usize) -> u64 {
    let value = (word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    (value ^ value >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

struct Program<'a> {
    data: &'a [AtomicU64],
    own: &'a [AtomicU64],
    mismatches: AtomicU64,
}

impl<'a> Program<'a> {
    fn new(data: &'a [AtomicU64], own: &'a [AtomicU64]) -> Self {
        Self { data, own, mismatches: AtomicU64::new(0) }
    }

    fn fill(&self) {
        self.data.iter().enumerate().for_each(|(word, to)| to.store(content(word), Ordering::Relaxed));
        let pages = self.own.chunks_exact(PAGE_WORDS).enumerate();
        pages.for_each(|(page, words)| words[WORD_IDENTITY].store(content(page), Ordering::Relaxed));
    }

    /// Brings the bystander's pages home: goes through them, and writes to each that came from a node, until
    /// hardly any comes from there. A page that was written is stored again when it leaves, and so lies in
    /// the pool. Returns those that the last pass found at home, in no order; on a busy machine some others
    /// only seemed to come from afar.
    fn settle(&self) -> Vec<u32> {
        // First in order: most of them come ahead of the thread then.
        for words in self.own.chunks_exact(PAGE_WORDS) {
            words[WORD_WRITES].fetch_add(1, Ordering::Relaxed);
        }
        // Then in an order without any pattern, in which nothing comes before it is asked for.
        let mut pages: Vec<u32> = (0..self.own.len() / PAGE_WORDS).map(|page| page as u32).collect();
        pages.shuffle(&mut SmallRng::seed_from_u64(0));
        let mut home = Vec::with_capacity(pages.len());
        let mut clean_passes = 0;
        for _ in 0..PASSES {
            home.clear();
            for &page in &pages {
                let began = Instant::now();
                let words = &self.own[page as usize * PAGE_WORDS..][..PAGE_WORDS];
                black_box(words[WORD_IDENTITY].load(Ordering::Relaxed));
                if began.elapsed() < AWAITED {
                    home.push(page);
                } else {
                    words[WORD_WRITES].fetch_add(1, Ordering::Relaxed);
                }
            }
            let is_clean = pages.len() - home.len() <= pages.len() / CLEAN_PART;
            clean_passes = if is_clean { clean_passes + 1 } else { 0 };
            if clean_passes == CLEAN_PASSES {
                break;
            }
            // What leaves the pool now has left it before the next pass.
            thread::sleep(HEAD_START);
        }
        home
    }

    /// Pages that don't hold every byte that was written to them.
    fn verify(&self) -> u64 {
        let of_own = |word: usize| match word % PAGE_WORDS {
            WORD_IDENTITY => Some(content(word / PAGE_WORDS)),
            // Nobody counts the writes.
            WORD_WRITES => None,
            _ => Some(0),
        };
        wrong_pages(self.data, |word| Some(content(word))) + wrong_pages(self.own, of_own)
    }

    /// Reads with so many threads while `work` is done.
    fn read_meanwhile(&self, threads: u32, work: impl FnOnce() -> Result<()>) -> Result<Pace> {
        let ends = AtomicBool::new(false);
        let began = Instant::now();
        let counts = thread::scope(|scope| {
            let readers: Vec<_> = (0..threads)
                .map(|number| {
                    let ends = &ends;
                    thread::Builder::new().spawn_scoped(scope, move || self.read(number, ends))
                })
                .collect();
            let worked = work();
            ends.store(true, Ordering::Relaxed);
            let counts = readers.into_iter().map(|reader| match reader?.join() {
                Ok(counts) => Ok(counts),
                Err(_) => bail!("a thread that reads has panicked"),
            });
            let counts = counts.collect::<Result<Vec<[u64; 2]>>>();
            worked.and(counts)
        })?;
        let sum = |which: usize| counts.iter().map(|counts| counts[which]).sum();
        Ok(Pace { threads, seconds: began.elapsed().as_secs_f64(), accesses: sum(0), awaited: sum(1) })
    }

    /// Reads pages at random until it is to end: how many, and how many of them came from a node.
    fn read(&self, number: u32, ends: &AtomicBool) -> [u64; 2] {
        let mut random = SmallRng::seed_from_u64(u64::from(number));
        let [mut accesses, mut awaited] = [0; 2];
        while !ends.load(Ordering::Relaxed) {
            let word = random.random_range(0..self.data.len());
            let began = Instant::now();
            let found = black_box(self.data[word].load(Ordering::Relaxed));
            awaited += u64::from(began.elapsed() >= AWAITED);
            accesses += 1;
            if found != content(word) {
                self.mismatches.fetch_add(1, Ordering::Relaxed);
            }
        }
        [accesses, awaited]
    }

    /// Takes the bystander's steps for so long; it reads these of its pages.
    fn stand(&self, time: Duration, home: &[u32]) -> Result<Steps> {
        thread::sleep(HEAD_START);
        let mut random = SmallRng::seed_from_u64(u64::MAX);
        let (mut steps, mut longest, mut faults) = (0, Duration::ZERO, 0);
        let stood = Instant::now();
        while stood.elapsed() < time {
            let began = Instant::now();
            self.use_new_memory()?;
            let before = faults_of_this_thread()?;
            self.read_own(&mut random, home);
            faults += faults_of_this_thread()? - before;
            longest = longest.max(began.elapsed());
            steps += 1;
            thread::sleep(STEP_PAUSE);
        }
        Ok(Steps { steps, longest_ms: longest.as_secs_f64() * 1e3, faults })
    }

    fn use_new_memory(&self) -> Result<()> {
        let mut memory = MmapMut::map_anon(STEP_BYTES).context("cannot map memory for a step")?;
        for page in memory.chunks_exact_mut(PAGE_BYTES) {
            if black_box(page[0]) != 0 {
                self.mismatches.fetch_add(1, Ordering::Relaxed);
            }
            page[0] = 1;
        }
        Ok(())
    }

    fn read_own(&self, random: &mut SmallRng, home: &[u32]) {
        for _ in 0..STEP_READS {
            let Some(&page) = home.choose(random) else { return };
            let page = page as usize;
            if self.own[page * PAGE_WORDS + WORD_IDENTITY].load(Ordering::Relaxed) != content(page) {
                self.mismatches.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn wrong_pages(memory: &[AtomicU64], expected: impl Fn(usize) -> Option<u64>) -> u64 {
    let is_wrong = |(page, words): (usize, &[AtomicU64])| {
        let word_is_wrong = |(at, word): (usize, &AtomicU64)| {
            expected(page * PAGE_WORDS + at).is_some_and(|expected| word.load(Ordering::Relaxed) != expected)
        };
        u64::from(words.iter().enumerate().any(word_is_wrong))
    };
    memory.chunks_exact(PAGE_WORDS).enumerate().map(is_wrong).sum()
}

fn faults_of_this_thread() -> Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
    Ok((usage.minor_page_faults() + usage.major_page_faults()) as u64)
}

fn tell(event: &Event) -> Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(event)?)?;
    Ok(output.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn a_page_that_holds_something_else_is_found() {
        let (data, own) = (words(4 * PAGE_WORDS), words(2 * PAGE_WORDS));
        let program = Program::new(&data, &own);
        program.fill();
        assert_eq!(program.verify(), 0);

        data[PAGE_WORDS].store(0, Ordering::Relaxed);
        own[2].store(1, Ordering::Relaxed);

        assert_eq!(program.verify(), 2);
    }

    #[test]
    fn threads_read_until_the_work_is_done_and_the_bystander_takes_steps() {
        let (data, own) = (words(4 * PAGE_WORDS), words(2 * PAGE_WORDS));
        let program = Program::new(&data, &own);
        program.fill();

        let mut steps = None;
        let stand = || {
            steps = Some(program.stand(Duration::from_millis(5), &[0, 1])?);
            Ok(())
        };
        let pace = program.read_meanwhile(3, stand).unwrap();

        assert_eq!(pace.threads, 3);
        assert!(pace.accesses >= 3 && pace.seconds > 0.0, "{pace:?}");
        assert!(steps.is_some_and(|steps| steps.steps > 0), "{steps:?}");
        assert_eq!(program.mismatches.load(Ordering::Relaxed), 0);
    }
}
