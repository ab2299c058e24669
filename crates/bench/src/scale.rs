//! `farmem bench scale`: whether what a page and a batch cost grows with the pool.
//!
//! Pools of three sizes are filled with slabs that are full but for their content, so that a terabyte of them
//! takes some hundred megabytes. The product's own code stores, fetches, frees and moves real pages among
//! them.

use std::fmt;
use std::time::Instant;

use anyhow::{Context, bail};
use farmem_machine::Description;
use farmem_page::{ByteCount, PAGE_BYTES, PageBytes, Place};
use farmem_store::{
    BlockError, BlockFile, Epoch, FreeOutcome, Mover, NoNodes, NodesConfig, NullFile, OwnerId, Pool,
    PoolConfig, Reader, SLAB_BYTES, StepOutcome, StoreError, Writer,
};
use farmem_sys::shared::SharedMemory;
use serde::Serialize;

use crate::interrupt::Interrupt;
use crate::median::median;
use crate::table::table;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Fewer pages and turns.
    pub quick: bool,
    /// Turns; `None` for 5, or 3 when quick.
    pub repeat: Option<u32>,
}

/// What something takes in pools of each size.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figure {
    /// What is done.
    pub action: &'static str,
    /// Once, in the pools of [`Report::gibibytes`]: medians of all turns.
    pub microseconds: Vec<f64>,
    /// The largest pool's, of the smallest one's.
    pub growth: f64,
}

/// All that was measured, and on what.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Version of Farmem.
    pub version: &'static str,
    /// The machine.
    pub machine: Description,
    /// Turns that each figure is the median of.
    pub repetitions: u32,
    /// Memory that the pools have slabs for.
    pub gibibytes: Vec<u64>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// What the growth may be.
    pub at_most: f64,
}

const GIBIBYTES: [u64; 3] = [1, 64, 1024];
const AT_MOST: f64 = 1.2;
const ACTIONS: [&str; 5] = [
    "store a page",
    "fetch a page",
    "free a page",
    "store a page that a full pool refuses",
    "move a batch of 2 MiB out of memory",
];
const REPETITIONS: u32 = 5;
const REPETITIONS_QUICK: u32 = 3;
const PAGES: usize = 16_384;
const PAGES_QUICK: usize = 4_096;
const REFUSED: usize = 64;
/// Batches that leave, at least; and one for so many slabs. The mover looks at all slabs once in so many
/// batches.
const BATCHES: usize = 32;
const SLABS_PER_BATCH: usize = 512;
/// The process that all the slabs belong to that were there before, and the one that stores.
const OTHERS: OwnerId = OwnerId(0);
const OWN: OwnerId = OwnerId(1);

/// Measures. Pools take turns.
///
/// # Errors
/// When interrupted, or without memory for the slabs' states.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let interrupt = Interrupt::listen()?;
    let repetitions = options.repeat.unwrap_or(if options.quick { REPETITIONS_QUICK } else { REPETITIONS });
    let pages: Vec<PageBytes> = (0..if options.quick { PAGES_QUICK } else { PAGES }).map(page).collect();
    let mut times = vec![vec![Vec::new(); GIBIBYTES.len()]; ACTIONS.len()];
    for _ in 0..repetitions {
        for (size, &gibibytes) in GIBIBYTES.iter().enumerate() {
            interrupt.check()?;
            for (action, time) in turn(gibibytes, &pages)?.into_iter().enumerate() {
                times[action][size].push(time);
            }
        }
    }
    let figures = ACTIONS.into_iter().zip(times).map(|(action, times)| {
        let microseconds: Vec<f64> = times.into_iter().map(median).collect();
        let growth = microseconds[microseconds.len() - 1] / microseconds[0];
        Figure { action, microseconds, growth }
    });
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        machine: Description::current(),
        repetitions,
        gibibytes: GIBIBYTES.to_vec(),
        figures: figures.collect(),
        at_most: AT_MOST,
    })
}

/// Takes all that comes, as fast as memory would.
struct Sink;

impl BlockFile for Sink {
    fn read_at(&self, _offset_bytes: u64, _out: &mut [u8]) -> Result<(), BlockError> {
        Err(BlockError::Failed)
    }

    fn write_at(&self, _offset_bytes: u64, _bytes: &[u8]) -> Result<(), BlockError> {
        Ok(())
    }
}

/// Microseconds of each of [`ACTIONS`], in a pool of that size.
fn turn(gibibytes: u64, pages: &[PageBytes]) -> anyhow::Result<[f64; ACTIONS.len()]> {
    let slabs = (gibibytes << 30) as usize / SLAB_BYTES;
    let [store, fetch, free] = with_room(slabs, pages)?;
    Ok([store, fetch, free, refused(slabs, pages)?, moved(slabs)?])
}

