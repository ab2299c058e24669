//! Redis: data larger than the budget, a snapshot by a forked child while keys change, and a start from the
//! dump.

use std::path::Path;

use farmem_tests::{
    Digest, Launcher, Program, RedisClient, Reply, Running, SplitMix, Statistics, application,
    managed_runner, scaled, value_bytes, wait_for,
};

crate::at_both_shares!(snapshot_and_restart, super::snapshot_and_restart);

const LONGEST: usize = 4000;
/// Replies of one batch fit into the socket's buffers.
const BATCH: u64 = 16;

fn key(number: u64) -> Vec<u8> {
    format!("key:{number:08}").into_bytes()
}

pub(crate) fn server(dump: &str) -> Program {
    Program::new("redis-server").args(["--port", "0", "--unixsocket", "redis.socket", "--save", ""]).args([
        "--appendonly",
        "no",
        "--dbfilename",
        dump,
        "--maxclients",
        "32",
    ])
}

pub(crate) fn connect(server: &mut Running<'_>, socket: &Path) -> RedisClient {
    server.until("a server that answers", || RedisClient::connect(socket))
}

pub(crate) fn load(client: &mut RedisClient, keys: impl Iterator<Item = u64>, version: u64) {
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

/// Reads keys in the given order, one after the other, and compares every byte; gives the digest of all of
/// it.
pub(crate) fn verify(
    client: &mut RedisClient,
    keys: impl Iterator<Item = u64>,
    version_of: impl Fn(u64) -> u64,
) -> u64 {
    verify_by(client, keys, version_of, 1)
}

/// The same, of a server that takes long to reach.
pub(crate) fn verify_in_batches(
    client: &mut RedisClient,
    keys: impl Iterator<Item = u64>,
    version_of: impl Fn(u64) -> u64,
) -> u64 {
    verify_by(client, keys, version_of, BATCH as usize)
}

fn verify_by(
    client: &mut RedisClient,
    mut keys: impl Iterator<Item = u64>,
    version_of: impl Fn(u64) -> u64,
    batch: usize,
) -> u64 {
    let mut digest = Digest::new();
    loop {
        let asked: Vec<u64> = keys.by_ref().take(batch).collect();
        if asked.is_empty() {
            return digest.value();
        }
        asked.iter().for_each(|&number| client.queue(&[b"GET", &key(number)]));
        client.flush();
        for number in asked {
            let Reply::Bytes(Some(value)) = client.reply() else { panic!("key {number} is not there") };
            let version = version_of(number);
            assert!(
                value == value_bytes(number, version, LONGEST),
                "key {number} is not what version {version} of it was"
            );
            digest.add(&value);
        }
    }
}

pub(crate) fn snapshot_and_restart(launcher: &Launcher) -> String {
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

/// Ends a server that no test waits for, whatever becomes of the test.
struct Server(RedisClient);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.queue(&[b"SHUTDOWN", b"NOSAVE"]);
        self.0.flush();
    }
}

#[test]
fn a_daemon_pages_to_disk_after_farmem_run_has_returned() {
    if !managed_runner() {
        return;
    }
    const KEYS: u64 = 20_000;
    let name = format!("daemon-{}", std::process::id());
    let launcher = Launcher::managed(12 << 20).option("--name").option(&name).option("--pool").option("8M");
    let mut disk = launcher.file("far").into_os_string();
    disk.push(":256M");
    let launcher = launcher.option("--disk").option(disk);

    let finished = launcher.run(server("none").args(["--daemonize", "yes"])).success();
    let of_program = finished.statistics.expect("a managed run").expect("complete statistics");
    let socket = launcher.file("redis.socket");
    let mut daemon = Server(wait_for("a server that answers", || RedisClient::connect(&socket)));
    load(&mut daemon.0, 0..KEYS, 1);
    verify(&mut daemon.0, 0..KEYS, |_| 1);

    let figures = application(&name).expect("farmem stat lists what was left behind");
    assert!(figures["disk_bytes"].as_u64() > Some(0), "nothing went to the disk: {figures}");
    drop(daemon);
    wait_for("the end of the supervisor", || application(&name).is_none().then_some(()));
    let of_all = Statistics::read(&launcher.file("statistics.0.json")).expect("complete statistics");
    assert_eq!(of_program.number("evicted"), 0.0, "the daemon did the work");
    assert!(of_all.number("evicted") > 0.0, "the figures are those of the daemon, too");
}
