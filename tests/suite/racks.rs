//! Racks: nodes that say in which they are, so that a rack may fail.

use std::ffi::OsStr;

use farmem_tests::{Launcher, Node, application, managed_runner, wait_for};

use crate::far_redis::{self, KEYS, end_with_nothing_lost, figure, loaded, unique, wait_for_pages_on_nodes};
use crate::redis::verify;

const RACKS: [&str; 3] = ["row-1/a", "row-1/b", "row-2/a"];

fn in_rack(rack: &str) -> Node {
    Node::start_with("64M", &[OsStr::new("--rack"), OsStr::new(rack)])
}

fn launcher(nodes: &[Node], name: &str, redundancy: &str) -> Launcher {
    let nodes: Vec<&Node> = nodes.iter().collect();
    far_redis::launcher(&nodes, name).option("--redundancy").option(redundancy)
}

#[test]
fn all_nodes_of_a_rack_are_killed_and_no_byte_is_wrong() {
    if !managed_runner() {
        return;
    }
    for redundancy in ["2+1", "4+2"] {
        // Two in each rack, and those of a rack are not next to each other.
        let mut nodes: Vec<Node> = (0..6).map(|node| in_rack(RACKS[node % 3])).collect();
        let name = unique(&format!("rack-lost-{}", &redundancy[..1]));
        let launcher = launcher(&nodes, &name, redundancy);
        let (running, mut client) = loaded(&launcher);
        wait_for_pages_on_nodes(&name, 4 << 20);
        wait_for("three racks that are known, of which any may fail", || {
            (figure(&name, "node_racks") == 3 && figure(&name, "node_exposed_bytes") == 0).then_some(())
        });
        [1, 4].into_iter().for_each(|node| nodes[node].kill());
        verify(&mut client, 0..KEYS, |_| 1);
        wait_for("the loss to be known, and what can be to be made good", || {
            let figures = application(&name)?;
            let is_known =
                figures["node_lacking_bytes"].as_u64()? > 0 || figures["node_rebuilt_bytes"].as_u64()? > 0;
            is_known.then_some(())
        });
        verify(&mut client, (0..KEYS).rev(), |_| 1);
        end_with_nothing_lost(client, running);
    }
}

#[test]
fn what_two_racks_hold_too_much_of_is_said_and_goes_to_a_third_that_comes_back() {
    if !managed_runner() {
        return;
    }
    let mut nodes: Vec<Node> = (0..6).map(|node| in_rack(RACKS[node % 3])).collect();
    let name = unique("rack-back");
    let launcher = launcher(&nodes, &name, "2+1");
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 4 << 20);
    [2, 5].into_iter().for_each(|node| nodes[node].kill());
    // With two racks left, one has two of a block's three shards.
    wait_for("a redundancy that is whole again, in two racks", || {
        let figures = application(&name)?;
        let is_whole = figures["node_lacking_bytes"].as_u64()? == 0;
        (is_whole && figures["node_exposed_bytes"].as_u64()? > 0).then_some(())
    });
    verify(&mut client, 0..KEYS / 4, |_| 1);
    [2, 5]
        .into_iter()
        .for_each(|node| nodes[node].start_again_with(&[OsStr::new("--rack"), OsStr::new(RACKS[2])]));
    wait_for("three racks of which any may fail", || {
        let figures = application(&name)?;
        let is_whole = figures["node_lacking_bytes"].as_u64()? == 0;
        (is_whole && figures["node_exposed_bytes"].as_u64()? == 0).then_some(())
    });
    [0, 3].into_iter().for_each(|node| nodes[node].kill());
    verify(&mut client, 0..KEYS, |_| 1);
    end_with_nothing_lost(client, running);
}
