//! Unpacking LZ4 blocks that hold exactly one page.
//!
//! A block is a list of sequences: a token, literal bytes, and a match, which repeats bytes of the page from
//! some offset back; the last sequence has literals only. Short sequences far from both ends, which is nearly
//! all of them, are copied in pieces of fixed size that may be too long: what they write beyond the sequence,
//! later sequences write again.
//!
//! Why this isn't left to a library, and what was measured: `docs/adr/0014-unpacking.md`.
//!
//! Invariants:
//! 1. `page[..at]` is final, and made from the block alone: what `page` held before, and what pieces wrote
//!    beyond their sequence, isn't part of it.
//! 2. Each access is checked where it is made, and what lies outside of block or page is `None`. So a damaged
//!    block ends in `None`, or in some page, whatever the checks before it let through.

use farmem_page::{PAGE_BYTES, PageBytes};

/// Pieces in which matches are copied.
const CHUNK_BYTES: usize = 16;

/// Bytes of a short sequence: token, literals, offset. The block's last sequence has no offset, so it is
/// shorter, or not short.
const WINDOW_BYTES: usize = 1 + SHORT_LITERALS + 2;

/// The most literals, and the longest match, whose lengths fit the token.
const SHORT_LITERALS: usize = 14;
const SHORT_MATCH: usize = MATCH_MIN + 14;
const MATCH_MIN: usize = 4;

/// Room behind the start of a match for two chunks.
const MATCH_ROOM_BYTES: usize = 2 * CHUNK_BYTES;

/// Where a short sequence may start in the page, so that nothing it copies reaches the page's end.
const SHORT_LAST: usize = PAGE_BYTES - 64;

/// Matches up to this length are copied in chunks, longer ones by `memmove`, which takes a moment to begin.
const CHUNKED_MATCH_MAX: usize = 256;

const _: () =
    assert!(WINDOW_BYTES > CHUNK_BYTES, "literals are copied as a chunk, of what follows the token");
const _: () = assert!(SHORT_MATCH <= CHUNK_BYTES + 2, "a short match is a chunk and two bytes");
const _: () =
    assert!(SHORT_LAST + SHORT_LITERALS + MATCH_ROOM_BYTES <= PAGE_BYTES, "short sequences have room");

/// Unpacks a block into `page`; `None` if it isn't one that holds a page. What is in `page` then means
/// nothing.
pub(crate) fn unpack(block: &[u8], page: &mut PageBytes) -> Option<()> {
    let (mut from, mut at) = (0, 0);
    loop {
        (from, at) = short_sequences(block, page, from, at)?;

        let token = *block.get(from)?;
        from += 1;
        let literals = length(token >> 4, block, &mut from)?;
        copy_literals(block, page, from, at, literals)?;
        from += literals;
        at += literals;
        if from == block.len() {
            return (at == PAGE_BYTES).then_some(());
        }
        let offset = u16::from_le_bytes(*block.get(from..)?.first_chunk()?);
        from += 2;
        let length = MATCH_MIN + length(token & 15, block, &mut from)?;
        copy_match(page, at, offset.into(), length)?;
        at += length;
    }
}

/// Unpacks sequences from `block[from..]` to `page[at..]` while they are short and both ends are far. Returns
/// where the next one starts in both.
#[inline(always)]
fn short_sequences(
    block: &[u8],
    page: &mut PageBytes,
    mut from: usize,
    mut at: usize,
) -> Option<(usize, usize)> {
    while at <= SHORT_LAST
        && let Some(window) =
            block.get(from..from + WINDOW_BYTES).and_then(<[u8]>::first_chunk::<WINDOW_BYTES>)
    {
        let token = window[0];
        if token >> 4 == 15 || token & 15 == 15 {
            break;
        }
        let literals = usize::from(token >> 4);
        let length = MATCH_MIN + usize::from(token & 15);
        let offset = usize::from(u16::from_le_bytes(*window[1 + literals..].first_chunk()?));
        let target = at + literals;
        // An offset that reaches before the page's start wraps around, and is far too large.
        let source = target.wrapping_sub(offset);
        if source > PAGE_BYTES - MATCH_ROOM_BYTES {
            return None;
        }
        let literal_bytes = &window[1..];
        if offset >= literals + length {
            // What the match repeats is there before the literals are written. Read after them it would have
            // to wait: processors pass on what was just written only if one write covers the read, and here
            // the literals would be a second one. Arrays of numbers, pointers and records consist of such
            // sequences. An integer, since arrays go by the stack.
            let start = u128::from_le_bytes(*page.get(source..)?.first_chunk()?);
            put::<CHUNK_BYTES>(page, at, literal_bytes)?;
            put::<CHUNK_BYTES>(page, target, &start.to_le_bytes())?;
            repeat::<2>(page, source + CHUNK_BYTES, target + CHUNK_BYTES)?;
        } else {
            put::<CHUNK_BYTES>(page, at, literal_bytes)?;
            if offset >= length {
                repeat::<CHUNK_BYTES>(page, source, target)?;
                repeat::<2>(page, source + CHUNK_BYTES, target + CHUNK_BYTES)?;
            } else if offset < CHUNK_BYTES {
                fill_periodic(page, target, offset, length)?;
            } else {
                repeat::<CHUNK_BYTES>(page, source, target)?;
                repeat::<CHUNK_BYTES>(page, source + CHUNK_BYTES, target + CHUNK_BYTES)?;
            }
        }
        from += 1 + literals + 2;
        at = target + length;
    }
    Some((from, at))
}

