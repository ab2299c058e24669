//! Redundancy by parity: six memory nodes, each slab cut into four parts with two of parity, while nodes are
//! killed, slow, lying, and back again. Every byte that Redis gives back is compared.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use farmem_tests::{Finished, Launcher, Node, RedisClient, Running, application, managed_runner, wait_for};

use crate::far_redis::{
    self, KEYS, assert_ended_by_a_lost_page, figure, number, unique, wait_for_pages_on_nodes,
};
use crate::redis::{load, verify};

fn six() -> Vec<Node> {
    (0..6).map(|_| Node::start("64M")).collect()
}

fn launcher(nodes: &[Node], name: &str) -> Launcher {
    let nodes: Vec<&Node> = nodes.iter().collect();
    far_redis::launcher(&nodes, name).option("--redundancy").option("4+2")
}

/// A Redis with all keys in it, most of them on nodes.
fn loaded<'a>(launcher: &'a Launcher, name: &str) -> (Running<'a>, RedisClient) {
    let loaded = far_redis::loaded(launcher);
    wait_for_pages_on_nodes(name, 4 << 20);
    loaded
}

/// Ends it: no page may have been lost.
fn end(client: RedisClient, running: Running<'_>) -> Finished {
    let finished = far_redis::end(client, running);
    assert_eq!(number(&finished, "lost"), 0.0);
    finished
}

#[test]
fn one_and_then_another_node_are_killed_and_no_byte_is_wrong() {
    if !managed_runner() {
        return;
    }
    let (mut nodes, name) = (six(), unique("two-lost"));
    let launcher = launcher(&nodes, &name);
    let (running, mut client) = loaded(&launcher, &name);
    // Blocks that slabs have left are given back a fifth of a second later.
    wait_for("1.5 times as much on nodes as there is", || {
        let figures = application(&name)?;
        let (kept, stored) = (figures["node_bytes"].as_u64()?, figures["node_stored_bytes"].as_u64()?);
        (stored >= kept / 2 * 3 / 2 && stored <= kept * 2).then_some(())
    });
    nodes[1].kill();
    verify(&mut client, 0..KEYS, |_| 1);
    load(&mut client, 0..KEYS / 3, 2);
    nodes[4].kill();
    verify(&mut client, (0..KEYS).rev(), |key| if key < KEYS / 3 { 2 } else { 1 });
    wait_for("the loss to be known", || (figure(&name, "node_lacking_bytes") > 0).then_some(()));
    verify(&mut client, 0..KEYS, |key| if key < KEYS / 3 { 2 } else { 1 });
    let finished = end(client, running);
    assert!(number(&finished, "node_reads_around") > 0.0);
}

#[test]
fn the_third_node_that_is_killed_ends_who_touches_what_was_there() {
    if !managed_runner() {
        return;
    }
    let (mut nodes, name) = (six(), unique("three-lost"));
    let launcher = launcher(&nodes, &name);
    let (running, _client) = loaded(&launcher, &name);
    (0..3).for_each(|node| nodes[node].kill());
    assert_ended_by_a_lost_page(running, &launcher.file("redis.socket"));
}

#[test]
fn a_node_that_comes_back_empty_is_filled_again_and_then_two_others_may_go() {
    if !managed_runner() {
        return;
    }
    let (mut nodes, name) = (six(), unique("again"));
    let launcher = launcher(&nodes, &name);
    let (running, mut client) = loaded(&launcher, &name);
    nodes[0].kill();
    nodes[0].start_again();
    verify(&mut client, 0..KEYS / 2, |_| 1);
    wait_for("a redundancy that is whole again", || {
        let figures = application(&name)?;
        let is_whole = figures["node_lacking_bytes"].as_u64()? == 0;
        (is_whole && figures["node_rebuilt_bytes"].as_u64()? > 0).then_some(())
    });
    nodes[2].kill();
    nodes[5].kill();
    verify(&mut client, 0..KEYS, |_| 1);
    end(client, running);
}

#[test]
fn a_node_that_is_slow_is_gone_around() {
    if !managed_runner() {
        return;
    }
    let (nodes, name) = (six(), unique("slow-node"));
    let launcher = launcher(&nodes, &name);
    let (running, mut client) = loaded(&launcher, &name);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Too short for it to be away.
            while !is_over.load(Ordering::Acquire) {
                nodes[3].stop();
                thread::sleep(Duration::from_millis(200));
                nodes[3].go_on();
                thread::sleep(Duration::from_millis(20));
            }
        });
        verify(&mut client, 0..KEYS, |_| 1);
        is_over.store(true, Ordering::Release);
    });
    let finished = end(client, running);
    assert!(number(&finished, "node_reads_around") > 0.0 && number(&finished, "node_reads_late") > 0.0);
}

#[test]
fn a_node_that_lies_is_found_out_and_costs_nothing() {
    if !managed_runner() {
        return;
    }
    let (nodes, name) = (six(), unique("liar"));
    let launcher = launcher(&nodes, &name);
    let (running, mut client) = loaded(&launcher, &name);
    nodes[2].damage();
    verify(&mut client, 0..KEYS, |_| 1);
    load(&mut client, 0..KEYS / 3, 2);
    verify(&mut client, 0..KEYS, |key| if key < KEYS / 3 { 2 } else { 1 });
    let finished = end(client, running);
    assert!(number(&finished, "node_damaged") > 0.0);
    let said = String::from_utf8_lossy(&finished.stderr);
    assert!(said.contains("sends other bytes than were written"), "{said}");
}
