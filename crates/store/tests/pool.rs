//! What the pool promises, one behaviour at a time.

mod support;

use farmem_page::{ByteCount, PAGE_BYTES, Place};
use farmem_store::{
    AttachError, Epoch, FreeOutcome, LimitError, LoadError, Mover, NoNodes, NullFile, OwnerId, Pool,
    PoolConfig, PoolUsage, Reader, SLAB_BYTES, StepOutcome, StoreError, Update, WINDOW_BYTES, Writer,
};
use farmem_sys::shared::SharedMemory;
use support::{MemoryFile, config, page, pool, with_config};

const ONE: OwnerId = OwnerId(1);
const TWO: OwnerId = OwnerId(2);
const NOW: Epoch = Epoch::FIRST;

fn load(pool: &Pool<SharedMemory>, place: Place) -> Result<[u8; PAGE_BYTES], LoadError> {
    let mut out = [0xee; PAGE_BYTES];
    Reader::new(NullFile).load(pool, place, &mut out).map(|_| out)
}

#[test]
fn pages_of_every_kind_come_back() {
    let pool = pool(32, 0);
    let mut writer = Writer::new(ONE);
    for noisy_bytes in (0..=PAGE_BYTES).step_by(120) {
        let page = page(noisy_bytes as u64, noisy_bytes);
        let place = writer.store(&pool, &page, NOW).unwrap();
        assert!(load(&pool, place).unwrap() == page, "{noisy_bytes} noisy bytes");
    }
}

#[test]
fn an_empty_page_takes_no_slot() {
    let pool = pool(1, 0);
    assert_eq!(Writer::new(ONE).store(&pool, &[0; PAGE_BYTES], NOW), Ok(Place::Zero));
    assert!(load(&pool, Place::Zero).unwrap() == [0; PAGE_BYTES]);
}

#[test]
fn a_page_of_one_word_takes_a_pattern_until_the_table_is_full() {
    let pool = pool(8, 0);
    let mut writer = Writer::new(ONE);
    let mut slots = 0;
    for word in 1..6000u64 {
        let mut page = [0; PAGE_BYTES];
        page.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&word.to_le_bytes()));
        let place = writer.store(&pool, &page, NOW).unwrap();
        assert_eq!(writer.store(&pool, &page, NOW).unwrap() == place, matches!(place, Place::Pattern(_)));
        slots += u32::from(matches!(place, Place::Slot(_)));
        assert!(load(&pool, place).unwrap() == page);
    }
    assert!(slots > 1000 && slots < 2600, "{slots}");
    assert!(pool.usage().patterns <= farmem_store::PATTERN_LIMIT);
}

#[test]
fn an_unchanged_page_is_clean_and_a_changed_one_keeps_its_slot() {
    let pool = pool(8, 0);
    let mut writer = Writer::new(ONE);
    let place = writer.store(&pool, &page(1, 2000), NOW).unwrap();
    assert_eq!(writer.update(&pool, place, &page(1, 2000), NOW, Epoch::NONE), Ok(Update::Clean));
    assert_eq!(writer.update(&pool, place, &page(2, 2000), NOW, Epoch::NONE), Ok(Update::InPlace(place)));
    assert!(load(&pool, place).unwrap() == page(2, 2000));
    assert_eq!(pool.usage().stored_pages.get(), 1);
}

#[test]
fn a_page_that_outgrows_its_slot_moves() {
    let pool = pool(8, 0);
    let mut writer = Writer::new(ONE);
    let old = writer.store(&pool, &page(1, 500), NOW).unwrap();
    let Ok(Update::Moved { new }) = writer.update(&pool, old, &page(2, 3000), NOW, Epoch::NONE) else {
        panic!()
    };
    assert!(load(&pool, new).unwrap() == page(2, 3000));
    assert!(load(&pool, old).unwrap() == page(1, 500));
    assert_eq!(pool.free(old, ONE, Epoch::NONE), FreeOutcome::Freed);
    assert_eq!(load(&pool, old), Err(LoadError::Gone));
}

