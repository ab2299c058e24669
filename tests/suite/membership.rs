//! Nodes that join, are emptied and leave while Redis runs with most of its memory on them. Every byte that
//! it gives back is compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use farmem_tests::{
    Etcd, Launcher, Node, Scratch, application, assert_refusal, farmem_binary, managed_runner, wait_for,
};

use crate::far_redis::{
    KEYS, end, end_with_nothing_lost, figure, loaded, number, small_pool, unique, wait_for_pages_on_nodes,
    wait_for_two_copies,
};
use crate::redis::{load, verify};

/// A cluster file of the test's own.
struct ClusterFile {
    _scratch: Scratch,
    path: PathBuf,
}

impl ClusterFile {
    fn of(nodes: &[&Node]) -> Self {
        let scratch = Scratch::new();
        let file = Self { path: scratch.file("cluster.toml"), _scratch: scratch };
        file.say(nodes, &[]);
        file
    }

    /// From now on these are the nodes, and those are to be emptied.
    fn say(&self, nodes: &[&Node], drained: &[&Node]) {
        self.write(&cluster(nodes, drained));
    }

    /// As an editor does it: a new file takes the name of the old one.
    fn write(&self, text: &str) {
        let new = self.path.with_extension("new");
        fs::write(&new, text).expect("the test's own folder");
        fs::rename(&new, &self.path).expect("the test's own folder");
    }

    fn launcher(&self, name: &str) -> Launcher {
        small_pool(name).option("--cluster").option(&self.path)
    }
}

/// A cluster as it is written.
fn cluster(nodes: &[&Node], drained: &[&Node]) -> String {
    let front = "[[node]]\nname = \"front\"\nrole = \"compute\"\n".to_owned();
    let states = nodes.iter().map(|node| (node, "active")).chain(drained.iter().map(|node| (node, "drain")));
    states.fold(front, |text, (node, state)| {
        let address = node.address();
        format!("{text}[[node]]\nname = \"at {address}\"\nrole = \"memory\"\naddress = \"{address}\"\nstate = \"{state}\"\n")
    })
}

/// Waits until so many nodes take part, and nothing is left on the others.
fn wait_for_nodes(name: &str, count: u64) {
    wait_for("a change of the nodes", || {
        let figures = application(name)?;
        (figures["nodes"].as_u64()? == count && figures["node_leaving_bytes"].as_u64()? == 0).then_some(())
    });
}

fn version(key: u64) -> u64 {
    if key < KEYS / 3 { 2 } else { 1 }
}

#[test]
fn nodes_join_are_emptied_and_leave_and_are_killed_then_and_no_byte_is_wrong() {
    if !managed_runner() {
        return;
    }
    let mut nodes = [Node::start("128M"), Node::start("128M"), Node::start("128M")];
    let name = unique("membership");
    let file = ClusterFile::of(&[&nodes[0], &nodes[1]]);
    let launcher = file.launcher(&name);
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);
    assert_eq!(figure(&name, "nodes"), 2);

    file.say(&[&nodes[0], &nodes[1], &nodes[2]], &[]);
    verify(&mut client, 0..KEYS / 2, |_| 1);
    wait_for_nodes(&name, 3);
    // One is emptied, and the same is said twice; the next one is no longer named at all.
    file.say(&[&nodes[1], &nodes[2]], &[&nodes[0]]);
    verify(&mut client, 0..KEYS, |_| 1);
    file.say(&[&nodes[1], &nodes[2]], &[&nodes[0]]);
    wait_for_nodes(&name, 2);
    nodes[0].kill();
    verify(&mut client, 0..KEYS, |_| 1);
    load(&mut client, 0..KEYS / 3, 2);
    file.say(&[&nodes[2]], &[]);
    verify(&mut client, (0..KEYS).rev(), version);
    wait_for_nodes(&name, 1);
    nodes[1].kill();
    verify(&mut client, 0..KEYS, version);
    // One comes back, empty, and to the number that it had; and the one that was there goes.
    nodes[0].start_again();
    file.say(&[&nodes[0], &nodes[2]], &[]);
    wait_for_nodes(&name, 2);
    file.say(&[&nodes[0]], &[]);
    verify(&mut client, 0..KEYS, version);
    wait_for_nodes(&name, 1);
    nodes[2].kill();
    verify(&mut client, 0..KEYS, version);
    end_with_nothing_lost(client, running);
}

