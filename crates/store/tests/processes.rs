//! Several processes on one pool, one of them killed again and again. Each process is this test binary,
//! started with a role in its environment; it checks every byte it reads and says by its exit status whether
//! all was right.

mod support;

use farmem_page::{PAGE_BYTES, Place};
use farmem_store::{
    Epoch, FreeOutcome, Mover, NoNodes, OwnerId, Pool, Reader, StepOutcome, StoreError, Update, Writer,
};
use farmem_sys::disk::DiskFile;
use farmem_sys::shared::SharedMemory;
use farmem_sys::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use std::collections::BTreeMap;
use std::env;
use std::ffi::CString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};
use support::{Random, config, page};

const FRAMES: usize = 48;
const BLOCKS: usize = 64;
const OPERATIONS: u64 = 20_000;
const THREADS: u64 = 2;
const KILLS: usize = 12;
const LIMIT: Duration = Duration::from_secs(300);
const ROLE: &str = "FARMEM_TEST_ROLE";

/// Not a test by itself: what a child process runs.
#[test]
fn child() {
    let Ok(role) = env::var(ROLE) else { return };
    let mut words = role.split(' ');
    let owner = OwnerId(words.next().unwrap().parse().unwrap());
    let reopen = |path: &str| -> OwnedFd {
        open(CString::new(path).unwrap().as_c_str(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap()
    };
    let length_bytes = config(FRAMES, BLOCKS).memory_bytes().unwrap();
    let memory = SharedMemory::attach(reopen(words.next().unwrap()), length_bytes).unwrap();
    let pool = Pool::attach(memory).unwrap();
    let disk = DiskFile::attach(reopen(words.next().unwrap()));
    thread::scope(|scope| {
        for nth in 0..THREADS {
            let (pool, disk) = (&pool, &disk);
            scope.spawn(move || hammer(pool, disk, owner, nth));
        }
    });
}

fn hammer(pool: &Pool<SharedMemory>, disk: &DiskFile, owner: OwnerId, nth: u64) {
    let mut random = Random(u64::from(owner.0) << 8 | nth);
    let (mut writer, mut reader) = (Writer::new(owner), Reader::new(disk));
    let mut pages: BTreeMap<u64, (Place, u64, usize)> = BTreeMap::new();
    let mut out = [0; PAGE_BYTES];
    let mut verify = |place: Place, number: u64, noisy_bytes: usize| {
        reader.load(pool, place, &mut out).unwrap_or_else(|error| panic!("{place:?}: {error}"));
        assert!(out == page(number, noisy_bytes), "{place:?} holds something else");
    };
    for operation in 0..OPERATIONS {
        let which = random.below(700);
        let number = u64::from(owner.0) << 40 | nth << 32 | operation;
        let noisy_bytes = random.below(PAGE_BYTES as u64 / 8) as usize * 8;
        match (pages.get(&which).copied(), random.below(4)) {
            (None, _) => match writer.store(pool, &page(number, noisy_bytes), Epoch::FIRST) {
                Ok(place) => drop(pages.insert(which, (place, number, noisy_bytes))),
                Err(StoreError::Full) => thread::sleep(Duration::from_millis(1)),
            },
            (Some((place, old, old_noisy)), 0) => {
                verify(place, old, old_noisy);
                assert_eq!(pool.free(place, owner, Epoch::NONE), FreeOutcome::Freed);
                pages.remove(&which);
            }
            (Some((place, old, old_noisy)), 1) => {
                match writer.update(pool, place, &page(number, noisy_bytes), Epoch::FIRST, Epoch::NONE) {
                    Ok(Update::Clean) => panic!("a changed page was taken for clean"),
                    Ok(Update::InPlace(place)) => drop(pages.insert(which, (place, number, noisy_bytes))),
                    Ok(Update::Moved { new }) => {
                        verify(place, old, old_noisy);
                        assert_eq!(pool.free(place, owner, Epoch::NONE), FreeOutcome::Freed);
                        pages.insert(which, (new, number, noisy_bytes));
                    }
                    Err(StoreError::Full) => thread::sleep(Duration::from_millis(1)),
                }
            }
            (Some((place, number, noisy_bytes)), _) => verify(place, number, noisy_bytes),
        }
    }
    for (place, number, noisy_bytes) in pages.into_values() {
        verify(place, number, noisy_bytes);
        assert_eq!(pool.free(place, owner, Epoch::NONE), FreeOutcome::Freed);
    }
}

#[test]
fn processes_that_share_a_pool_keep_their_bytes_while_one_is_killed_again_and_again() {
    let config = config(FRAMES, BLOCKS);
    let memory = SharedMemory::create(c"farmem-test-pool", config.memory_bytes().unwrap()).unwrap();
    let pool = Pool::create(memory, &config).unwrap();
    let directory = CString::new(env::temp_dir().into_os_string().into_encoded_bytes()).unwrap();
    let disk = DiskFile::create(&directory, config.disk.get()).unwrap();
    let link = |descriptor: i32| format!("/proc/{}/fd/{descriptor}", std::process::id());
    let (memory_link, disk_link) = (link(pool.memory().file().as_raw_fd()), link(disk.file().as_raw_fd()));
    let start = |owner: u16| -> Child {
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture", "-q"])
            .env(ROLE, format!("{owner} {memory_link} {disk_link}"))
            .spawn()
            .unwrap()
    };
    let mut mover = Mover::new(&pool);
    let mut steady = [start(1), start(2)];
    let mut victim = start(3);
    let (mut kills, mut killed_alive, mut random) = (0, 0, Random(11));
    let began = Instant::now();
    let mut next_kill = Duration::from_millis(30);
    loop {
        assert!(began.elapsed() < LIMIT, "somebody hangs");
        if let StepOutcome::Idle | StepOutcome::NothingMovable = mover.step(&pool, &disk, &mut NoNodes) {
            thread::sleep(Duration::from_millis(1));
        }
        if kills < KILLS && began.elapsed() > next_kill {
            victim.kill().unwrap();
            killed_alive += u32::from(victim.wait().unwrap().signal().is_some());
            pool.release_owner(OwnerId(3));
            kills += 1;
            next_kill = began.elapsed() + Duration::from_millis(10 + random.below(80));
            victim = start(3);
        }
        let ended = |child: &mut Child| child.try_wait().unwrap().is_some();
        if kills == KILLS && steady.iter_mut().all(ended) && ended(&mut victim) {
            break;
        }
    }
    let statuses: Vec<ExitStatus> =
        steady.iter_mut().chain([&mut victim]).map(|child| child.wait().unwrap()).collect();
    assert!(statuses.iter().all(ExitStatus::success), "{statuses:?}");
    assert!(killed_alive > 0, "every victim had ended before it was killed");
    let usage = pool.usage();
    assert_eq!((usage.stored_pages.get(), usage.stored_bytes.get(), usage.disk_bytes.get()), (0, 0, 0));
    assert!(usage.slabs_moved > 0, "the disk was never used");
    (1..=3).for_each(|owner| pool.release_owner(OwnerId(owner)));
    assert_eq!(pool.usage().slab_bytes_in_memory.get(), 0);
}