#[test]
fn a_frozen_slot_neither_changes_nor_goes() {
    let pool = pool(8, 0);
    let mut writer = Writer::new(ONE);
    let old = writer.store(&pool, &page(1, 2000), NOW).unwrap();
    let (frozen, later) = (NOW, NOW.next());
    let Ok(Update::Moved { new }) = writer.update(&pool, old, &page(2, 2000), later, frozen) else {
        panic!()
    };
    assert_eq!(pool.free(old, ONE, frozen), FreeOutcome::Frozen);
    assert!(load(&pool, old).unwrap() == page(1, 2000));
    assert_eq!(writer.update(&pool, new, &page(3, 2000), later, frozen), Ok(Update::InPlace(new)));
    assert_eq!(pool.free(old, ONE, Epoch::NONE), FreeOutcome::Freed);
}

#[test]
fn another_owner_neither_frees_nor_overwrites_a_slot() {
    let pool = pool(8, 0);
    let place = Writer::new(ONE).store(&pool, &page(1, 2000), NOW).unwrap();
    assert_eq!(pool.free(place, TWO, Epoch::NONE), FreeOutcome::Foreign);
    let update = Writer::new(TWO).update(&pool, place, &page(2, 2000), NOW, Epoch::NONE);
    assert!(matches!(update, Ok(Update::Moved { new }) if new != place));
    assert!(load(&pool, place).unwrap() == page(1, 2000));
}

#[test]
fn a_slot_is_freed_once() {
    let pool = pool(8, 0);
    let place = Writer::new(ONE).store(&pool, &page(1, 2000), NOW).unwrap();
    assert_eq!(pool.free(place, ONE, Epoch::NONE), FreeOutcome::Freed);
    assert_eq!(pool.free(place, ONE, Epoch::NONE), FreeOutcome::NoSlot);
}

#[test]
fn a_full_pool_says_so_and_serves_again_once_pages_go() {
    let pool = pool(2, 0);
    let mut writer = Writer::new(ONE);
    let places: Vec<_> =
        (0..128).map(|number| writer.store(&pool, &page(number, PAGE_BYTES), NOW).unwrap()).collect();
    assert_eq!(writer.store(&pool, &page(999, PAGE_BYTES), NOW), Err(StoreError::Full));
    assert_eq!(writer.store(&pool, &page(998, 100), NOW), Err(StoreError::Full));
    assert_eq!(pool.free(places[17], ONE, Epoch::NONE), FreeOutcome::Freed);
    let place = writer.store(&pool, &page(998, 100), NOW).unwrap();
    assert!(load(&pool, place).unwrap() == page(998, 100));
    assert!(load(&pool, places[18]).unwrap() == page(18, PAGE_BYTES));
}

#[test]
fn a_limit_can_be_raised_to_the_capacity_and_lowered_below_what_is_in_use() {
    let bytes = |slabs: usize| ByteCount::new((slabs * SLAB_BYTES) as u64);
    let config = PoolConfig { capacity: bytes(4), ..config(2, 0) };
    let pool = with_config(&config);
    let mut writer = Writer::new(ONE);
    let mut fill = |count| {
        let stored = (0..count).map_while(|number| writer.store(&pool, &page(number, PAGE_BYTES), NOW).ok());
        stored.collect::<Vec<_>>()
    };
    assert_eq!(fill(999).len(), 128);
    pool.set_limit(bytes(4)).unwrap();
    let places = fill(999);
    assert_eq!(places.len(), 128);
    pool.set_limit(bytes(1)).unwrap();
    assert_eq!((pool.usage().limit, pool.usage().slab_bytes_in_memory), (bytes(1), bytes(4)));
    assert_eq!(fill(1).len(), 0);
    for (number, place) in places.iter().enumerate() {
        assert!(load(&pool, *place).unwrap() == page(number as u64, PAGE_BYTES));
    }
    assert_eq!(pool.set_limit(bytes(5)), Err(LimitError::TooLarge { most: bytes(4) }));
    assert_eq!(pool.set_limit(ByteCount::new(1)), Err(LimitError::TooSmall));
}