#[test]
fn a_node_that_is_killed_while_it_is_emptied_costs_nothing_where_there_are_two_copies() {
    if !managed_runner() {
        return;
    }
    let mut nodes = [Node::start("128M"), Node::start("128M"), Node::start("128M")];
    let name = unique("killed-leaving");
    let file = ClusterFile::of(&[&nodes[0], &nodes[1], &nodes[2]]);
    // So slowly that it is killed on the way.
    let launcher =
        file.launcher(&name).option("--redundancy").option("mirror").option("--rebuild-rate").option("1M");
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);
    wait_for_two_copies(&name);
    // Two of them hold everything; which ones is a matter of hashes.
    let is_used = |drained: usize, others: [&Node; 2]| {
        file.say(&others, &[&nodes[drained]]);
        wait_for("the change to be known", || (figure(&name, "nodes") == 2).then_some(()));
        let is_used = figure(&name, "node_leaving_bytes") > 0;
        if !is_used {
            file.say(&[&nodes[0], &nodes[1], &nodes[2]], &[]);
            wait_for("the change back to be known", || (figure(&name, "nodes") == 3).then_some(()));
        }
        is_used
    };
    let drained = if is_used(0, [&nodes[1], &nodes[2]]) { 0 } else { 1 };
    assert!(drained == 0 || is_used(1, [&nodes[0], &nodes[2]]));
    nodes[drained].kill();
    verify(&mut client, 0..KEYS, |_| 1);
    load(&mut client, 0..KEYS / 3, 2);
    verify(&mut client, 0..KEYS, version);
    end_with_nothing_lost(client, running);
}

#[test]
fn a_node_stays_as_it_is_while_no_other_has_room_and_that_is_said() {
    if !managed_runner() {
        return;
    }
    let (node, name) = (Node::start("128M"), unique("no-room"));
    let file = ClusterFile::of(&[&node]);
    let launcher = file.launcher(&name);
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);
    file.say(&[], &[&node]);
    wait_for("the change to be known", || (figure(&name, "nodes") == 0).then_some(()));
    verify(&mut client, 0..KEYS, |_| 1);
    std::thread::sleep(std::time::Duration::from_secs(5));
    // What has no place at all but there goes there still.
    load(&mut client, 0..KEYS / 3, 2);
    verify(&mut client, 0..KEYS, version);
    assert!(figure(&name, "node_leaving_bytes") > 0);
    // Another one is all that it takes.
    let other = Node::start("128M");
    file.say(&[&other], &[&node]);
    wait_for_nodes(&name, 1);
    verify(&mut client, 0..KEYS, version);
    let finished = end(client, running);
    let said = String::from_utf8_lossy(&finished.stderr);
    let sentence = format!("node {} can't be emptied: no other node has room", node.address());
    assert_eq!(said.matches(&sentence).count(), 1, "{said}");
}

#[test]
fn where_everything_is_on_disk_as_well_the_last_node_can_be_emptied() {
    if !managed_runner() {
        return;
    }
    let (mut node, name) = (Node::start("128M"), unique("to-disk"));
    let file = ClusterFile::of(&[&node]);
    let launcher = file.launcher(&name);
    let mut disk = launcher.file("far").into_os_string();
    disk.push(":256M");
    let launcher = launcher.option("--disk").option(disk);
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);
    file.say(&[], &[&node]);
    wait_for_nodes(&name, 0);
    node.kill();
    verify(&mut client, 0..KEYS, |_| 1);
    end_with_nothing_lost(client, running);
}

#[test]
fn what_has_two_copies_and_only_one_other_node_goes_to_disk_and_both_nodes_can_be_stopped() {
    if !managed_runner() {
        return;
    }
    let (mut nodes, name) = ([Node::start("128M"), Node::start("128M")], unique("copies-to-disk"));
    let file = ClusterFile::of(&[&nodes[0], &nodes[1]]);
    let launcher = file.launcher(&name).option("--redundancy").option("mirror");
    let mut disk = launcher.file("far").into_os_string();
    disk.push(":256M");
    let launcher = launcher.option("--disk").option(disk);
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);
    assert_eq!(figure(&name, "disk_bytes"), 0);
    // Each node has a copy of everything: none has room for what the other one holds.
    file.say(&[&nodes[1]], &[&nodes[0]]);
    wait_for_nodes(&name, 1);
    assert!(figure(&name, "disk_bytes") > 0);
    nodes[0].kill();
    verify(&mut client, 0..KEYS, |_| 1);
    load(&mut client, 0..KEYS / 3, 2);
    file.say(&[], &[&nodes[1]]);
    wait_for_nodes(&name, 0);
    nodes[1].kill();
    verify(&mut client, 0..KEYS, version);
    let finished = end(client, running);
    assert_eq!(number(&finished, "lost"), 0.0);
    let said = String::from_utf8_lossy(&finished.stderr);
    assert!(!said.contains("can't be emptied"), "{said}");
}

