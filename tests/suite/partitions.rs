//! A link to a node that is cut, and repaired: for a moment, and for longer than a node is waited for.

use std::thread;
use std::time::Duration;

use farmem_tests::{Network, Node, managed_runner, wait_for};

use crate::far_redis::{
    KEYS, end_with_nothing_lost, figure, launcher, loaded, unique, wait_for_pages_on_nodes,
    wait_for_two_copies,
};
use crate::redis::{load, verify};

#[test]
fn pages_beyond_a_link_that_is_cut_for_a_moment_are_waited_for() {
    if !managed_runner() {
        return;
    }
    let (network, name) = (Network::enter(), unique("cut"));
    let node = network.node("256M");
    let launcher = launcher(&[&node], &name).option("--plain");
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);
    for _ in 0..2 {
        network.cut();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(1500));
                network.repair();
            });
            verify(&mut client, 0..KEYS, |_| 1);
        });
    }
    end_with_nothing_lost(client, running);
}

#[test]
fn a_node_beyond_a_link_that_is_cut_for_long_is_done_without_and_comes_back_with_what_it_held() {
    if !managed_runner() {
        return;
    }
    let (network, name) = (Network::enter(), unique("partition"));
    let (beyond, mut beside) = (network.node("256M"), Node::start("256M"));
    let launcher = launcher(&[&beyond, &beside], &name).option("--plain");
    let launcher = launcher.option("--redundancy").option("mirror");
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);
    // A node that was late has its copies later: until then a block is on one node alone.
    wait_for_two_copies(&name);
    network.cut();
    verify(&mut client, 0..KEYS, |_| 1);
    wait_for("its loss to be known", || (figure(&name, "node_lacking_bytes") > 0).then_some(()));
    // Written while one of two copies can't be.
    load(&mut client, 0..KEYS / 3, 2);
    let version = |key: u64| if key < KEYS / 3 { 2 } else { 1 };
    verify(&mut client, 0..KEYS, version);
    network.repair();
    wait_for_two_copies(&name);
    // Now the other one alone is enough.
    beside.kill();
    verify(&mut client, 0..KEYS, version);
    end_with_nothing_lost(client, running);
}
