//! Pages that are stored raw and packed by somebody else.
mod support;

use farmem_page::{PAGE_BYTES, PageIndex, Place};
use farmem_store::{
    Epoch, FreeOutcome, NullFile, OwnerId, Packed, Packer, Packing, Pool, Reader, Update, Writer,
};
use farmem_sys::shared::SharedMemory;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use support::{Random, page, pool};

const OWNER: OwnerId = OwnerId(1);
const NOW: Epoch = Epoch::FIRST;
const QUEUE: u64 = 1024;

fn hurried() -> Writer {
    let mut writer = Writer::new(OWNER);
    writer.set_packing(Packing::Later);
    writer
}

fn content(pool: &Pool<SharedMemory>, place: Place) -> [u8; PAGE_BYTES] {
    let mut content = [0; PAGE_BYTES];
    Reader::new(NullFile).load(pool, place, &mut content).expect("it is stored");
    content
}

#[test]
fn a_raw_page_gets_a_packed_copy() {
    let pool = pool(4, 0);
    pool.announce_packer();
    assert!(pool.is_packing_later(OWNER));
    let raw = hurried().store(&pool, &page(7, 1000), NOW).unwrap();
    assert!(pool.ask_to_pack(OWNER, PageIndex::new(70), raw));
    assert_eq!(pool.next_packed(OWNER), None);
    let mut packer = Packer::new();
    assert!(packer.step(&pool, OWNER) && !packer.step(&pool, OWNER));
    let Some(Packed { page: number, raw: asked, packed: Some(packed) }) = pool.next_packed(OWNER) else {
        panic!("it was packed")
    };
    assert_eq!((number, asked), (PageIndex::new(70), raw));
    assert!(packed != raw && pool.is_same(raw, packed));
    assert_eq!(content(&pool, packed), page(7, 1000));
    pool.settle_packed(OWNER);
    assert_eq!(pool.next_packed(OWNER), None);
    assert_eq!(pool.free(raw, OWNER, Epoch::NONE), FreeOutcome::Freed);
    assert_eq!(content(&pool, packed), page(7, 1000));
}

#[test]
fn a_pool_says_that_pages_stay_as_they_are() {
    let pool = pool(4, 0);
    assert!(!pool.is_raw());
    pool.store_raw();
    assert!(pool.is_raw());
    let mut writer = Writer::new(OWNER);
    writer.set_packing(Packing::Never);
    let place = writer.store(&pool, &page(7, 1000), NOW).unwrap();
    assert_eq!(content(&pool, place), page(7, 1000));
    assert_eq!(pool.usage().stored_bytes.get(), PAGE_BYTES as u64);
    // What repeats one word takes no room all the same.
    assert_eq!(writer.store(&pool, &[0; PAGE_BYTES], NOW), Ok(Place::Zero));
}

#[test]
fn what_does_not_get_smaller_stays_raw() {
    let pool = pool(4, 0);
    let raw = hurried().store(&pool, &page(1, PAGE_BYTES), NOW).unwrap();
    assert!(pool.ask_to_pack(OWNER, PageIndex::new(1), raw));
    assert!(Packer::new().step(&pool, OWNER));
    assert_eq!(pool.next_packed(OWNER), Some(Packed { page: PageIndex::new(1), raw, packed: None }));
}

#[test]
fn a_page_that_was_written_again_is_told_from_its_copy() {
    let pool = pool(4, 0);
    let mut writer = hurried();
    let raw = writer.store(&pool, &page(1, 500), NOW).unwrap();
    assert!(pool.ask_to_pack(OWNER, PageIndex::new(1), raw));
    assert!(Packer::new().step(&pool, OWNER));
    assert_eq!(writer.update(&pool, raw, &page(2, 500), NOW, Epoch::NONE), Ok(Update::InPlace(raw)));
    let packed = pool.next_packed(OWNER).and_then(|done| done.packed).expect("it was packed before");
    assert!(!pool.is_same(raw, packed));
    assert_eq!(content(&pool, raw), page(2, 500));
}

