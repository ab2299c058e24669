//! A program that compresses all of its data with Snappy and unpacks it again, round after round, as Canvas
//! (§6) runs Snappy itself. One thread.

use std::io::{self, Write};

use anyhow::{Context, ensure};
use farmem_page::ByteCount;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use snap::raw::{Decoder, Encoder, max_compress_len};

/// What is compressed at a time, as in Snappy's own framing.
const BLOCK_BYTES: usize = 64 << 10;
/// Words that the text is made of.
const WORDS: usize = 1 << 10;
const SEED: u64 = 0x736e_6170;

/// Compresses and unpacks text, so much of it that it takes `data` with its compressed copy, and prints how
/// far it was compressed.
///
/// # Errors
/// When what is unpacked isn't what was compressed.
pub fn run(data: ByteCount, rounds: u32) -> anyhow::Result<()> {
    // Text of this kind becomes about half as long.
    let text = text(usize::try_from(data.get())? * 2 / 3);
    let mut packed: Vec<Vec<u8>> = text.chunks(BLOCK_BYTES).map(|_| Vec::new()).collect();
    let mut buffer = vec![0; max_compress_len(BLOCK_BYTES)];
    let mut length = 0;
    for _ in 0..rounds {
        length = 0;
        for (block, packed) in text.chunks(BLOCK_BYTES).zip(&mut packed) {
            let taken = Encoder::new().compress(block, &mut buffer)?;
            packed.clear();
            packed.extend_from_slice(&buffer[..taken]);
            length += taken;
        }
        for (block, packed) in text.chunks(BLOCK_BYTES).zip(&packed) {
            let taken = Decoder::new().decompress(packed, &mut buffer)?;
            ensure!(&buffer[..taken] == block, "a block was unpacked to something else");
        }
    }
    writeln!(io::stdout(), "{} bytes became {length}", text.len()).context("cannot print the result")
}

/// Words at random, the earlier ones more often.
fn text(bytes: usize) -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(SEED);
    let mut words: Vec<Vec<u8>> = Vec::with_capacity(WORDS);
    for _ in 0..WORDS {
        let length = random.random_range(3..12);
        words.push((0..length).map(|_| random.random_range(b'a'..=b'z')).collect());
    }
    let mut text = Vec::with_capacity(bytes + BLOCK_BYTES);
    while text.len() < bytes {
        let which = random.random_range(0..WORDS) * random.random_range(0..WORDS) / WORDS;
        text.extend_from_slice(&words[which]);
        text.push(b' ');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_about_half_as_long() {
        let text = text(1 << 20);
        let packed = Encoder::new().compress_vec(&text).unwrap();
        let share = packed.len() as f64 / text.len() as f64;
        assert!((0.35..0.65).contains(&share), "{share}");
    }
}
