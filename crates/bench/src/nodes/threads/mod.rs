//! One program with many threads and a node that is far away: how many pages a second 1, 4 and 16 threads
//! get, and how long a thread that wants nothing of the node is held up while all others wait for it.

mod program;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use farmem_page::ByteCount;
use serde::Serialize;

use crate::interrupt::Interrupt;
use crate::median::median;
use crate::member::Member;
use crate::readers::{AWAITED, Event, HEAD_START, Order, Pace, Steps};
use crate::relay::Relay;
use crate::target::Target;
use program::Program;

/// Threads that read at a time.
const THREADS: [u32; 3] = [1, 4, 16];
/// How many times the pages of one thread the others are to get.
const OF_ONE: [Option<f64>; 3] = [None, Some(3.6), Some(12.0)];
/// The longest step of a thread that wants nothing of the node.
const LONGEST_STEP_MS: f64 = 20.0;
/// Each way.
const DELAY: Duration = Duration::from_millis(1);
/// Local memory, and the bystander's own: data divided by it. What the bystander has is more than what is
/// local, so that some of it is always in the pool.
const LOCAL_PART: u64 = 4;
const OWN_PART: u64 = 2;
/// The pool: data divided by it, and at least so much that all that the bystander has fits in, compressed.
const POOL_PART: u64 = 8;
const LEAST_POOL: u64 = 8 << 20;
/// Threads read for so long before anything is measured.
const WARM_UP: Duration = Duration::from_secs(1);
/// The node is held back for so long at most: if it doesn't answer for five seconds, all that it holds is
/// lost.
const LONGEST_HOLD: Duration = Duration::from_millis(3500);
/// The bystander takes steps for so long at most.
const LONGEST_STAND: Duration = Duration::from_millis(2000);

// No page of the node comes sooner than what counts as awaited.
const _: () = assert!(AWAITED.as_nanos() < 2 * DELAY.as_nanos());
// What the bystander has is never all local.
const _: () = assert!(OWN_PART < LOCAL_PART);
// The bystander comes to the end of its steps before the node has to answer.
const _: () = assert!(LONGEST_STAND.as_nanos() + HEAD_START.as_nanos() < LONGEST_HOLD.as_nanos());

/// What threads got of a node that is far away, and what it cost others.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ThreadsFigure {
    /// Data that the threads read, none of which compresses. A quarter of it was local.
    pub data_bytes: u64,
    /// The way to the node and back.
    pub round_trip_ms: f64,
    /// Pages that threads got.
    pub rates: Vec<RateFigure>,
    /// The thread that wanted nothing of the node, while it was silent.
    pub bystander: BystanderFigure,
}

/// What some threads got.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct RateFigure {
    /// How many threads.
    pub threads: u32,
    /// Pages that they waited for and got, of all of them together.
    pub pages_per_second: f64,
    /// The same, of one thread's: the median over the repetitions, each with the one of the same repetition.
    pub of_one: f64,
}

/// What a thread did that wanted nothing of the node. Medians over the repetitions, where nothing else is
/// said.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct BystanderFigure {
    /// Threads that waited for the node meanwhile.
    pub threads: u32,
    /// Steps that it took: it maps 64 KiB, touches and unmaps them, and reads four pages of its own.
    pub steps: f64,
    /// Faults of these reads, which the pool answers.
    pub pool_faults: f64,
    /// The longest step.
    pub longest_step_ms: f64,
    /// The longest of all repetitions.
    pub longest_of_all_ms: f64,
}

impl ThreadsFigure {
    /// What is wanted of it.
    pub(super) fn targets(&self) -> Vec<Target> {
        let rates = self.rates.iter().zip(OF_ONE).filter_map(|(rate, wanted)| {
            let name = format!("{} threads and a node 2 ms away, pages of one thread's", rate.threads);
            Some(Target::at_least(name, wanted?, Some(rate.of_one)))
        });
        let name = "longest step next to threads that wait for a node, ms";
        let step = Target::new(name, LONGEST_STEP_MS, Some(self.bystander.longest_step_ms));
        rates.chain([step]).collect()
    }
}

/// How much memory there is.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    data: ByteCount,
    own: ByteCount,
    local: ByteCount,
    pool: ByteCount,
}

impl Sizes {
    fn of(data: ByteCount) -> Self {
        let part = |part: u64| ByteCount::new(data.get() / part);
        let pool = part(POOL_PART).max(ByteCount::new(LEAST_POOL));
        Self { data, own: part(OWN_PART), local: part(LOCAL_PART), pool }
    }
}

/// What one repetition showed.
struct Sample {
    /// In the order of [`THREADS`].
    pages_per_second: [f64; THREADS.len()],
    steps: Steps,
}

/// Measures with so much data; each number of threads reads for `spell`.
///
/// # Errors
/// When a program does what it should not, or the benchmark is to stop.
pub(super) fn measure(
    interrupt: &Interrupt,
    farmem: &Path,
    data: ByteCount,
    spell: Duration,
    repetitions: u32,
) -> Result<ThreadsFigure> {
    let sizes = Sizes::of(data);
    let mut samples = Vec::new();
    for repetition in 1..=repetitions {
        eprintln!("farmem: {repetition}/{repetitions} threads that read from a node 2 ms away");
        samples.push(measure_once(interrupt, farmem, sizes, spell, repetition as usize)?);
    }
    Ok(ThreadsFigure {
        data_bytes: data.get(),
        round_trip_ms: 2.0 * DELAY.as_secs_f64() * 1e3,
        rates: rates(&samples),
        bystander: bystander(&samples),
    })
}

