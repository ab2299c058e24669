//! Pages that are one word, repeated: they need no slot (FastSwap §III has them at the price of the smallest
//! class).

use farmem_page::{PAGE_BYTES, PageBytes};

const WORD_BYTES: usize = size_of::<u64>();
const _: () = assert!(PAGE_BYTES.is_multiple_of(WORD_BYTES), "a page is a whole number of words");

/// The 8-byte word (native byte order) that the page repeats from its first byte to its last, if there is
/// one. Zero means that the page is empty.
pub fn uniform(page: &PageBytes) -> Option<u64> {
    let (words, _) = page.as_chunks::<WORD_BYTES>();
    let first = words[0];
    // The last word differs in nearly every page that isn't uniform but starts as if it were.
    if words[words.len() - 1] != first || words[1] != first {
        return None;
    }
    words.iter().all(|word| *word == first).then(|| u64::from_ne_bytes(first))
}

/// Fills the page with one 8-byte word: the inverse of [`uniform`].
pub fn fill_uniform(page: &mut PageBytes, word: u64) {
    let (words, _) = page.as_chunks_mut::<WORD_BYTES>();
    words.fill(word.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_word_is_found_and_filled_back() {
        let mut page = [0u8; PAGE_BYTES];
        fill_uniform(&mut page, 0x0123_4567_89ab_cdef);
        assert_eq!(uniform(&page), Some(0x0123_4567_89ab_cdef));
    }

    #[test]
    fn an_empty_page_repeats_zero() {
        assert_eq!(uniform(&[0; PAGE_BYTES]), Some(0));
    }

    #[test]
    fn one_odd_byte_anywhere_makes_a_page_not_uniform() {
        // An interpreter tries some of them, at each place within a word.
        for odd in (0..PAGE_BYTES).step_by(if cfg!(miri) { 211 } else { 1 }) {
            let mut page = [7u8; PAGE_BYTES];
            page[odd] = 8;
            assert_eq!(uniform(&page), None, "byte {odd}");
        }
    }
}
