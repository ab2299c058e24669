//! How much of a slab different cuts into size classes waste, on the pages of the files that are named as
//! arguments. The figures of `docs/adr/0005-size-classes.md` come from here.

use farmem_codec::{Compressor, ENCODED_MAX_BYTES, Encoded, uniform};
use farmem_page::{PAGE_BYTES, PageBytes};
use std::env;
use std::fs;

const SLAB_BYTES: usize = 256 << 10;

/// Bytes of a slab that one page takes in a cut: its share, with what is left over at the end of the slab.
fn share_bytes(length_bytes: usize, classes: &[usize]) -> f64 {
    let slot_bytes = classes.iter().find(|slot| **slot >= length_bytes).copied().unwrap_or(PAGE_BYTES);
    SLAB_BYTES as f64 / (SLAB_BYTES / slot_bytes) as f64
}

fn main() -> Result<(), std::io::Error> {
    let multiples = |step: usize| -> Vec<usize> { (1..=PAGE_BYTES / step).map(|nth| nth * step).collect() };
    let geometric = vec![256, 320, 384, 512, 640, 768, 1024, 1280, 1536, 2048, 2560, 3072, 4096];
    let cuts: [(&str, Vec<usize>); 6] = [
        ("0.5/1/2/4 K", vec![512, 1024, 2048, 4096]),
        ("512", multiples(512)),
        ("geometric", geometric),
        ("256", multiples(256)),
        ("128", multiples(128)),
        ("64", multiples(64)),
    ];
    print!("{:24} {:>6} {:>8} {:>6}", "data", "pages", "uniform", "bare");
    cuts.iter().for_each(|(name, _)| print!(" {name:>12}"));
    println!();
    let mut compressor = Compressor::new();
    for path in env::args().skip(1) {
        let bytes = fs::read(&path)?;
        let (mut pages, mut uniforms, mut bare) = (0, 0, 0.0);
        let mut taken = [0.0; 6];
        for chunk in bytes.chunks_exact(PAGE_BYTES) {
            let Ok(page) = <&PageBytes>::try_from(chunk) else { continue };
            pages += 1;
            if uniform(page).is_some() {
                uniforms += 1;
                continue;
            }
            let mut out = [0; ENCODED_MAX_BYTES];
            let length_bytes = match compressor.compress(page, &mut out) {
                Encoded::Packed(length_bytes) => length_bytes,
                Encoded::Raw => PAGE_BYTES,
            };
            bare += length_bytes as f64;
            for (sum, (_, classes)) in taken.iter_mut().zip(&cuts) {
                *sum += share_bytes(length_bytes, classes);
            }
        }
        let stored_bytes = ((pages - uniforms) * PAGE_BYTES) as f64;
        let name = path.rsplit('/').next().unwrap_or(&path);
        print!("{name:24} {pages:>6} {uniforms:>8} {:>5.1}%", 100.0 * bare / stored_bytes);
        taken.iter().for_each(|sum| print!(" {:>11.1}%", 100.0 * sum / stored_bytes));
        println!();
    }
    Ok(())
}
