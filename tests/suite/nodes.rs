//! Memory nodes: programs whose far memory is mostly on another process's side of a socket, and what becomes
//! of them when that process is slow, full or gone.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use farmem_tests::{
    Launcher, Node, Program, Scratch, application, assert_refusal, farmem_binary, managed_runner, scaled,
    wait_for,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::far_redis::{
    KEYS, assert_ended_by_a_lost_page, end, end_with_nothing_lost, launcher, loaded, number,
    touch_all_until_it_ends, unique, wait_for_pages_on_nodes,
};
use crate::redis::{connect, load, server, verify};

fn with_disk(launcher: Launcher) -> Launcher {
    let mut disk = launcher.file("far").into_os_string();
    disk.push(":256M");
    launcher.option("--disk").option(disk)
}

#[test]
fn what_the_pool_cannot_hold_lies_on_a_node_and_comes_back_byte_for_byte() {
    if !managed_runner() {
        return;
    }
    let (node, name) = (Node::start("256M"), unique("node"));
    let launcher = launcher(&[&node], &name);
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);
    verify(&mut client, 0..KEYS, |_| 1);
    load(&mut client, 0..KEYS / 3, 2);
    verify(&mut client, (0..KEYS).rev(), |key| if key < KEYS / 3 { 2 } else { 1 });
    let finished = end(client, running);
    assert!(number(&finished, "node_fetches") > 0.0 && number(&finished, "lost") == 0.0);
    assert!(number(&finished, "read_buffer_hits") > 0.0);
}

#[test]
fn pages_that_cross_the_network_as_they_are_come_back_byte_for_byte() {
    if !managed_runner() {
        return;
    }
    let (node, name) = (Node::start("256M"), unique("raw"));
    let launcher = launcher(&[&node], &name).option("--far").option("raw");
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);
    verify(&mut client, 0..KEYS, |_| 1);
    let finished = end(client, running);
    assert!(number(&finished, "node_fetches") > 0.0 && number(&finished, "lost") == 0.0);
}

#[test]
fn numpy_sorts_with_its_memory_on_nodes() {
    if !managed_runner() {
        return;
    }
    let nodes = [Node::start("128M"), Node::start("128M")];
    let program = || {
        Program::new(crate::python())
            .arg(crate::program_source("arrays.py"))
            .arg("sort")
            .arg(scaled(300_000).to_string())
            .env("OPENBLAS_NUM_THREADS", "2")
            .env("PYTHONDONTWRITEBYTECODE", "1")
    };
    let expected = Launcher::native().run(program()).success();
    let launcher = launcher(&[&nodes[0], &nodes[1]], &unique("numpy"));
    let finished = launcher.run(program()).success();
    assert_eq!(finished.text(), expected.text());
    assert!(number(&finished, "node_bytes") > 0.0);
}

#[test]
fn a_node_that_is_killed_costs_nothing_where_the_disk_has_a_copy() {
    if !managed_runner() {
        return;
    }
    let (mut node, name) = (Node::start("256M"), unique("backed"));
    let launcher = with_disk(launcher(&[&node], &name));
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);
    // Slabs still move while one looks.
    wait_for("a copy of all of it on the disk", || {
        let figures = application(&name)?;
        (figures["disk_bytes"].as_u64()? >= figures["node_bytes"].as_u64()?).then_some(())
    });
    verify(&mut client, 0..KEYS / 4, |_| 1);
    node.kill();
    verify(&mut client, 0..KEYS, |_| 1);
    load(&mut client, 0..KEYS / 3, 2);
    verify(&mut client, 0..KEYS, |key| if key < KEYS / 3 { 2 } else { 1 });
    end_with_nothing_lost(client, running);
}

#[test]
fn a_node_that_is_killed_takes_along_what_was_there_alone_and_whoever_touches_it_gets_a_bus_error() {
    if !managed_runner() {
        return;
    }
    let (mut node, name) = (Node::start("256M"), unique("alone"));
    let launcher = launcher(&[&node], &name);
    let (running, _client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);
    node.kill();
    assert_ended_by_a_lost_page(running, &launcher.file("redis.socket"));
}

#[test]
fn two_copies_survive_the_loss_of_either_node() {
    if !managed_runner() {
        return;
    }
    let name = unique("mirror");
    let mut nodes = [Node::start("128M"), Node::start("128M"), Node::start("128M")];
    let launcher =
        launcher(&[&nodes[0], &nodes[1], &nodes[2]], &name).option("--redundancy").option("mirror");
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);
    verify(&mut client, 0..KEYS / 4, |_| 1);
    nodes[1].kill();
    verify(&mut client, 0..KEYS, |_| 1);
    load(&mut client, 0..KEYS / 3, 2);
    verify(&mut client, 0..KEYS, |key| if key < KEYS / 3 { 2 } else { 1 });
    end_with_nothing_lost(client, running);
}

#[test]
fn what_a_full_node_does_not_take_goes_to_the_other_one() {
    if !managed_runner() {
        return;
    }
    let name = unique("full");
    let (small, large) = (Node::start("4M"), Node::start("256M"));
    let launcher = launcher(&[&small, &large], &name);
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);
    verify(&mut client, 0..KEYS, |_| 1);
    end_with_nothing_lost(client, running);
}

#[test]
fn a_node_that_says_nothing_for_a_while_is_waited_for() {
    if !managed_runner() {
        return;
    }
    let (node, name) = (Node::start("256M"), unique("slow"));
    let launcher = launcher(&[&node], &name);
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);
    node.stop();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(2));
            node.go_on();
        });
        verify(&mut client, 0..KEYS, |_| 1);
    });
    end_with_nothing_lost(client, running);
}

