//! What programs write: pages of each kind that the store treats in its own way.

use std::rc::Rc;

use farmem_page::{PAGE_BYTES, PageBytes};

/// The page that a number stands for: of zeros, of one word, compressible, or not.
pub(crate) fn page(number: u64) -> Rc<PageBytes> {
    let mut page = [0; PAGE_BYTES];
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let word = next();
    let (words, _) = page.as_chunks_mut::<8>();
    match number % 8 {
        0 => {}
        1 => words.fill(word.to_le_bytes()),
        2..=5 => words.iter_mut().enumerate().for_each(|(at, place)| {
            *place = if at % 8 == 0 { next().to_le_bytes() } else { word.to_le_bytes() };
        }),
        _ => words.iter_mut().for_each(|place| *place = next().to_le_bytes()),
    }
    Rc::new(page)
}
