//! Threads that build, change and check maps: threads COUNT ENTRIES ROUNDS. Prints a checksum of all that
//! they have; one that finds something else than it wrote ends the program.

use std::collections::BTreeMap;

fn content(key: u64, round: u64) -> Vec<u8> {
    let mut state = key ^ round << 40;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()
    };
    (0..64).flat_map(next).collect()
}

fn work(owner: u64, entries: u64, rounds: u64) -> u64 {
    let keys = || (0..entries).map(|nth| (owner << 32 | nth).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut map: BTreeMap<u64, Vec<u8>> = keys().map(|key| (key, content(key, 0))).collect();
    let mut checksum = 0_u64;
    for round in 1..=rounds {
        for (&key, text) in &mut map {
            assert!(*text == content(key, round - 1), "entry {key} of thread {owner} in round {round}");
            checksum = text.iter().fold(checksum, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
            *text = content(key, round);
        }
    }
    checksum
}

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).map(|word| word.parse().expect("a number")).collect();
    let &[count, entries, rounds] = &numbers[..] else { panic!("three numbers") };
    let threads: Vec<_> =
        (0..count).map(|owner| std::thread::spawn(move || work(owner, entries, rounds))).collect();
    let sums = threads.into_iter().map(|thread| thread.join().expect("its entries are as it wrote them"));
    println!("{:x}", sums.fold(0_u64, |sum, one| sum.rotate_left(7) ^ one));
}
