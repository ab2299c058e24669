//! What unpacking a page takes, compared with `lz4_flex`, in nanoseconds: medians over pages that both unpack
//! in turn. The figures of `docs/adr/0014-unpacking.md` come from here, those of the other decoder of
//! `lz4_flex` with `--features lz4_flex/safe-decode`. Files that are named as arguments are taken for pages
//! of a further kind each.

use farmem_codec::{Compressor, ENCODED_MAX_BYTES, Encoded, decompress, uniform};
use farmem_page::{PAGE_BYTES, PageBytes};
use lz4_flex::block::decompress_into;
use std::hint::black_box;
use std::time::Instant;
use std::{env, fs};

/// Enough that a processor can't learn the branches of each by heart.
const PAGES: usize = 256;
const ROUNDS: usize = 15;

struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
    fn below(&mut self, limit: u64) -> u64 {
        (self.word() >> 16) % limit
    }
}

fn page_of_words(mut word: impl FnMut(usize) -> u64) -> PageBytes {
    let mut page = [0; PAGE_BYTES];
    for (at, bytes) in page.as_chunks_mut().0.iter_mut().enumerate() {
        *bytes = word(at).to_le_bytes();
    }
    page
}

fn page_of_pieces(mut piece: impl FnMut(&mut Vec<u8>)) -> PageBytes {
    let mut bytes = Vec::new();
    while bytes.len() < PAGE_BYTES {
        piece(&mut bytes);
    }
    *bytes.first_chunk().expect("at least a page")
}

/// Pairs of words that are the same but for the low bytes of the first: `workload/content.rs` of the bench
/// crate.
fn records(random: &mut Random, noisy_bytes: u32) -> PageBytes {
    let (common, mask) = (random.word(), (1 << (8 * noisy_bytes)) - 1);
    page_of_words(|at| if at % 2 == 0 { common & !mask | random.word() & mask } else { common })
}

/// Whether it unpacked a page.
type Decoder = fn(&[u8], &mut PageBytes) -> bool;

type Kind = (&'static str, fn(&mut Random) -> PageBytes);

const KINDS: [Kind; 17] = [
    ("nearly empty", |random| page_of_words(|at| if at < 3 { random.word() } else { 0 })),
    ("zeros, one word odd", |random| {
        let (odd, word) = (random.below(512) as usize, random.word());
        page_of_words(|at| if at == odd { word } else { 0 })
    }),
    ("one word, eight odd", |random| {
        let word = random.word();
        let odd: [u64; 8] = std::array::from_fn(|_| random.below(512));
        page_of_words(|at| if odd.contains(&(at as u64)) { random.word() } else { word })
    }),
    ("half noise, half run", |random| page_of_words(|at| if at < 256 { random.word() } else { 7 })),
    ("quarter every other word", |random| {
        page_of_words(|at| if at < 256 && at % 2 == 0 { random.word() } else { 7 })
    }),
    ("records, to a quarter", |random| records(random, 1)),
    ("records, to half", |random| records(random, 5)),
    ("pointers into 16 MiB", |random| page_of_words(|_| 0x7f12_3400_0000 + 16 * random.below(1 << 20))),
    ("u64 below 100 000", |random| page_of_words(|_| random.below(100_000))),
    ("u64, sorted", |random| {
        let mut word = random.below(1 << 30);
        page_of_words(|_| {
            word += random.below(1000);
            word
        })
    }),
    ("u32 below 1000", |random| page_of_words(|_| random.below(1000) | random.below(1000) << 32)),
    ("u16 below 64", |random| page_of_pieces(|bytes| bytes.extend((random.below(64) as u16).to_le_bytes()))),
    ("f64, two decimals", |random| page_of_words(|_| (random.below(100_000) as f64 / 100.0).to_bits())),
    ("short words", |random| {
        let words: Vec<Vec<u8>> =
            (0..40).map(|_| (0..4 + random.below(6)).map(|_| random.word() as u8).collect()).collect();
        page_of_pieces(|bytes| {
            bytes.extend(&words[random.below(40) as usize]);
            if random.below(3) == 0 {
                bytes.push(random.word() as u8);
            }
        })
    }),
    ("runs of three bytes", |random| {
        page_of_pieces(|bytes| {
            let colour = random.word().to_le_bytes();
            (0..2 + random.below(20)).for_each(|_| bytes.extend(&colour[..3]));
        })
    }),
    ("runs of 1 to 16 bytes", |random| {
        page_of_pieces(|bytes| {
            let period: Vec<u8> = (0..1 + random.below(16)).map(|_| random.word() as u8).collect();
            bytes.extend(period.iter().cycle().take(period.len() + random.below(60) as usize));
        })
    }),
    ("JSON", |random| {
        page_of_pieces(|bytes| {
            let (id, user, share) = (random.below(100_000), random.below(1000), random.below(1 << 40));
            bytes.extend(format!("{{\"id\": {id}, \"name\": \"user {user}\", \"x\": 0.{share}}}, ").bytes());
        })
    }),
];

fn measure(name: &str, pages: &[PageBytes]) {
    let mut compressor = Compressor::new();
    let packed: Vec<Vec<u8>> = pages
        .iter()
        .filter_map(|page| {
            let mut out = [0; ENCODED_MAX_BYTES];
            match compressor.compress(page, &mut out) {
                Encoded::Packed(length) => Some(out[..length].to_vec()),
                Encoded::Raw => None,
            }
        })
        .collect();
    if packed.is_empty() {
        println!("{name:26} kept raw");
        return;
    }
    let decoders: [Decoder; 2] = [
        |stored, page| decompress(stored, page).is_ok(),
        |stored, page| matches!(decompress_into(stored, page), Ok(PAGE_BYTES)),
    ];
    let mut times_ns = [Vec::new(), Vec::new()];
    let (mut stored, mut page) = ([0; PAGE_BYTES], [0; PAGE_BYTES]);
    for round in 0..ROUNDS {
        for block in &packed {
            for turn in 0..2 {
                // As on the path of a fault: the block has just been copied.
                let stored = &mut stored[..block.len()];
                stored.copy_from_slice(block);
                let which = (round + turn) % 2;
                let since = Instant::now();
                assert!(decoders[which](black_box(stored), &mut page), "it was packed");
                black_box(&page);
                times_ns[which].push(since.elapsed().as_nanos());
            }
        }
    }
    let [ours_ns, library_ns] = times_ns.map(|mut times| {
        let middle = times.len() / 2;
        *times.select_nth_unstable(middle).1
    });
    let bytes = packed.iter().map(Vec::len).sum::<usize>() / packed.len();
    println!("{name:26} {bytes:>5} bytes  here {ours_ns:>5} ns  lz4_flex {library_ns:>5} ns");
}

fn main() -> Result<(), std::io::Error> {
    let mut random = Random(88_172_645_463_325_252);
    for (name, kind) in KINDS {
        let pages: Vec<PageBytes> = (0..PAGES).map(|_| kind(&mut random)).collect();
        measure(name, &pages);
    }
    for path in env::args().skip(1) {
        let bytes = fs::read(&path)?;
        let pages: Vec<PageBytes> = bytes
            .as_chunks()
            .0
            .iter()
            .filter(|page| uniform(page).is_none())
            .take(4 * PAGES)
            .copied()
            .collect();
        measure(path.rsplit('/').next().unwrap_or(&path), &pages);
    }
    Ok(())
}
