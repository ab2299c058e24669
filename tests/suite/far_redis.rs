//! Redis with most of its memory on memory nodes: what all tests of nodes need.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use farmem_tests::{Finished, Launcher, Node, RedisClient, Running, wait_for};

use crate::redis::{connect, load, server};

const BUDGET_BYTES: u64 = 12 << 20;
pub(crate) const KEYS: u64 = 12_000;
const SIGBUS: i32 = 7;

/// Applications that keep next to nothing in their pool, so that it goes to these nodes.
pub(crate) fn launcher(nodes: &[&Node], name: &str) -> Launcher {
    let addresses: Vec<&str> = nodes.iter().map(|node| node.address()).collect();
    small_pool(name).option("--node").option(addresses.join(","))
}

/// The same without any nodes.
pub(crate) fn small_pool(name: &str) -> Launcher {
    Launcher::managed(BUDGET_BYTES)
        .option("--pool")
        .option("6M")
        .option("--name")
        .option(name)
        .option("--summary")
}

pub(crate) fn unique(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// A Redis with all keys in it.
pub(crate) fn loaded(launcher: &Launcher) -> (Running<'_>, RedisClient) {
    let mut running = launcher.start(server("none"));
    let mut client = connect(&mut running, &launcher.file("redis.socket"));
    load(&mut client, 0..KEYS, 1);
    (running, client)
}

/// Waits until more than so many bytes are on nodes: slabs still move while one looks.
pub(crate) fn wait_for_pages_on_nodes(name: &str, bytes: u64) {
    wait_for("pages on the nodes", || (figure(name, "node_bytes") > bytes).then_some(()));
}

/// Waits until everything lies on as many nodes as it should.
pub(crate) fn wait_for_two_copies(name: &str) {
    wait_for("two copies of everything", || (figure(name, "node_lacking_bytes") == 0).then_some(()));
}

/// A figure of an application that runs.
pub(crate) fn figure(name: &str, key: &str) -> u64 {
    farmem_tests::figure(name, key).unwrap_or_else(|| panic!("farmem stat tells no {key} of {name}"))
}

/// A figure of one that has ended.
pub(crate) fn number(finished: &Finished, key: &str) -> f64 {
    finished.statistics.as_ref().expect("a managed run").as_ref().expect("complete statistics").number(key)
}

/// Ends it.
pub(crate) fn end(client: RedisClient, running: Running<'_>) -> Finished {
    client.shut_down("NOSAVE");
    let finished = running.wait();
    finished.assert_success();
    finished
}

/// Ends it. No page of it was lost.
pub(crate) fn end_with_nothing_lost(client: RedisClient, running: Running<'_>) {
    let finished = end(client, running);
    assert_eq!(number(&finished, "lost"), 0.0);
}

/// Asks for all keys until the server has ended. Once may not do: where it is a system call of the server
/// that comes upon a lost page, that call fails with EFAULT and the server closes the connection, as it does
/// with any that can't be read from.
pub(crate) fn touch_all_until_it_ends(socket: &Path) {
    let requests = (0..KEYS).map(|key| format!("GET key:{key:08}\r\n")).collect::<String>() + "QUIT\r\n";
    wait_for("the end of the server", || {
        let Ok(mut connection) = UnixStream::connect(socket) else { return Some(()) };
        let _ = connection.set_read_timeout(Some(Duration::from_secs(30)));
        // Either fails when the server goes, which is what is waited for.
        let _ = connection.write_all(requests.as_bytes());
        let _ = std::io::copy(&mut connection, &mut std::io::sink());
        None
    });
}

/// Touches all of its memory, part of which is lost: that ends it, and the summary says which page was
/// missing.
pub(crate) fn assert_ended_by_a_lost_page(running: Running<'_>, socket: &Path) {
    touch_all_until_it_ends(socket);
    let finished = running.wait();
    assert_eq!(finished.status.signal(), Some(SIGBUS), "{finished}");
    let said = String::from_utf8_lossy(&finished.stderr);
    assert!(said.contains("is lost, and with it"), "{said}");
    assert!(said.lines().any(|line| line.starts_with("farmem: page 0x")), "{said}");
}
