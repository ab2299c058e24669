//! Redis: data larger than the budget, a snapshot by a forked child while keys change, and a start from the dump.

use std::path::Path;

use farmem_tests::{
    Digest, Launcher, Program, RedisClient, Reply, Running, SplitMix, scaled, value_bytes, wait_for,
};

crate::at_both_shares!(snapshot_and_restart, super::snapshot_and_restart);

const LONGEST: usize = 4000;
/// Replies of one batch fit into the socket's buffers.
const BATCH: u64 = 16;

fn key(number: u64) -> Vec<u8> {
    format!("key:{number:08}").into_bytes()
}

fn server(dump: &str) -> Program {
    Program::new("redis-server").args(["--port", "0", "--unixsocket", "redis.socket", "--save", ""]).args([
        "--appendonly",
        "no",
        "--dbfilename",
        dump,
        "--maxclients",
        "32",
    ])
}

fn connect(server: &mut Running<'_>, socket: &Path) -> RedisClient {
    server.until("a server that answers", || RedisClient::connect(socket))
}

fn load(client: &mut RedisClient, keys: impl Iterator<Item = u64>, version: u64) {
    let mut pending = 0;
    let settle = |client: &mut RedisClient, pending: &mut u64| {
        client.flush();
        for _ in 0..std::mem::take(pending) {
            assert_eq!(client.reply(), Reply::Line("OK".to_owned()));
        }
    };
    for number in keys {
        client.queue(&[b"SET", &key(number), &value_bytes(number, version, LONGEST)]);
        pending += 1;
        if pending == BATCH {
            settle(client, &mut pending);
        }
    }
    settle(client, &mut pending);
}

/// Reads keys in the given order and compares every byte; gives the digest of all of it.
fn verify(client: &mut RedisClient, keys: impl Iterator<Item = u64>, version_of: impl Fn(u64) -> u64) -> u64 {
    let mut digest = Digest::new();
    for number in keys {
        let Reply::Bytes(Some(value)) = client.call(&[b"GET", &key(number)]) else {
            panic!("key {number} is not there")
        };
        let version = version_of(number);
        assert!(
            value == value_bytes(number, version, LONGEST),
            "key {number} is not what version {version} of it was"
        );
        digest.add(&value);
    }
    digest.value()
}

fn snapshot_and_restart(launcher: &Launcher) -> String {
    let keys = scaled(30_000);
    let updates = keys / 4;
    let socket = launcher.file("redis.socket");
    let mut random = SplitMix::new(2);
    let mut transcript = String::new();

    let mut running = launcher.start(server("dump.rdb"));
    let mut client = connect(&mut running, &socket);
    load(&mut client, 0..keys, 0);
    let order: Vec<u64> = (0..keys / 2).map(|_| random.below(keys)).collect();
    transcript += &format!("random reads {:x}\n", verify(&mut client, order.into_iter(), |_| 0));

    // The child that saves sees the moment of the fork, whatever is written from then on.
    assert!(matches!(client.call(&[b"BGSAVE"]), Reply::Line(_)));
    load(&mut client, 0..updates, 1);
    wait_for("the end of the snapshot", || {
        let state = client.info("persistence");
        state.contains("rdb_bgsave_in_progress:0").then_some(state)
    });
    assert!(client.info("persistence").contains("rdb_last_bgsave_status:ok"), "the snapshot failed");
    std::fs::copy(launcher.file("dump.rdb"), launcher.file("snapshot.rdb")).expect("the dump is there");
    let version_of = |number| u64::from(number < updates);
    transcript += &format!("all keys {:x}\n", verify(&mut client, 0..keys, version_of));
    transcript += &format!("{:?}\n", client.call(&[b"DBSIZE"]));
    client.shut_down("SAVE");
    running.wait().assert_success();

    let mut running = launcher.start(server("dump.rdb"));
    let mut client = connect(&mut running, &socket);
    transcript += &format!("after the restart {:x}\n", verify(&mut client, 0..keys, version_of));
    client.shut_down("NOSAVE");
    running.wait().assert_success();

    let mut running = launcher.start(server("snapshot.rdb"));
    let mut client = connect(&mut running, &socket);
    transcript += &format!("of the snapshot {:x}\n", verify(&mut client, 0..keys, |_| 0));
    client.shut_down("NOSAVE");
    running.wait().assert_success();
    transcript
}