/// A length whose first four bits are in the token; 15 means that bytes follow, up to the first that isn't
/// 255.
#[inline(always)]
fn length(field: u8, block: &[u8], from: &mut usize) -> Option<usize> {
    let mut length = usize::from(field);
    if field == 15 {
        loop {
            let more = *block.get(*from)?;
            *from += 1;
            length += usize::from(more);
            if more != u8::MAX {
                break;
            }
        }
    }
    Some(length)
}

#[inline(always)]
fn copy_literals(block: &[u8], page: &mut PageBytes, from: usize, at: usize, literals: usize) -> Option<()> {
    const WIDE: usize = 32;
    let rest = block.get(from..)?;
    if literals <= WIDE && rest.len() >= WIDE && at <= PAGE_BYTES - WIDE {
        put::<WIDE>(page, at, rest)
    } else {
        page.get_mut(at..at + literals)?.copy_from_slice(rest.get(..literals)?);
        Some(())
    }
}

/// Writes the match at `page[at..at + length]`, whatever its length and offset.
#[inline(always)]
fn copy_match(page: &mut PageBytes, at: usize, offset: usize, length: usize) -> Option<()> {
    let source = at.checked_sub(offset)?;
    let end = at + length;
    if offset == 0 || end > PAGE_BYTES {
        return None;
    }
    if offset < CHUNK_BYTES && source <= PAGE_BYTES - CHUNK_BYTES {
        return fill_periodic(page, at, offset, length);
    }
    let mut done = 0;
    if end <= PAGE_BYTES - MATCH_ROOM_BYTES && length <= CHUNKED_MATCH_MAX {
        while done < length {
            repeat::<CHUNK_BYTES>(page, source + done, at + done)?;
            done += CHUNK_BYTES;
        }
    } else {
        // If the match overlaps itself there is more to copy from with each turn.
        while done < length {
            let bytes = (offset + done).min(length - done);
            page.copy_within(source..source + bytes, at + done);
            done += bytes;
        }
    }
    Some(())
}

/// How the bytes of one period become a chunk of periods, for one offset.
#[derive(Clone, Copy)]
struct Period {
    /// Bits of the period.
    mask: u128,
    /// The factor that lines up as many periods as fit.
    repeat: u128,
    /// Bytes of whole periods in a chunk.
    whole_bytes: usize,
}

/// By offset; that of 0 is of no use.
const PERIODS: [Period; CHUNK_BYTES] = {
    let mut periods = [Period { mask: 0, repeat: 0, whole_bytes: 0 }; CHUNK_BYTES];
    let mut offset = 1;
    while offset < CHUNK_BYTES {
        let mut at = 0;
        while at < CHUNK_BYTES {
            periods[offset].repeat |= 1 << (8 * at);
            at += offset;
        }
        periods[offset].mask = (1 << (8 * offset)) - 1;
        periods[offset].whole_bytes = CHUNK_BYTES / offset * offset;
        offset += 1;
    }
    periods
};

/// Writes a match that overlaps itself: the `offset` bytes before `at`, fewer than a chunk, again and again
/// up to `at + length`.
#[inline(always)]
fn fill_periodic(page: &mut PageBytes, at: usize, offset: usize, length: usize) -> Option<()> {
    let period = PERIODS.get(offset).filter(|_| offset != 0)?;
    let source = at.checked_sub(offset)?;
    let bits = u128::from_le_bytes(*page.get(source..)?.first_chunk()?) & period.mask;
    let pattern = bits.wrapping_mul(period.repeat);

    let target = page.get_mut(at..(at + length + CHUNK_BYTES).min(PAGE_BYTES))?;
    if length > 4 * CHUNK_BYTES && pattern == pattern.rotate_left(8) {
        target.get_mut(..length)?.fill(pattern as u8);
        return Some(());
    }
    let pattern = pattern.to_le_bytes();
    let mut done = 0;
    while done < length {
        if let Some(chunk) = target.get_mut(done..)?.first_chunk_mut() {
            *chunk = pattern;
            done += period.whole_bytes;
        } else {
            // Only at the page's end.
            target.get_mut(done..length)?.copy_from_slice(pattern.get(..length - done)?);
            break;
        }
    }
    Some(())
}

