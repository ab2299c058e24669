//! Virtual machines: a guest's memory is its emulator's, and is paged as any program's. Redis runs in the
//! guests.

use farmem_tests::{
    GuestMemory, Host, Launcher, RedisClient, Running, Share, SplitMix, application, assert_within_budget,
    is_large, managed_runner, same_at, scaled, start_guest, wait_for,
};

use crate::redis::{load, verify_in_batches as verify};

const MEBIBYTE: u64 = 1 << 20;

/// What the guest's kernel, its files and Redis itself take, and some room.
const WITHOUT_KEYS_MEBIBYTES: u64 = 112;
/// What Redis takes for a thousand keys, and some room.
const THOUSAND_KEYS_MEBIBYTES: u64 = 3;

fn guest(launcher: &Launcher, keys: u64) -> (Running<'_>, RedisClient) {
    guest_in(launcher, GuestMemory::Private, keys)
}

fn guest_in(launcher: &Launcher, memory: GuestMemory, keys: u64) -> (Running<'_>, RedisClient) {
    start_guest(launcher, memory, WITHOUT_KEYS_MEBIBYTES + THOUSAND_KEYS_MEBIBYTES * keys / 1000)
}

fn end(running: Running<'_>, client: RedisClient) {
    client.shut_down("NOSAVE");
    running.wait().assert_success();
}

#[test]
fn a_guest_at_half_of_its_memory_keeps_every_key() {
    same_at(Share::Half, keep_keys);
}

#[test]
fn a_guest_at_a_quarter_of_its_memory_keeps_every_key() {
    // Emulated it takes a while.
    if is_large() {
        same_at(Share::Quarter, keep_keys);
    }
}

fn keep_keys(launcher: &Launcher) -> String {
    let keys = scaled(16_000);
    let (running, mut client) = guest(launcher, keys);
    load(&mut client, 0..keys, 0);
    let mut random = SplitMix::new(3);
    let order: Vec<u64> = (0..keys / 4).map(|_| random.below(keys)).collect();
    let mut transcript = format!("random reads {:x}\n", verify(&mut client, order.into_iter(), |_| 0));
    load(&mut client, 0..keys / 4, 1);
    let version_of = |number| u64::from(number < keys / 4);
    transcript += &format!("all keys {:x}\n", verify(&mut client, (0..keys).rev(), version_of));
    end(running, client);
    transcript
}

/// The kernel asks nobody when a page of a memory file is read by its descriptor, so it stays local.
#[test]
fn a_guest_whose_memory_other_processes_could_map_keeps_every_key() {
    // Emulated it takes a while.
    if !is_large() || !managed_runner() {
        return;
    }
    let name = format!("memory-file-guest-{}", std::process::id());
    let launcher = Launcher::managed(64 * MEBIBYTE).option("--name").option(&name);
    launcher.let_overshoot();
    let keys = 16_000;
    let (running, mut client) = guest_in(&launcher, GuestMemory::MemoryFile, keys);
    load(&mut client, 0..keys, 1);
    wait_for("what stays local", || (number(&name, "shared_local_bytes") > 64 * MEBIBYTE).then_some(()));
    assert_eq!(number(&name, "shared_far_bytes"), 0);
    verify(&mut client, 0..keys, |_| 1);
    end(running, client);
}

fn number(name: &str, key: &str) -> u64 {
    let figures = wait_for("the application's figures", || application(name));
    figures[key].as_u64().unwrap_or_else(|| panic!("{key} is in {figures}"))
}

/// One guest has filled its part of the pool and does nothing any more. Another one that works gets what that
/// one holds, though its own disk would have room as well.
#[test]
fn a_guest_that_works_gets_the_share_of_the_pool_that_an_idle_one_held() {
    // Two guests, emulated, take a while.
    if !is_large() || !managed_runner() {
        return;
    }
    const LOCAL_BYTES: u64 = 80 * MEBIBYTE;
    const POOL_BYTES: u64 = 64 * MEBIBYTE;
    let keys = 14_000;
    let host = Host::start(&["--pool", "64M"]);
    let [idle, busy] = ["idle-guest", "busy-guest"].map(|name| format!("{name}-{}", std::process::id()));
    let launchers = [&idle, &busy].map(|name| {
        host.launcher(name, LOCAL_BYTES).option("--no-borrow").option("--disk").option("/dev/shm:512M")
    });
    let leased = |name: &str| number(name, "pool_leased_bytes");

    let (running_idle, mut client_idle) = guest(&launchers[0], keys);
    load(&mut client_idle, 0..keys, 1);
    assert!(leased(&idle) > POOL_BYTES / 2, "alone it has more than its half");
    let (running_busy, mut client_busy) = guest(&launchers[1], keys);
    let mut version = 1;
    wait_for("the idle guest's share", || {
        version += 1;
        load(&mut client_busy, 0..keys, version);
        (leased(&busy) > POOL_BYTES * 5 / 8).then_some(())
    });
    assert!(leased(&idle) < POOL_BYTES / 2);
    assert!(number(&idle, "disk_bytes") > 0, "what it gave up is on its disk");

    verify(&mut client_busy, 0..keys, |_| version);
    verify(&mut client_idle, 0..keys, |_| 1);
    end(running_idle, client_idle);
    end(running_busy, client_busy);
    for launcher in &launchers {
        assert_within_budget(launcher, 128 * MEBIBYTE);
    }
    assert!(!host.said().contains("dropped"), "{}", host.said());
}
