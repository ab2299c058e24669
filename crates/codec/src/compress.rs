//! Pages packed as LZ4 blocks, or kept raw where that gains nothing. Packing is left to a library, unpacking
//! is not: see `unpack`.

use crate::unpack::unpack;
use farmem_page::{PAGE_BYTES, PageBytes};
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

/// Bytes that an output buffer for [`Compressor::compress`] must have.
pub const ENCODED_MAX_BYTES: usize = get_maximum_output_size(PAGE_BYTES);

/// A page that doesn't get smaller than this is kept raw: unpacking it would cost time and win no room.
pub const PACKED_LIMIT_BYTES: usize = PAGE_BYTES - 256;

const _: () =
    assert!(ENCODED_MAX_BYTES > PAGE_BYTES, "a page that doesn't compress must fit the output buffer");
const _: () = assert!(PACKED_LIMIT_BYTES < PAGE_BYTES, "the length alone tells packed from raw");

/// How [`Compressor::compress`] left a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoded {
    /// The first so many bytes of the output buffer hold the page; at most [`PACKED_LIMIT_BYTES`].
    Packed(usize),
    /// The page itself is its shortest form; the output buffer holds nothing of use.
    Raw,
}

/// Packs pages. Owns its scratch memory; one per thread.
pub struct Compressor {
    table: CompressTable,
}

/// Bytes that no compressor made, or that changed since.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the stored form of a page is damaged")]
pub struct Corrupt;

impl Compressor {
    /// A compressor with its scratch memory.
    pub const fn new() -> Self {
        Self { table: CompressTable::small() }
    }

    /// Packs `page` into `out`, which should have [`ENCODED_MAX_BYTES`]; with a shorter one pages may stay
    /// raw that need not.
    pub fn compress(&mut self, page: &PageBytes, out: &mut [u8]) -> Encoded {
        match compress_into_with_table(page, out, &mut self.table) {
            Ok(length) if length <= PACKED_LIMIT_BYTES => Encoded::Packed(length),
            _ => Encoded::Raw,
        }
    }
}

impl Default for Compressor {
    fn default() -> Self {
        Self::new()
    }
}

/// The inverse of [`Compressor::compress`]: `stored` is a packed form, or a raw page. Fails on anything else;
/// what is in `page` then means nothing.
pub fn decompress(stored: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
    if let Ok(raw) = <&PageBytes>::try_from(stored) {
        *page = *raw;
        return Ok(());
    }
    if stored.is_empty() || stored.len() > PACKED_LIMIT_BYTES {
        return Err(Corrupt);
    }
    unpack(stored, page).ok_or(Corrupt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(page: &PageBytes) -> Encoded {
        let mut out = [0u8; ENCODED_MAX_BYTES];
        let encoded = Compressor::new().compress(page, &mut out);
        let mut back = [0xaa; PAGE_BYTES];
        match encoded {
            Encoded::Packed(length) => decompress(&out[..length], &mut back).unwrap(),
            Encoded::Raw => decompress(page, &mut back).unwrap(),
        }
        assert!(back == *page);
        encoded
    }

    fn noise(seed: u64) -> PageBytes {
        let mut state = seed | 1;
        core::array::from_fn(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
    }

    #[test]
    fn a_page_of_text_shrinks_and_comes_back() {
        let page = core::array::from_fn(|at| b"far memory, near enough. "[at % 25]);
        assert!(matches!(round_trip(&page), Encoded::Packed(length) if length < 256));
    }

    #[test]
    fn noise_stays_raw() {
        assert_eq!(round_trip(&noise(42)), Encoded::Raw);
    }

    #[test]
    fn a_compressor_keeps_nothing_from_one_page_to_the_next() {
        let mut compressor = Compressor::new();
        let (mut first, mut second) = ([0u8; ENCODED_MAX_BYTES], [0u8; ENCODED_MAX_BYTES]);
        let page = core::array::from_fn(|at| (at / 7) as u8);
        let alone = compressor.compress(&page, &mut first);
        compressor.compress(&noise(7), &mut second);
        let after = compressor.compress(&page, &mut second);
        let Encoded::Packed(length) = alone else { panic!("it compresses") };
        assert_eq!(alone, after);
        assert!(first[..length] == second[..length]);
    }

    #[test]
    fn a_truncated_form_is_corrupt() {
        let page = core::array::from_fn(|at| (at / 16) as u8);
        let mut out = [0u8; ENCODED_MAX_BYTES];
        let Encoded::Packed(length) = Compressor::new().compress(&page, &mut out) else {
            panic!("it compresses")
        };
        // An interpreter tries some of them: each takes it as long as all take a processor.
        for short in (0..length).step_by(if cfg!(miri) { 61 } else { 1 }) {
            assert_eq!(decompress(&out[..short], &mut [0; PAGE_BYTES]), Err(Corrupt), "{short} bytes");
        }
    }

    proptest! {
        #[test]
        fn any_page_comes_back(runs in prop::collection::vec((any::<u8>(), 1usize..200), 0..80), seed: u64) {
            let mut page = noise(seed);
            let mut at = 0;
            for (byte, length) in runs {
                let end = (at + length).min(PAGE_BYTES);
                page[at..end].fill(byte);
                at = (end + length / 2).min(PAGE_BYTES);
            }
            round_trip(&page);
        }

        #[test]
        fn garbage_is_refused_or_fills_a_page_but_never_more(garbage in prop::collection::vec(any::<u8>(), 0..5000)) {
            let mut guarded = [[0u8; PAGE_BYTES]; 3];
            let _ = decompress(&garbage, &mut guarded[1]);
            prop_assert!(guarded[0] == [0; PAGE_BYTES] && guarded[2] == [0; PAGE_BYTES]);
        }
    }
}
