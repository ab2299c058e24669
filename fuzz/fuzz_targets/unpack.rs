//! Blocks of any content unpack to the page that `lz4_flex` makes of them, or are refused by both. The
//! address sanitizer watches.
#![no_main]

use farmem_codec::{PACKED_LIMIT_BYTES, decompress};
use farmem_page::PAGE_BYTES;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|garbage: &[u8]| {
    // On the heap and of their exact size, so that one byte too many is found.
    let block = garbage[..garbage.len().min(PACKED_LIMIT_BYTES)].to_vec().into_boxed_slice();
    let mut expected = Box::new([0; PAGE_BYTES]);
    let is_page = matches!(lz4_flex::block::decompress_into(&block, expected.as_mut()), Ok(PAGE_BYTES));
    for before in [0, 0xff] {
        let mut page = Box::new([before; PAGE_BYTES]);
        assert_eq!(decompress(&block, &mut page).is_ok(), is_page);
        assert!(!is_page || page == expected);
    }
});