#[test]
fn a_partition_bounds_memory_and_disk_together() {
    let bytes = |slabs: usize| ByteCount::new((slabs * SLAB_BYTES) as u64);
    let (pool, file) = (pool(10, 20), MemoryFile::new(20));
    let (mut writer, mut mover) = (Writer::new(ONE), Mover::new(&pool));
    let mut fill = |pool: &Pool<SharedMemory>| {
        let mut places = Vec::new();
        while let Ok(place) = writer.store(pool, &page(places.len() as u64, PAGE_BYTES), NOW) {
            places.push(place);
            while let StepOutcome::Moved { .. } = mover.step(pool, &file, &mut NoNodes) {}
        }
        places
    };
    assert_eq!(pool.set_partition(ByteCount::new(1)), Err(LimitError::TooSmall));
    pool.set_partition(bytes(12)).unwrap();
    let places = fill(&pool);
    assert_eq!(places.len(), 12 * 64);
    assert!(pool.usage().disk_bytes > bytes(0));
    // Lowered, it holds although the slabs with the lowest numbers become free.
    pool.set_partition(bytes(6)).unwrap();
    for place in &places[..4 * 64] {
        pool.free(*place, ONE, Epoch::NONE);
    }
    assert_eq!((fill(&pool).len(), pool.usage().partition), (0, bytes(6)));
    for place in &places[4 * 64..9 * 64] {
        pool.free(*place, ONE, Epoch::NONE);
    }
    assert_eq!(fill(&pool).len(), 3 * 64);
    pool.set_partition(bytes(999)).unwrap();
    assert_eq!(pool.usage().partition, bytes(30));
}

#[test]
fn an_emptied_slab_is_given_back_but_for_the_one_being_filled() {
    let pool = pool(8, 0);
    let mut writer = Writer::new(ONE);
    let places: Vec<_> =
        (0..192).map(|number| writer.store(&pool, &page(number, PAGE_BYTES), NOW).unwrap()).collect();
    assert_eq!(pool.usage().frames_free, 5);
    for place in places {
        assert_eq!(pool.free(place, ONE, Epoch::NONE), FreeOutcome::Freed);
    }
    let usage = pool.usage();
    assert_eq!((usage.frames_free, usage.stored_pages.get(), usage.stored_bytes.get()), (7, 0, 0));
}

#[test]
fn holes_are_filled_before_new_slabs_are_leased() {
    let pool = pool(8, 0);
    let mut writer = Writer::new(ONE);
    let places: Vec<_> =
        (0..256).map(|number| writer.store(&pool, &page(number, PAGE_BYTES), NOW).unwrap()).collect();
    for place in places.iter().step_by(2) {
        pool.free(*place, ONE, Epoch::NONE);
    }
    for number in 0..128 {
        writer.store(&pool, &page(number, PAGE_BYTES), NOW).unwrap();
    }
    assert_eq!(pool.usage().frames_free, 4);
}

#[test]
fn what_a_dead_owner_held_is_free_and_the_others_keep_theirs() {
    let pool = pool(8, 0);
    let (mut one, mut two) = (Writer::new(ONE), Writer::new(TWO));
    for number in 0..100 {
        one.store(&pool, &page(number, PAGE_BYTES), NOW).unwrap();
    }
    let kept = two.store(&pool, &page(7, 3000), NOW).unwrap();
    pool.release_owner(ONE);
    let usage = pool.usage();
    assert_eq!((usage.frames_free, usage.stored_pages.get()), (7, 1));
    assert!(load(&pool, kept).unwrap() == page(7, 3000));
}

/// Whether any of a pool's memory holds the beginning of a page that doesn't compress. A slot begins at a
/// multiple of 256 bytes.
fn is_anywhere(pool: &Pool<SharedMemory>, number: u64) -> bool {
    let mut content = vec![0; pool.memory().length_bytes()];
    assert!(pool.memory().copy_out(0, &mut content));
    let page = page(number, PAGE_BYTES);
    content.chunks(256).any(|slot| slot == &page[..256])
}

