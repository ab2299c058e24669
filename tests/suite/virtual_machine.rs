//! Virtual machines: a guest's memory is its emulator's, and is paged as any program's. Redis runs in the guests.

use farmem_tests::{Launcher, RedisClient, Running, Share, SplitMix, is_large, same_at, scaled, start_guest};

use crate::redis::{load, verify_in_batches as verify};

/// What the guest's kernel, its files and Redis itself take, and some room.
const WITHOUT_KEYS_MEBIBYTES: u64 = 112;
/// What Redis takes for a thousand keys, and some room.
const THOUSAND_KEYS_MEBIBYTES: u64 = 3;

fn guest(launcher: &Launcher, keys: u64) -> (Running<'_>, RedisClient) {
    start_guest(launcher, WITHOUT_KEYS_MEBIBYTES + THOUSAND_KEYS_MEBIBYTES * keys / 1000)
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
