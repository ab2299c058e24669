//! Many memory nodes, some of them dead: a program starts with those that are there.

use std::net::TcpListener;
use std::thread;
use std::time::Instant;

use farmem_tests::{Launcher, Node, Program, managed_runner};

const NODES: usize = 200;
const DEAD: usize = 20;

/// Nodes, as many at a time as are quick to start so.
fn nodes(count: usize) -> Vec<Node> {
    const AT_ONCE: usize = 8;
    let start = || (0..count.div_ceil(AT_ONCE)).map(|_| Node::start("8M")).collect::<Vec<Node>>();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(start)).collect();
        let started = threads.into_iter().flat_map(|thread| thread.join().expect("nodes that listen"));
        started.take(count).collect()
    })
}

#[test]
fn a_program_starts_with_two_hundred_nodes_of_which_twenty_are_dead() {
    if !managed_runner() {
        return;
    }
    let alive = nodes(NODES - DEAD);
    // Half of the dead accept connections and say nothing. Nobody listens where the others were.
    let sockets: Vec<TcpListener> =
        (0..DEAD).map(|_| TcpListener::bind("127.0.0.1:0").expect("an address")).collect();
    let dead: Vec<String> =
        sockets.iter().map(|socket| socket.local_addr().expect("it listens").to_string()).collect();
    let silent: Vec<TcpListener> = sockets.into_iter().take(DEAD / 2).collect();
    // Every tenth is dead.
    let mut addresses: Vec<&str> = alive.iter().map(Node::address).collect();
    dead.iter().enumerate().for_each(|(nth, address)| addresses.insert(nth * 10, address));

    let launcher = Launcher::managed(64 << 20)
        .option("--pool")
        .option("64M")
        .option("--redundancy")
        .option("4+2")
        .option("--node")
        .option(addresses.join(","));
    let began = Instant::now();
    let finished = launcher.run(Program::new("/bin/echo").arg("here")).success();
    eprintln!("with {NODES} nodes, {DEAD} of them dead, a program took {:?}", began.elapsed());

    assert_eq!(finished.text().trim(), "here");
    let said = String::from_utf8_lossy(&finished.stderr);
    for address in &dead {
        assert!(said.contains(&format!("node {address} can't be reached")), "{address}: {said}");
    }
    assert_eq!(said.matches("can't be reached").count(), DEAD, "{said}");
    drop(silent);
}