/// The kernel gives zeros for what was given back to it: to this space, and to whoever gets that memory next.
#[test]
fn what_is_freed_moved_away_or_left_by_the_dead_is_gone_from_the_memory() {
    let (pool, file) = (pool(10, 20), MemoryFile::new(20));
    let (mut writer, mut mover) = (Writer::new(ONE), Mover::new(&pool));
    let places: Vec<_> =
        (0..64 * 9).map(|number| writer.store(&pool, &page(number, PAGE_BYTES), NOW).unwrap()).collect();
    let first_of_slabs = |slabs: std::ops::Range<u64>| slabs.map(|slab| slab * 64);
    assert!(first_of_slabs(0..9).all(|number| is_anywhere(&pool, number)));

    while let StepOutcome::Moved { .. } = mover.step(&pool, &file, &mut NoNodes) {}
    assert_eq!(pool.away_slabs().0, 2);
    assert!(!first_of_slabs(0..2).any(|number| is_anywhere(&pool, number)), "a slab on disk");

    for place in &places[64 * 2..64 * 4] {
        assert_eq!(pool.free(*place, ONE, Epoch::NONE), FreeOutcome::Freed);
    }
    assert!(!first_of_slabs(2..4).any(|number| is_anywhere(&pool, number)), "a slab that was given back");

    assert!(first_of_slabs(4..9).all(|number| is_anywhere(&pool, number)));
    pool.release_owner(ONE);
    assert!(!first_of_slabs(4..9).any(|number| is_anywhere(&pool, number)), "a slab of the dead");
}

#[test]
fn past_four_fifths_the_oldest_slabs_move_to_disk_and_are_read_from_there() {
    let pool = pool(10, 20);
    let file = MemoryFile::new(20);
    let (mut writer, mut mover, mut reader) = (Writer::new(ONE), Mover::new(&pool), Reader::new(&file));
    let mut places = Vec::new();
    for number in 0..64 * 20 {
        places.push(writer.store(&pool, &page(number, PAGE_BYTES), NOW).unwrap());
        while let StepOutcome::Moved { .. } = mover.step(&pool, &file, &mut NoNodes) {}
    }
    let usage = pool.usage();
    assert!(usage.slab_bytes_in_memory.get() <= 8 * SLAB_BYTES as u64);
    assert!(usage.disk_bytes.get() >= 12 * SLAB_BYTES as u64);
    let mut out = [0; PAGE_BYTES];
    for (number, place) in places.iter().enumerate() {
        reader.load(&pool, *place, &mut out).unwrap();
        assert!(out == page(number as u64, PAGE_BYTES), "page {number}");
    }
    assert!(file.largest_read.get() <= 2 * PAGE_BYTES);
    assert_eq!(writer.update(&pool, places[0], &page(0, PAGE_BYTES), NOW, Epoch::NONE), Ok(Update::Clean));
    assert!(matches!(
        writer.update(&pool, places[0], &page(5000, PAGE_BYTES), NOW, Epoch::NONE),
        Ok(Update::Moved { .. })
    ));
    for place in places {
        pool.free(place, ONE, Epoch::NONE);
    }
    assert_eq!(pool.usage().disk_bytes.get(), 0);
}

/// Twenty slabs of pages of one owner, all but the last ones of them on disk, and the last four slabs free
/// again.
fn mostly_on_disk(pool: &Pool<SharedMemory>, file: &MemoryFile, mover: &mut Mover) -> Vec<Place> {
    let mut writer = Writer::new(ONE);
    let mut places = Vec::new();
    for number in 0..64 * 20 {
        places.push(writer.store(pool, &page(number, PAGE_BYTES), NOW).unwrap());
        while let StepOutcome::Moved { .. } = mover.step(pool, file, &mut NoNodes) {}
    }
    for place in places.drain(64 * 16..) {
        assert_eq!(pool.free(place, ONE, Epoch::NONE), FreeOutcome::Freed);
    }
    places
}

/// Memory for a window, aligned as disks want it.
fn window() -> &'static mut [u8] {
    let memory = vec![0; WINDOW_BYTES + PAGE_BYTES].leak();
    let start = memory.as_ptr().align_offset(PAGE_BYTES);
    &mut memory[start..][..WINDOW_BYTES]
}