fn measure_once(
    interrupt: &Interrupt,
    farmem: &Path,
    sizes: Sizes,
    spell: Duration,
    repetition: usize,
) -> Result<Sample> {
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    let member = Member::start(farmem, folder.path(), ByteCount::new(2 * sizes.data.get()))?;
    let relay = Relay::start(member.address(), DELAY)?;
    let mut program = Program::start(interrupt, farmem, folder.path(), sizes, relay.address())?;
    let told = program.next()?;
    ensure!(told == Event::Filled, "the readers say {told:?}");
    let most = THREADS[THREADS.len() - 1];
    read(&mut program, most, WARM_UP)?;
    let mut pages_per_second = [0.0; THREADS.len()];
    // In each repetition another one is first.
    for at in (0..THREADS.len()).map(|at| (at + repetition) % THREADS.len()) {
        let pace = read(&mut program, THREADS[at], spell)?;
        ensure!(pace.awaited > 0, "nothing that {} threads read came from the node", pace.threads);
        pages_per_second[at] = pace.awaited as f64 / pace.seconds;
    }
    program.tell(Order::Settle)?;
    let told = program.next()?;
    let Event::Settled { pages, home } = told else { bail!("the readers say {told:?}") };
    ensure!(home > pages / 4 * 3, "{home} of the bystander's {pages} pages stay off the node");
    let steps = stand(&mut program, &relay, most, spell)?;
    let statistics = program.finish()?;
    let number = |name: &str| statistics[name].as_f64().unwrap_or(0.0);
    ensure!(number("node_fetches") > 0.0, "nothing came from the node");
    ensure!(number("lost") == 0.0, "{} pages were lost with the node", number("lost"));
    Ok(Sample { pages_per_second, steps })
}

fn read(program: &mut Program<'_>, threads: u32, time: Duration) -> Result<Pace> {
    program.tell(Order::Read { threads, milliseconds: milliseconds(time) })?;
    match program.next()? {
        Event::Read(pace) => Ok(pace),
        other => bail!("the readers say {other:?}"),
    }
}

/// Holds the node back while threads want pages of it, and lets the bystander take its steps meanwhile.
fn stand(program: &mut Program<'_>, relay: &Relay, threads: u32, time: Duration) -> Result<Steps> {
    relay.hold();
    let time = time.min(LONGEST_STAND);
    program.tell(Order::Stand { threads, milliseconds: milliseconds(time) })?;
    let told = program.next_within(LONGEST_HOLD)?;
    relay.release();
    // A bystander that the node holds up tells nothing before that.
    let told = told.map_or_else(|| program.next(), Ok)?;
    let Event::Stood(steps) = told else { bail!("the readers say {told:?}") };
    let told = program.next()?;
    ensure!(matches!(told, Event::Read(_)), "the readers say {told:?}");
    ensure!(steps.steps > 0 && steps.faults > 0, "the bystander has found all of its memory local");
    Ok(steps)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn rates(samples: &[Sample]) -> Vec<RateFigure> {
    let figure = |(at, &threads): (usize, &u32)| {
        let of = |figure: &dyn Fn(&[f64; THREADS.len()]) -> f64| {
            median(samples.iter().map(|sample| figure(&sample.pages_per_second)).collect())
        };
        let (pages_per_second, of_one) = (of(&|rates| rates[at]), of(&|rates| rates[at] / rates[0]));
        RateFigure { threads, pages_per_second, of_one }
    };
    THREADS.iter().enumerate().map(figure).collect()
}

fn bystander(samples: &[Sample]) -> BystanderFigure {
    let of = |figure: &dyn Fn(&Steps) -> f64| -> Vec<f64> {
        samples.iter().map(|sample| figure(&sample.steps)).collect()
    };
    let longest = of(&|steps| steps.longest_ms);
    BystanderFigure {
        threads: THREADS[THREADS.len() - 1],
        steps: median(of(&|steps| steps.steps as f64)),
        pool_faults: median(of(&|steps| steps.faults as f64)),
        longest_of_all_ms: longest.iter().copied().fold(0.0, f64::max),
        longest_step_ms: median(longest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(pages_per_second: [f64; 3], longest_ms: f64) -> Sample {
        Sample { pages_per_second, steps: Steps { steps: 10, longest_ms, faults: 4 } }
    }

    #[test]
    fn rates_are_compared_within_a_repetition_and_the_middle_is_told() {
        let samples = [
            sample([100.0, 400.0, 1600.0], 1.0),
            sample([200.0, 600.0, 1600.0], 9.0),
            sample([100.0, 350.0, 1200.0], 2.0),
        ];

        let rates = rates(&samples);

        let told: Vec<(u32, f64, f64)> =
            rates.iter().map(|rate| (rate.threads, rate.pages_per_second, rate.of_one)).collect();
        assert_eq!(told, [(1, 100.0, 1.0), (4, 400.0, 3.5), (16, 1600.0, 12.0)]);
        let bystander = bystander(&samples);
        assert_eq!((bystander.longest_step_ms, bystander.longest_of_all_ms), (2.0, 9.0));
        let figure = ThreadsFigure { data_bytes: 1, round_trip_ms: 2.0, rates, bystander };
        let passed: Vec<Option<bool>> = figure.targets().iter().map(|target| target.passed).collect();
        assert_eq!(passed, [Some(false), Some(true), Some(true)]);
    }
}
