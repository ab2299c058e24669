//! Hints do nothing without Farmem.

use farmem_hints::{Prefetcher, cold, is_present, pin, prefetch};

#[test]
fn every_call_succeeds_and_does_nothing() {
    let memory = vec![7_u64; 100_000];

    assert!(!is_present());
    assert_eq!(prefetch(&memory[5..77]), Ok(()));
    assert_eq!(cold(&memory), Ok(()));
    assert_eq!(prefetch::<u8>(&[]), Ok(()));
    let pins = [pin(&memory), pin(&memory[..3])].map(|pin| pin.expect("harmless"));
    drop(pins);
    let prefetcher = Prefetcher::register(|_| unreachable!("there are no faults"), 50).expect("harmless");
    drop(prefetcher);

    assert!(memory.iter().all(|&word| word == 7));
}