#[test]
fn who_reads_page_by_page_from_disk_reads_sixteen_at_once_and_who_does_not_reads_one() {
    let (pool, file) = (pool(10, 20), MemoryFile::new(20));
    let places = mostly_on_disk(&pool, &file, &mut Mover::new(&pool));
    let mut reader = Reader::new(&file).with_window(window());
    let mut out = [0; PAGE_BYTES];
    let mut count_reads = |numbers: &mut dyn Iterator<Item = usize>| {
        file.reads.set(0);
        for number in numbers {
            reader.load(&pool, places[number], &mut out).unwrap();
            assert!(out == page(number as u64, PAGE_BYTES), "page {number}");
        }
        file.reads.get()
    };
    // One, and then four of 16, the last of which ends with the block.
    assert_eq!(count_reads(&mut (0..64)), 5);
    assert_eq!(count_reads(&mut (64..128).rev()), 5);
    // Two that go through a block by turns, from far apart.
    assert_eq!(count_reads(&mut (128..144).flat_map(|number| [number, number + 32])), 32);
    assert_eq!(file.largest_read.get(), WINDOW_BYTES);
}

#[test]
fn what_a_window_holds_of_an_earlier_content_is_not_used_for_the_next() {
    let (pool, file) = (pool(4, 2), MemoryFile::new(2));
    let (mut writer, mut mover) = (Writer::new(ONE), Mover::new(&pool));
    let mut reader = Reader::new(&file).with_window(window());
    let mut out = [0; PAGE_BYTES];
    for round in 0..6 {
        let number = |nth: u64| round * 1000 + nth;
        let places: Vec<Place> = (0..64 * 5)
            .map(|nth| {
                let place = writer.store(&pool, &page(number(nth), PAGE_BYTES), NOW).unwrap();
                while let StepOutcome::Moved { .. } = mover.step(&pool, &file, &mut NoNodes) {}
                place
            })
            .collect();
        for (nth, place) in places.iter().enumerate() {
            reader.load(&pool, *place, &mut out).unwrap();
            assert!(out == page(number(nth as u64), PAGE_BYTES), "round {round}, page {nth}");
        }
        for place in places {
            pool.free(place, ONE, Epoch::NONE);
        }
    }
    assert_eq!(file.largest_read.get(), WINDOW_BYTES);
}

#[test]
fn a_window_that_is_damaged_is_read_anew_and_one_that_fails_costs_nothing() {
    let (pool, file) = (pool(10, 20), MemoryFile::new(20));
    let places = mostly_on_disk(&pool, &file, &mut Mover::new(&pool));
    let mut reader = Reader::new(&file).with_window(window());
    let mut out = [0; PAGE_BYTES];
    let whole = file.bytes.lock().unwrap().clone();
    reader.load(&pool, places[0], &mut out).unwrap();
    // The window is read while the disk gives other bytes.
    file.bytes.lock().unwrap()[2 * PAGE_BYTES..64 * PAGE_BYTES].fill(7);
    reader.load(&pool, places[1], &mut out).unwrap();
    file.bytes.lock().unwrap().copy_from_slice(&whole);
    for (number, place) in places.iter().enumerate().take(16).skip(2) {
        reader.load(&pool, *place, &mut out).unwrap();
        assert!(out == page(number as u64, PAGE_BYTES), "page {number}");
    }
    file.fails_in.set(0);
    assert_eq!(reader.load(&pool, places[40], &mut out), Err(LoadError::Io));
    file.fails_in.set(-1);
    reader.load(&pool, places[40], &mut out).unwrap();
    assert!(out == page(40, PAGE_BYTES));
}

#[test]
fn who_takes_the_last_spare_frame_wakes_the_mover() {
    let pool = pool(10, 20);
    let mut writer = Writer::new(ONE);
    let hour_ns = 3_600_000_000_000;
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            while pool.usage().slab_bytes_in_memory.get() <= 8 * SLAB_BYTES as u64 {
                pool.await_shortage(hour_ns);
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        for number in 0..64 * 9 {
            writer.store(&pool, &page(number, PAGE_BYTES), NOW).unwrap();
        }
        sleeper.join().unwrap();
    });
    // It is short already.
    pool.await_shortage(hour_ns);
}