#[test]
fn nonsense_in_the_file_is_said_once_and_changes_nothing() {
    if !managed_runner() {
        return;
    }
    let nodes = [Node::start("128M"), Node::start("128M")];
    let name = unique("nonsense");
    let file = ClusterFile::of(&[&nodes[0]]);
    let launcher = file.launcher(&name);
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);
    for text in ["[[node", "", &cluster(&[&nodes[0], &nodes[0]], &[])] {
        file.write(text);
        std::thread::sleep(std::time::Duration::from_secs(2));
        assert_eq!(figure(&name, "nodes"), 1);
    }
    verify(&mut client, 0..KEYS, |_| 1);
    file.say(&[&nodes[0], &nodes[1]], &[]);
    wait_for_nodes(&name, 2);
    let finished = end(client, running);
    let said = String::from_utf8_lossy(&finished.stderr);
    assert_eq!(said.matches("the nodes stay as they are").count(), 3, "{said}");
}

#[test]
fn a_cluster_that_makes_no_sense_is_refused_at_the_start() {
    if !managed_runner() {
        return;
    }
    let node = Node::start("16M");
    let file = ClusterFile::of(&[&node]);
    let refused = |path: &Path| {
        let mut command = Command::new(farmem_binary());
        assert_refusal(2, command.arg("run").arg("--cluster").arg(path).args(["--", "true"]))
    };
    assert!(refused(&file.path.with_extension("none")).contains("No such file"));
    for (text, reason) in [
        (cluster(&[], &[]), "no node in it has the role memory or general"),
        (cluster(&[], &[&node]), "every node of it is to be emptied"),
        (cluster(&[&node], &[]).replace("active", "asleep"), "asleep"),
        ("node = 3".to_owned(), "cannot use --cluster"),
    ] {
        file.write(&text);
        let refusal = refused(&file.path);
        assert!(refusal.contains(reason), "{refusal}");
    }
}

const KEY: &str = "farmem/cluster";

fn source(etcd: &Etcd) -> String {
    // The first of them is nobody.
    format!("etcd://127.0.0.1:1,{}/{KEY}", etcd.endpoint())
}

#[test]
fn nodes_join_are_emptied_and_leave_by_what_etcd_says_and_its_death_changes_nothing() {
    if !managed_runner() {
        return;
    }
    let (mut etcd, name) = (Etcd::start(), unique("etcd"));
    let mut nodes = [Node::start("128M"), Node::start("128M"), Node::start("128M")];
    etcd.put(KEY, &cluster(&[&nodes[0], &nodes[1]], &[]));
    let launcher = small_pool(&name).option("--cluster").option(source(&etcd));
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);

    etcd.put(KEY, &cluster(&[&nodes[0], &nodes[1], &nodes[2]], &[]));
    wait_for_nodes(&name, 3);
    etcd.put(KEY, &cluster(&[&nodes[1], &nodes[2]], &[&nodes[0]]));
    verify(&mut client, 0..KEYS, |_| 1);
    wait_for_nodes(&name, 2);
    nodes[0].kill();
    verify(&mut client, 0..KEYS, |_| 1);

    // Nonsense, nothing, and nobody: the nodes stay as they are.
    etcd.put(KEY, "[[node");
    load(&mut client, 0..KEYS / 3, 2);
    etcd.remove(KEY);
    verify(&mut client, 0..KEYS, version);
    assert_eq!(figure(&name, "nodes"), 2);
    etcd.kill();
    verify(&mut client, (0..KEYS).rev(), version);
    assert_eq!(figure(&name, "nodes"), 2);

    // It is asked again by itself when it is back.
    etcd.start_again();
    etcd.put(KEY, &cluster(&[&nodes[2]], &[]));
    verify(&mut client, 0..KEYS, version);
    wait_for_nodes(&name, 1);
    nodes[1].kill();
    verify(&mut client, 0..KEYS, version);
    let finished = end(client, running);
    assert_eq!(number(&finished, "lost"), 0.0);
    let said = String::from_utf8_lossy(&finished.stderr);
    assert!(said.contains("the nodes stay as they are"), "{said}");
}

#[test]
fn an_etcd_that_says_nothing_of_use_is_refused_at_the_start() {
    if !managed_runner() {
        return;
    }
    let mut etcd = Etcd::start();
    let refused = |source: &str| {
        let mut command = Command::new(farmem_binary());
        assert_refusal(2, command.args(["run", "--cluster", source, "--", "true"]))
    };
    let source = source(&etcd);
    assert!(refused(&source).contains("there is no key farmem/cluster"));
    etcd.put(KEY, "node = 3");
    assert!(refused(&source).contains("cannot use --cluster etcd://"));
    etcd.kill();
    assert!(refused(&source).contains("etcd doesn't answer"));
    assert!(refused("etcd://127.0.0.1/key").contains("HOST:PORT[,…]/KEY"));
}