/// Copies a piece of the page to `to`; where they overlap, `to` gets what was there before.
#[inline(always)]
fn repeat<const BYTES: usize>(page: &mut PageBytes, from: usize, to: usize) -> Option<()> {
    let piece: [u8; BYTES] = *page.get(from..)?.first_chunk()?;
    put::<BYTES>(page, to, &piece)
}

/// Copies the start of `from`, a piece of this size, into the page.
#[inline(always)]
fn put<const BYTES: usize>(page: &mut PageBytes, to: usize, from: &[u8]) -> Option<()> {
    *page.get_mut(to..)?.first_chunk_mut::<BYTES>()? = *from.first_chunk()?;
    Some(())
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::{Compressor, ENCODED_MAX_BYTES, Encoded};
    use proptest::prelude::*;
    use std::vec::Vec;

    /// An interpreter takes one in this many cases of a loop. It is a prime number, so that all values of
    /// inner loops come up.
    const STRIDE: usize = if cfg!(miri) { 1999 } else { 1 };

    /// What a library makes of the block.
    fn expected(block: &[u8]) -> Option<PageBytes> {
        let mut page = [0x55; PAGE_BYTES];
        matches!(lz4_flex::block::decompress_into(block, &mut page), Ok(PAGE_BYTES)).then_some(page)
    }

    /// Unpacks as the library does, over two different pages.
    fn unpacks_as_expected(block: &[u8]) -> bool {
        let expected = expected(block);
        [0, 0xff].into_iter().all(|before| {
            let mut page = [before; PAGE_BYTES];
            unpack(block, &mut page).map(|()| page) == expected
        })
    }

    fn packed(page: &PageBytes) -> Vec<u8> {
        let mut out = [0; ENCODED_MAX_BYTES];
        match Compressor::new().compress(page, &mut out) {
            Encoded::Packed(length) => out[..length].to_vec(),
            Encoded::Raw => Vec::new(),
        }
    }

    fn push_length(block: &mut Vec<u8>, length: usize) {
        if let Some(mut more) = length.checked_sub(15) {
            while more >= 255 {
                block.push(255);
                more -= 255;
            }
            block.push(more as u8);
        }
    }

    fn push_sequence(block: &mut Vec<u8>, literals: &[u8], matched: Option<(usize, usize)>) {
        let length = matched.map_or(0, |(_, length)| length - MATCH_MIN);
        block.push((literals.len().min(15) << 4 | length.min(15)) as u8);
        push_length(block, literals.len());
        block.extend(literals);
        if let Some((offset, _)) = matched {
            block.extend((offset as u16).to_le_bytes());
            push_length(block, length);
        }
    }

    fn counting(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at * 151 + at / 256) as u8).collect()
    }

    /// A page of literals with one match at `at`.
    fn page_with_match(at: usize, offset: usize, length: usize) -> Vec<u8> {
        let mut block = Vec::new();
        push_sequence(&mut block, &counting(at), Some((offset, length)));
        push_sequence(&mut block, &counting(PAGE_BYTES - at - length), None);
        block
    }

    /// Pages of the kinds that programs have: a few bytes, numbers, records, words of text, noise.
    fn page_of_some_kind() -> impl Strategy<Value = PageBytes> {
        let word = prop::collection::vec(any::<u8>(), 1..24);
        let words = prop::collection::vec(word, 1..12);
        let picks = prop::collection::vec((any::<prop::sample::Index>(), 1usize..40, 0usize..4), 1..600);
        (words, picks, any::<[u8; 4]>()).prop_map(|(words, picks, odd)| {
            let made = picks.iter().cycle().flat_map(|(pick, times, noise)| {
                let word = pick.get(&words);
                let times = if *times > 30 { *times * 8 } else { *times % 4 };
                word.iter().cycle().take(word.len() * times + 1).chain(&odd[..*noise])
            });
            let mut page = [0; PAGE_BYTES];
            page.iter_mut().zip(made).for_each(|(byte, made)| *byte = *made);
            page
        })
    }

    #[test]
    fn every_offset_repeats_at_every_length_anywhere_in_the_page() {
        let mut cases = 0_usize;
        for offset in (1..=40).chain([63, 64, 65, 300]) {
            for length in (4..=80).chain([255, 256, 257, 270, 500, 2000]) {
                for at in [
                    offset,
                    1000,
                    PAGE_BYTES - 100,
                    PAGE_BYTES - length - 20,
                    PAGE_BYTES - length - 5,
                    PAGE_BYTES - length,
                ] {
                    cases += 1;
                    if at < offset || at + length > PAGE_BYTES || !cases.is_multiple_of(STRIDE) {
                        continue;
                    }
                    let block = page_with_match(at, offset, length);
                    assert!(expected(&block).is_some());
                    assert!(unpacks_as_expected(&block), "{length} bytes at {at} from {offset} back");
                }
            }
        }
    }

    #[test]
    fn every_short_sequence_unpacks() {
        let mut cases = 0_usize;
        for literals in 0..=16 {
            for length in MATCH_MIN..=20 {
                for offset in 1..=40 {
                    cases += 1;
                    if !cases.is_multiple_of(STRIDE) {
                        continue;
                    }
                    let mut block = Vec::new();
                    push_sequence(&mut block, &counting(40), Some((40, 4)));
                    let mut at = 44;
                    while at + literals + length <= PAGE_BYTES {
                        push_sequence(&mut block, &counting(literals), Some((offset, length)));
                        at += literals + length;
                    }
                    push_sequence(&mut block, &counting(PAGE_BYTES - at), None);
                    assert!(expected(&block).is_some());
                    assert!(
                        unpacks_as_expected(&block),
                        "{literals} literals, {length} bytes from {offset} back"
                    );
                }
            }
        }
    }

    #[test]
    fn a_match_that_reaches_before_the_page_or_nowhere_is_refused() {
        for at in [1, 8, 20, 100, 3000] {
            for length in [4, 10, 18, 19, 40] {
                for offset in [0, at + 1, at + 17, usize::from(u16::MAX)] {
                    let block = page_with_match(at, offset, length);
                    assert_eq!(unpack(&block, &mut [0; PAGE_BYTES]), None, "{offset} back at {at}");
                }
            }
        }
    }

    #[test]
    fn a_block_of_less_or_more_than_a_page_is_refused() {
        for bytes in [0, 1, 100, PAGE_BYTES - 1, PAGE_BYTES + 1, PAGE_BYTES + 400] {
            let mut block = Vec::new();
            push_sequence(&mut block, &counting(bytes), None);
            assert_eq!(unpack(&block, &mut [0; PAGE_BYTES]), None, "{bytes} literals");
            if bytes > 8 {
                let mut block = Vec::new();
                push_sequence(&mut block, &[7; 4], Some((3, bytes - 8)));
                push_sequence(&mut block, &[9; 4], None);
                assert_eq!(unpack(&block, &mut [0; PAGE_BYTES]), None, "{bytes} bytes");
            }
        }
        assert_eq!(unpack(&[], &mut [0; PAGE_BYTES]), None);
    }

    #[test]
    fn lengths_that_never_end_are_refused() {
        for token in [0xf0, 0x0f, 0x1f, 0xff] {
            let mut block = [255; 3840];
            block[0] = token;
            assert_eq!(unpack(&block, &mut [0; PAGE_BYTES]), None);
        }
    }

    proptest! {
        #[test]
        fn packed_pages_come_back(page in page_of_some_kind()) {
            let block = packed(&page);
            if !block.is_empty() {
                prop_assert_eq!(expected(&block), Some(page));
                prop_assert!(unpacks_as_expected(&block));
            }
        }

        #[test]
        fn garbage_unpacks_to_what_a_library_makes_of_it(block in prop::collection::vec(any::<u8>(), 0..4000)) {
            prop_assert!(unpacks_as_expected(&block));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 8 }))]

        #[test]
        fn every_truncation_is_refused(page in page_of_some_kind()) {
            let block = packed(&page);
            for bytes in (0..block.len()).step_by(STRIDE.min(61)) {
                prop_assert_eq!(unpack(&block[..bytes], &mut [0; PAGE_BYTES]), None);
            }
        }

        #[test]
        fn every_flipped_bit_is_refused_or_changes_the_page_as_a_library_says(page in page_of_some_kind()) {
            let mut block = packed(&page);
            for bit in (0..8 * block.len()).step_by(STRIDE) {
                block[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(unpacks_as_expected(&block), "bit {}", bit);
                block[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