#[test]
fn a_slab_that_is_read_comes_back_from_disk_when_there_is_room() {
    let (pool, file) = (pool(10, 20), MemoryFile::new(20));
    let (mut mover, mut reader) = (Mover::new(&pool), Reader::new(&file));
    let places = mostly_on_disk(&pool, &file, &mut mover);
    let before = pool.usage();
    assert_eq!(mover.raise(&pool, &file, &mut NoNodes), StepOutcome::Idle, "nobody has read");

    let mut out = [0; PAGE_BYTES];
    for place in &places[..8] {
        reader.load(&pool, *place, &mut out).unwrap();
    }
    assert_eq!(mover.raise(&pool, &file, &mut NoNodes), StepOutcome::Raised { slabs: 1 });
    assert_eq!(mover.raise(&pool, &file, &mut NoNodes), StepOutcome::Idle);
    let after = pool.usage();
    assert_eq!(after.disk_bytes.get() + SLAB_BYTES as u64, before.disk_bytes.get());
    assert_eq!((after.stored_pages, after.slabs_raised), (before.stored_pages, 1));
    // Its neighbours are there without the disk, and can be written in place.
    file.fails_in.set(0);
    for (number, place) in places[..64].iter().enumerate() {
        reader.load(&pool, *place, &mut out).unwrap();
        assert!(out == page(number as u64, PAGE_BYTES), "page {number}");
    }
    let update = Writer::new(ONE).update(&pool, places[0], &page(5000, PAGE_BYTES), NOW, Epoch::NONE);
    assert_eq!(update, Ok(Update::InPlace(places[0])));
    for place in places {
        assert_eq!(pool.free(place, ONE, Epoch::NONE), FreeOutcome::Freed);
    }
    assert_eq!((pool.usage().disk_bytes.get(), pool.usage().stored_pages.get()), (0, 0));
}

#[test]
fn slabs_come_back_no_further_than_slabs_move_to_disk() {
    let (pool, file) = (pool(10, 20), MemoryFile::new(20));
    let (mut mover, mut reader) = (Mover::new(&pool), Reader::new(&file));
    let places = mostly_on_disk(&pool, &file, &mut mover);
    let mut out = [0; PAGE_BYTES];
    for place in &places {
        reader.load(&pool, *place, &mut out).unwrap();
    }
    while let StepOutcome::Raised { .. } = mover.raise(&pool, &file, &mut NoNodes) {}
    assert_eq!(pool.usage().slab_bytes_in_memory.get(), 7 * SLAB_BYTES as u64);
    assert_eq!(mover.step(&pool, &file, &mut NoNodes), StepOutcome::Idle);
    for (number, place) in places.iter().enumerate() {
        reader.load(&pool, *place, &mut out).unwrap();
        assert!(out == page(number as u64, PAGE_BYTES), "page {number}");
    }
}

#[test]
fn more_slabs_that_are_read_than_are_remembered_all_come_back() {
    const SLABS: usize = 150;
    let file = MemoryFile::new(SLABS);
    let capacity = ByteCount::new(4 * (SLABS * SLAB_BYTES) as u64);
    let pool = with_config(&PoolConfig { capacity, ..config(SLABS, SLABS) });
    let (mut mover, mut reader, mut writer) = (Mover::new(&pool), Reader::new(&file), Writer::new(ONE));
    let places: Vec<Place> = (0..64 * SLABS as u64)
        .map(|number| writer.store(&pool, &page(number, PAGE_BYTES), NOW).unwrap())
        .collect();
    pool.set_limit(ByteCount::new(SLAB_BYTES as u64)).unwrap();
    while let StepOutcome::Moved { .. } = mover.step(&pool, &file, &mut NoNodes) {}
    let away = pool.away_slabs().0;
    pool.set_limit(capacity).unwrap();
    // What was noted before there was a mover is not known to be all.
    assert_eq!(mover.raise(&pool, &file, &mut NoNodes), StepOutcome::Idle);

    let mut out = [0; PAGE_BYTES];
    for place in places.chunks(64).flat_map(|of_slab| &of_slab[..4]) {
        reader.load(&pool, *place, &mut out).unwrap();
    }
    let mut raised = 0;
    while let StepOutcome::Raised { slabs } = mover.raise(&pool, &file, &mut NoNodes) {
        raised += slabs;
    }

    assert_eq!((raised, pool.away_slabs().0), (away, 0));
    assert!(away > 128, "{away}");
}