#[test]
fn what_stands_still_together_for_longer_than_a_lease_goes_on_together() {
    if !managed_runner() {
        return;
    }
    let node = Node::start_with("256M", &["--lease".as_ref(), "1".as_ref()]);
    let name = unique("standstill");
    let launcher = launcher(&[&node], &name);
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);
    let supervisor = Pid::from_raw(i32::try_from(running.process_id()).expect("a process number"));
    let signal_supervisor =
        |signal| kill_process(supervisor.expect("a process number"), signal).expect("it is running");
    signal_supervisor(Signal::STOP);
    // The node hears what was on its way, so that it finds nothing new when it goes on.
    std::thread::sleep(Duration::from_millis(100));
    node.stop();
    std::thread::sleep(Duration::from_secs(3));
    node.go_on();
    std::thread::sleep(Duration::from_millis(200));
    signal_supervisor(Signal::CONT);
    verify(&mut client, 0..KEYS, |_| 1);
    end_with_nothing_lost(client, running);
}

#[test]
fn without_its_supervisor_a_program_that_touches_what_is_on_a_node_is_ended_and_does_not_hang() {
    if !managed_runner() {
        return;
    }
    let (node, name) = (Node::start("256M"), unique("orphan"));
    let launcher = launcher(&[&node], &name);
    let (running, _client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);
    let orphan = running.program_process_id().expect("it is running");
    let supervisor = Pid::from_raw(i32::try_from(running.process_id()).expect("a process number"));
    kill_process(supervisor.expect("a process number"), Signal::KILL).expect("it is running");
    drop(running.wait());
    touch_all_until_it_ends(&launcher.file("redis.socket"));
    wait_for("the end of the program", || {
        let stat = std::fs::read_to_string(format!("/proc/{orphan}/stat")).unwrap_or_default();
        matches!(stat.rsplit(')').next().unwrap_or_default().trim().chars().next(), None | Some('Z' | 'X'))
            .then_some(())
    });
}

/// Whoever started it may have gone together with the terminal, and each unknown client makes it say
/// something.
#[test]
fn a_node_whose_lines_nobody_reads_goes_on_when_strangers_talk_nonsense() {
    if !managed_runner() {
        return;
    }
    let mut process = Command::new(farmem_binary())
        .args(["node", "--memory", "16M", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("farmem can be started");
    let mut said = String::new();
    // The pipe is closed with the reader.
    BufReader::new(process.stderr.take().expect("a pipe")).read_line(&mut said).expect("a line");
    let address = said.split_whitespace().next_back().expect("where it listens").to_owned();

    for _ in 0..5 {
        let mut stranger = TcpStream::connect(&address).expect("it listens");
        stranger.write_all(&[0xff; 4096]).expect("it reads");
        // Until it has closed the connection.
        let _ = stranger.read_to_end(&mut Vec::new());
    }

    let asked = Command::new(farmem_binary()).args(["node", "stat", &address]).output();
    let ended = process.try_wait().expect("own child");
    process.kill().expect("own child");
    process.wait().expect("own child");
    assert!(ended.is_none(), "the node has ended: {ended:?}");
    assert!(asked.expect("farmem can be started").status.success());
}

#[test]
fn a_node_gets_back_what_a_program_held_when_it_has_ended() {
    if !managed_runner() {
        return;
    }
    let (node, name) = (Node::start("32M"), unique("returned"));
    // More than the node lends, were it not given back.
    for _ in 0..3 {
        let launcher = launcher(&[&node], &name);
        let mut running = launcher.start(server("none"));
        let mut client = connect(&mut running, &launcher.file("redis.socket"));
        load(&mut client, 0..KEYS, 1);
        wait_for_pages_on_nodes(&name, 8 << 20);
        verify(&mut client, 0..KEYS, |_| 1);
        end(client, running);
    }
}

#[test]
fn who_has_the_node_s_key_keeps_pages_there_and_nobody_else_does() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();
    let [key, other] = ["node.key", "other.key"].map(|name| {
        let file = scratch.file(name);
        let status = Command::new(farmem_binary()).args(["node", "keygen"]).arg(&file).status();
        assert!(status.expect("farmem can be started").success());
        file
    });
    let (node, name) = (Node::start_with("64M", &["--key".as_ref(), key.as_os_str()]), unique("key"));
    let launcher = launcher(&[&node], &name).option("--key").option(&key);
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);
    verify(&mut client, 0..KEYS, |_| 1);
    end(client, running);

    let run = |options: &[&OsStr]| {
        assert_refusal(
            2,
            Command::new(farmem_binary())
                .args(["run", "--node", node.address()])
                .args(options)
                .args(["--", "true"]),
        )
    };
    for refusal in [run(&[]), run(&["--key".as_ref(), other.as_os_str()])] {
        assert!(refusal.contains(node.address()), "{refusal}");
    }
}

#[test]
fn nodes_that_cannot_be_used_are_refused_with_what_to_do() {
    if !managed_runner() {
        return;
    }
    let refused = |options: &[&str]| {
        assert_refusal(2, Command::new(farmem_binary()).arg("run").args(options).args(["--", "true"]))
    };
    assert!(refused(&["--node", "127.0.0.1:1"]).contains("start `farmem node` there"));
    let node = Node::start("16M");
    assert!(refused(&["--node", node.address(), "--redundancy", "mirror"]).contains("needs 2 nodes"));
    assert!(refused(&["--node", node.address(), "--redundancy", "4+2"]).contains("needs 6 nodes"));
    assert!(refused(&["--node", node.address(), "--redundancy", "3+1"]).contains("K = 1, 2, 4 or 8"));
    let twice = format!("{0},{0}", node.address());
    assert!(refused(&["--node", &twice]).contains("named twice"));
}