fn pool(frames: usize, blocks: usize) -> anyhow::Result<Pool<SharedMemory>> {
    let bytes = |slabs: usize| ByteCount::new((slabs * SLAB_BYTES) as u64);
    let config = PoolConfig {
        limit: bytes(frames),
        capacity: ByteCount::ZERO,
        disk: bytes(blocks),
        nodes: NodesConfig::default(),
        owners: 2,
        seed: 0x5ca1e,
    };
    let length_bytes = config.memory_bytes().context("such a pool can't be")?;
    let memory = SharedMemory::create(c"farmem-scale", length_bytes).context("no addresses for a pool")?;
    Pool::create(memory, &config).context("no pool")
}

/// A page that no other one is like, and that packs to about a half.
fn page(number: usize) -> PageBytes {
    let mut page = [0; PAGE_BYTES];
    let mut state = number as u64 + 1;
    for word in page[..PAGE_BYTES / 2].chunks_mut(8) {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        word.copy_from_slice(&state.to_le_bytes());
    }
    page
}

/// What `each` takes on average, in microseconds.
fn timed<T>(
    items: impl ExactSizeIterator<Item = T>,
    mut each: impl FnMut(T) -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    let count = items.len();
    let began = Instant::now();
    for item in items {
        each(item)?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / count as f64)
}

fn with_room(slabs: usize, pages: &[PageBytes]) -> anyhow::Result<[f64; 3]> {
    let pool = pool(slabs + pages.len(), 0)?;
    pool.populate(OTHERS, slabs);
    let mut writer = Writer::new(OWN);
    let mut reader = Reader::new(NullFile);
    let mut places: Vec<Place> = Vec::with_capacity(pages.len());
    let store = timed(pages.iter(), |page| {
        places.push(writer.store(&pool, page, Epoch::FIRST).context("a pool with room refuses a page")?);
        Ok(())
    })?;
    let mut out = [0; PAGE_BYTES];
    let fetch = timed(places.iter().zip(pages), |(&place, page)| {
        reader.load(&pool, place, &mut out).context("a page can't be read back")?;
        if &out != page { bail!("a page isn't what was stored") } else { Ok(()) }
    })?;
    let free = timed(places.iter(), |&place| {
        if pool.free(place, OWN, Epoch::NONE) != FreeOutcome::Freed {
            bail!("a page can't be freed")
        } else {
            Ok(())
        }
    })?;
    Ok([store, fetch, free])
}

fn refused(slabs: usize, pages: &[PageBytes]) -> anyhow::Result<f64> {
    let pool = pool(slabs, 0)?;
    pool.populate(OTHERS, slabs);
    let mut writer = Writer::new(OWN);
    timed(pages[..REFUSED].iter(), |page| match writer.store(&pool, page, Epoch::FIRST) {
        Err(StoreError::Full) => Ok(()),
        Ok(_) => bail!("a full pool takes a page"),
    })
}

fn moved(slabs: usize) -> anyhow::Result<f64> {
    // A tenth of it is to leave.
    let pool = pool(slabs, slabs)?;
    pool.populate(OTHERS, slabs * 9 / 10);
    let mut mover = Mover::new(&pool);
    timed(0..BATCHES.max(slabs / SLABS_PER_BATCH), |_| match mover.step(&pool, &Sink, &mut NoNodes) {
        StepOutcome::Moved { .. } => Ok(()),
        other => bail!("the mover says {other:?}"),
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.gibibytes.iter().map(|gibibytes| format!("{gibibytes} GiB")).collect();
        let mut columns = vec!["µs"];
        columns.extend(sizes.iter().map(String::as_str));
        columns.extend(["growth", "verdict"]);
        let mut table = table(&columns, 1);
        for figure in &self.figures {
            let mut row = vec![figure.action.to_owned()];
            row.extend(figure.microseconds.iter().map(|time| format!("{time:.2}")));
            row.push(format!("{:.2}", figure.growth));
            row.push(if figure.growth <= self.at_most { "pass" } else { "falls short" }.to_owned());
            table.add_row(row);
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "growth: of the largest pool, of the smallest one's time; at most {} wanted",
            self.at_most
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_pool_does_all_of_it() {
        let pages: Vec<PageBytes> = (0..REFUSED.max(200)).map(page).collect();
        let times = turn(1, &pages).expect("nothing is refused that should not be");
        assert!(times.iter().all(|time| time.is_finite()));
    }

    #[test]
    fn pages_differ() {
        assert_ne!(page(1), page(2));
    }
}