#[test]
fn slabs_that_nobody_reads_come_back_last_stored_first_while_there_is_much_room() {
    let file = MemoryFile::new(20);
    let capacity = ByteCount::new(30 * SLAB_BYTES as u64);
    let config = PoolConfig { capacity, ..config(10, 20) };
    let pool = with_config(&config);
    let mut mover = Mover::new(&pool);
    let places = mostly_on_disk(&pool, &file, &mut mover);
    let (in_memory, on_disk) = (pool.slabs_in_memory(), pool.away_slabs().0);
    // Room for two more.
    let limit = ((in_memory + 2) * 100).div_ceil(65);
    pool.set_limit(ByteCount::new((limit * SLAB_BYTES) as u64)).unwrap();
    assert_eq!(mover.raise_unread(&pool, &file, &mut NoNodes), StepOutcome::Raised { slabs: 2 });
    assert_eq!(mover.raise_unread(&pool, &file, &mut NoNodes), StepOutcome::Idle);
    // The slabs on disk are the first ones: the last two of those are back, and need no disk.
    let is_back = |slab: &usize| load(&pool, places[64 * slab]).is_ok();
    assert_eq!((0..on_disk).filter(is_back).collect::<Vec<_>>(), [on_disk - 2, on_disk - 1]);

    pool.set_limit(capacity).unwrap();
    while let StepOutcome::Raised { .. } = mover.raise_unread(&pool, &file, &mut NoNodes) {}
    assert_eq!(pool.usage().disk_bytes.get(), 0);
    for (number, place) in places.iter().enumerate() {
        assert!(load(&pool, *place).unwrap() == page(number as u64, PAGE_BYTES), "page {number}");
    }
}

#[test]
fn slabs_that_came_back_unread_are_the_first_to_leave_again() {
    let (pool, file) = (pool(10, 20), MemoryFile::new(20));
    let mut mover = Mover::new(&pool);
    let places = mostly_on_disk(&pool, &file, &mut mover);
    let in_memory = || {
        let is_there = |place: &&Place| load(&pool, **place).is_ok();
        places.iter().filter(is_there).copied().collect::<Vec<_>>()
    };
    let before = in_memory();
    assert!(matches!(mover.raise_unread(&pool, &file, &mut NoNodes), StepOutcome::Raised { .. }));
    assert!(in_memory().len() > before.len());

    pool.set_limit(ByteCount::new((pool.slabs_in_memory() * SLAB_BYTES) as u64)).unwrap();
    while let StepOutcome::Moved { .. } = mover.step(&pool, &file, &mut NoNodes) {}
    assert!(in_memory().iter().all(|place| before.contains(place)));
}

#[test]
fn a_slab_that_cannot_be_read_stays_on_disk() {
    let (pool, file) = (pool(10, 20), MemoryFile::new(20));
    let (mut mover, mut reader) = (Mover::new(&pool), Reader::new(&file));
    let places = mostly_on_disk(&pool, &file, &mut mover);
    let before = pool.usage();
    let mut out = [0; PAGE_BYTES];
    let mut read_some = || {
        for place in &places[..8] {
            reader.load(&pool, *place, &mut out).unwrap();
        }
    };
    read_some();
    file.fails_in.set(0);
    assert!(matches!(mover.raise(&pool, &file, &mut NoNodes), StepOutcome::DiskFailing { .. }));
    assert_eq!(pool.usage(), PoolUsage { away_reads: before.away_reads + 8, ..before });
    file.fails_in.set(-1);
    read_some();
    assert_eq!(mover.raise(&pool, &file, &mut NoNodes), StepOutcome::Raised { slabs: 1 });
}

