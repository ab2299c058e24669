//! What storing, checking and loading a page costs, in nanoseconds: the best of several rounds over the same
//! pages.

use farmem_page::{ByteCount, PAGE_BYTES, PageBytes};
use farmem_store::{Epoch, NodesConfig, NullFile, OwnerId, Pool, PoolConfig, Reader, Writer};
use farmem_sys::shared::SharedMemory;
use std::hint::black_box;
use std::time::Instant;

const PAGES: usize = 4096;
const ROUNDS: usize = 7;
const OWNER: OwnerId = OwnerId(0);

fn page(number: u64, noisy_words: usize, stride: usize) -> PageBytes {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut page = [0; PAGE_BYTES];
    for word in page.chunks_exact_mut(8).step_by(stride).take(noisy_words) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    page
}

fn main() {
    for (name, noisy_words, stride) in [
        ("half noise, half zeros", 256, 1),
        ("every other word noise", 256, 2),
        ("noise", 512, 1),
        ("nearly empty", 8, 64),
    ] {
        let config = PoolConfig {
            limit: ByteCount::new(64 << 20),
            capacity: ByteCount::ZERO,
            disk: ByteCount::ZERO,
            nodes: NodesConfig::default(),
            owners: 1,
            seed: 1,
        };
        let memory = SharedMemory::create(c"farmem-costs", config.memory_bytes().expect("a valid size"))
            .expect("memory");
        let pool = Pool::create(memory, &config).expect("a pool");
        let (mut writer, mut reader) = (Writer::new(OWNER), Reader::new(NullFile));
        let old: Vec<_> = (0..PAGES).map(|number| page(number as u64 + 1, noisy_words, stride)).collect();
        let new: Vec<_> =
            (0..PAGES).map(|number| page(number as u64 + 1_000_001, noisy_words, stride)).collect();
        let mut best = [f64::INFINITY; 5];
        let mut note = |which: usize, since: Instant| {
            best[which] = best[which].min(since.elapsed().as_nanos() as f64 / PAGES as f64);
        };
        for _ in 0..ROUNDS {
            let since = Instant::now();
            let places: Vec<_> =
                old.iter().map(|page| writer.store(&pool, page, Epoch::FIRST).expect("room")).collect();
            note(0, since);
            let since = Instant::now();
            for (page, place) in old.iter().zip(&places) {
                let _ = black_box(writer.update(&pool, *place, page, Epoch::FIRST, Epoch::NONE));
            }
            note(1, since);
            let since = Instant::now();
            for (page, place) in new.iter().zip(&places) {
                let _ = black_box(writer.update(&pool, *place, page, Epoch::FIRST, Epoch::NONE));
            }
            note(2, since);
            let mut out = [0; PAGE_BYTES];
            let since = Instant::now();
            for place in &places {
                reader.load(&pool, *place, &mut out).expect("the page");
                black_box(&out);
            }
            note(3, since);
            let since = Instant::now();
            for place in places {
                black_box(pool.free(place, OWNER, Epoch::NONE));
            }
            note(4, since);
        }
        let [store, clean, in_place, load, free] = best.map(|nanoseconds| nanoseconds.round() as u64);
        println!(
            "{name:24} store {store:>6}  clean {clean:>5}  in place {in_place:>6}  load {load:>5}  free {free:>5} ns"
        );
    }
}