#[test]
fn an_entry_that_has_gone_is_not_packed() {
    let pool = pool(4, 0);
    let raw = hurried().store(&pool, &page(1, 500), NOW).unwrap();
    assert!(pool.ask_to_pack(OWNER, PageIndex::new(1), raw));
    assert_eq!(pool.free(raw, OWNER, Epoch::NONE), FreeOutcome::Freed);
    assert!(Packer::new().step(&pool, OWNER));
    assert_eq!(pool.next_packed(OWNER).and_then(|done| done.packed), None);
}

#[test]
fn a_full_queue_refuses_and_a_released_owner_leaves_none() {
    let pool = pool(40, 0);
    pool.announce_packer();
    let raw = hurried().store(&pool, &page(1, 500), NOW).unwrap();
    for number in 0..QUEUE {
        assert!(pool.ask_to_pack(OWNER, PageIndex::new(number), raw));
    }
    assert!(!pool.is_packing_later(OWNER));
    assert!(!pool.ask_to_pack(OWNER, PageIndex::new(0), raw));
    pool.release_owner(OWNER);
    assert!(pool.is_packing_later(OWNER));
    assert!(!Packer::new().step(&pool, OWNER));
}

#[test]
fn empty_slabs_are_kept_for_raw_pages_until_the_packer_rests() {
    let pool = pool(8, 0);
    pool.announce_packer();
    let mut writer = hurried();
    let places: Vec<Place> =
        (0..200).map(|number| writer.store(&pool, &page(number, 100), NOW).unwrap()).collect();
    places.iter().for_each(|&place| assert_eq!(pool.free(place, OWNER, Epoch::NONE), FreeOutcome::Freed));
    let free = pool.usage().frames_free;
    pool.give_back_spare();
    assert!(pool.usage().frames_free > free, "{free} frames were free");
}

/// An owner that stores, rewrites, frees and takes packed entries as fast as it can, while a packer works.
#[test]
fn beside_a_packer_every_page_keeps_its_bytes() {
    const PAGES: u64 = 300;
    let pool = pool(64, 0);
    pool.announce_packer();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut packer = Packer::new();
            while !is_over.load(Ordering::Relaxed) {
                if !packer.step(&pool, OWNER) {
                    thread::yield_now();
                }
            }
        });
        let mut random = Random(11);
        let mut writer = Writer::new(OWNER);
        let mut entries: Vec<Option<(Place, u64)>> = vec![None; PAGES as usize];
        let mut taken = 0;
        for round in 0..60_000u64 {
            let number = random.below(PAGES);
            let entry = &mut entries[number as usize];
            match (random.below(8), *entry) {
                (0, Some((place, _))) => {
                    pool.free(place, OWNER, Epoch::NONE);
                    *entry = None;
                }
                (1 | 2, Some((place, written))) => assert_eq!(content(&pool, place), page(written, 700)),
                _ => {
                    let is_later = pool.is_packing_later(OWNER);
                    writer.set_packing(if is_later { Packing::Later } else { Packing::Now });
                    let old = entry.map(|(place, _)| place);
                    let place = match old {
                        None => writer.store(&pool, &page(round, 700), NOW).unwrap(),
                        Some(old) => {
                            match writer.update(&pool, old, &page(round, 700), NOW, Epoch::NONE).unwrap() {
                                Update::Clean => old,
                                Update::InPlace(place) => place,
                                Update::Moved { new } => {
                                    pool.free(old, OWNER, Epoch::NONE);
                                    new
                                }
                            }
                        }
                    };
                    *entry = Some((place, round));
                    if is_later {
                        assert!(pool.ask_to_pack(OWNER, PageIndex::new(number), place));
                    }
                }
            }
            while let Some(Packed { page: number, raw, packed }) = pool.next_packed(OWNER) {
                if let Some(packed) = packed {
                    let entry = &mut entries[number.get() as usize];
                    match entry {
                        Some((place, _)) if *place == raw && pool.is_same(raw, packed) => {
                            *place = packed;
                            taken += 1;
                            pool.free(raw, OWNER, Epoch::NONE);
                        }
                        _ => {
                            pool.free(packed, OWNER, Epoch::NONE);
                        }
                    }
                }
                pool.settle_packed(OWNER);
            }
        }
        is_over.store(true, Ordering::Relaxed);
        for (place, written) in entries.into_iter().flatten() {
            assert_eq!(content(&pool, place), page(written, 700));
        }
        assert!(taken > 0, "something was packed in time");
    });
}
