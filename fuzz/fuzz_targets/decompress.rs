//! Stored pages of any content are unpacked to a page or refused, and touch nothing else. The address
//! sanitizer watches.
#![no_main]

use farmem_codec::{Compressor, ENCODED_MAX_BYTES, Encoded, decompress};
use farmem_page::PAGE_BYTES;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|garbage: &[u8]| {
    // On the heap and of their exact size, so that one byte too many is found.
    let stored = garbage.to_vec().into_boxed_slice();
    let mut page = Box::new([0; PAGE_BYTES]);
    if decompress(&stored, &mut page).is_ok() {
        let mut out = vec![0; ENCODED_MAX_BYTES];
        let mut again = Box::new([0; PAGE_BYTES]);
        match Compressor::new().compress(&page, &mut out) {
            Encoded::Packed(length) => {
                decompress(&out[..length], &mut again).expect("what was packed unpacks")
            }
            Encoded::Raw => again = page.clone(),
        }
        assert!(again == page);
    }
});