#[test]
fn a_slab_that_cannot_be_read_keeps_no_other_from_coming_back() {
    const BLOCKS: usize = 20;
    let capacity = ByteCount::new(30 * SLAB_BYTES as u64);
    let config = PoolConfig { capacity, ..config(10, BLOCKS) };
    for block in 0..3 {
        let (pool, file) = (with_config(&config), MemoryFile::new(BLOCKS));
        let mut mover = Mover::new(&pool);
        let places = mostly_on_disk(&pool, &file, &mut mover);
        pool.set_limit(capacity).unwrap();
        file.unreadable_at.set(Some((block * SLAB_BYTES) as u64));
        let turns = std::iter::repeat_with(|| mover.raise_unread(&pool, &file, &mut NoNodes));
        assert!(turns.take(BLOCKS).any(|outcome| outcome == StepOutcome::Idle), "it is not tried for ever");
        assert_eq!(pool.usage().disk_bytes.get(), SLAB_BYTES as u64);

        file.unreadable_at.set(None);
        let (mut reader, mut page_read) = (Reader::new(&file), [0; PAGE_BYTES]);
        for (number, place) in places.iter().enumerate() {
            reader.load(&pool, *place, &mut page_read).unwrap();
            assert!(page_read == page(number as u64, PAGE_BYTES), "page {number}");
        }
        assert_eq!(mover.raise(&pool, &file, &mut NoNodes), StepOutcome::Raised { slabs: 1 });
    }
}

#[test]
fn a_disk_that_fails_leaves_everything_in_memory_and_is_tried_again() {
    let pool = pool(10, 20);
    let file = MemoryFile::new(20);
    let (mut writer, mut mover) = (Writer::new(ONE), Mover::new(&pool));
    let places: Vec<_> =
        (0..64 * 9).map(|number| writer.store(&pool, &page(number, PAGE_BYTES), NOW).unwrap()).collect();
    file.fails_in.set(0);
    let first = mover.step(&pool, &file, &mut NoNodes);
    let second = mover.step(&pool, &file, &mut NoNodes);
    let (StepOutcome::DiskFailing { retry_after_ms: one }, StepOutcome::DiskFailing { retry_after_ms: two }) =
        (first, second)
    else {
        panic!("{first:?}, {second:?}")
    };
    assert!(two > one);
    assert_eq!((pool.usage().disk_writes_failed, pool.usage().disk_bytes.get()), (2, 0));
    for (number, place) in places.iter().enumerate() {
        assert!(load(&pool, *place).unwrap() == page(number as u64, PAGE_BYTES));
    }
    file.fails_in.set(-1);
    assert!(matches!(mover.step(&pool, &file, &mut NoNodes), StepOutcome::Moved { .. }));
}

#[test]
fn a_pool_without_disk_is_full_rather_than_failing() {
    let pool = pool(10, 0);
    let (mut writer, mut mover) = (Writer::new(ONE), Mover::new(&pool));
    for number in 0..64 * 9 {
        writer.store(&pool, &page(number, PAGE_BYTES), NOW).unwrap();
    }
    assert_eq!(mover.step(&pool, &NullFile, &mut NoNodes), StepOutcome::Full);
}

#[test]
fn a_flipped_bit_in_a_slot_is_found() {
    let pool = pool(1, 0);
    let place = Writer::new(ONE).store(&pool, &page(1, PAGE_BYTES), NOW).unwrap();
    let length = pool.memory().length_bytes();
    let mut frame = vec![0; SLAB_BYTES];
    assert!(pool.memory().copy_out(length - SLAB_BYTES, &mut frame));
    let at = frame.iter().position(|byte| *byte != 0).unwrap() + 100;
    frame[at] ^= 1;
    assert!(pool.memory().copy_in(length - SLAB_BYTES, &frame));
    assert_eq!(load(&pool, place), Err(LoadError::Corrupt));
}

#[test]
fn another_process_finds_the_pool_and_reads_it() {
    let config = config(4, 0);
    let bytes = config.memory_bytes().unwrap();
    let first = Pool::create(SharedMemory::create(c"farmem-test-pool", bytes).unwrap(), &config).unwrap();
    let second = Pool::attach(first.memory()).unwrap();
    let place = Writer::new(ONE).store(&first, &page(3, 1000), NOW).unwrap();
    let mut out = [0; PAGE_BYTES];
    Reader::new(NullFile).load(&second, place, &mut out).unwrap();
    assert!(out == page(3, 1000));
}

#[test]
fn memory_without_a_pool_is_refused() {
    let memory = SharedMemory::create(c"farmem-test-pool", 1 << 20).unwrap();
    assert_eq!(Pool::attach(&memory).err(), Some(AttachError::Foreign));
    assert_eq!(Pool::create(&memory, &config(4, 0)).err(), Some(AttachError::TooShort));
}
