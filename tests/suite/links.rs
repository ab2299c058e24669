//! Programs that share links to memory nodes: by weight, within limits, and whoever dies meanwhile.

use std::process::Command;
use std::time::{Duration, Instant};

use farmem_tests::{
    Host, Launcher, Node, Program, Running, assert_in_one_of_three, assert_refusal, farmem_binary,
    managed_runner, wait_for,
};

use crate::host::{FILLER, MEBIBYTE, end, figures, filled, name, number, standing};

/// What may go at once, and what was let go and not counted yet, or the other way round.
const AHEAD_BYTES: f64 = (1 << 20) as f64;

/// One that reads its memory all the time, each page checked at the end of each round; most of it is far.
fn reader() -> Program {
    Program::new("python3").args(["-c", FILLER, "40", "0"])
}

/// Applications that keep next to nothing in their pool.
fn on_node(launcher: Launcher, node: &Node, weight: u32) -> Launcher {
    let options = ["--pool", "6M", "--node", node.address(), "--weight", &weight.to_string()];
    options.into_iter().fold(launcher, Launcher::option)
}

fn in_bytes(name: &str) -> f64 {
    number(name, "link_in_bytes") as f64
}

/// Applications of these weights side by side, each with all of its memory.
fn beside<'a>(launchers: &'a [Launcher; 3]) -> [Running<'a>; 3] {
    launchers.each_ref().map(|launcher| filled(launcher, reader()))
}

#[test]
fn what_a_limited_link_brings_is_shared_by_weight_and_is_no_more_than_the_limit() {
    if !managed_runner() {
        return;
    }
    const LIMIT: f64 = 16.0 * MEBIBYTE as f64;
    let host = Host::start(&["--pool", "64M", "--bandwidth-in", "16M", "--bandwidth-out", "32M/s"]);
    let node = Node::start("256M");
    let names = [1, 2, 4].map(|weight| name(&format!("weighs-{weight}")));
    let launcher = |nth: usize| on_node(host.launcher(&names[nth], 8 * MEBIBYTE), &node, [1, 2, 4][nth]);
    let launchers = [launcher(0), launcher(1), launcher(2)];
    let running = beside(&launchers);

    // On a machine with other work the processors may be what is short for a while.
    let stretch = || {
        let (began, before) = (Instant::now(), names.each_ref().map(|name| in_bytes(name)));
        let went = || {
            names.each_ref().map(|name| in_bytes(name)).into_iter().zip(before).map(|(now, then)| now - then)
        };
        wait_for("some rounds", || (went().sum::<f64>() > 4.0 * LIMIT).then_some(()));
        let went: Vec<f64> = went().collect();
        let most = began.elapsed().as_secs_f64() * LIMIT + AHEAD_BYTES;
        assert!(went.iter().sum::<f64>() <= most, "{went:?} are more than {most}");
        went
    };
    assert_in_one_of_three(stretch, |went| went[0] < went[2]);
    assert!(figures(&names[0])["link_wait_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    let heavier = farmem_tests::set_limits(&names[0], &["weight=100"]);
    assert!(heavier.status.success(), "{heavier:?}");
    for (launcher, running) in launchers.iter().zip(running) {
        end(launcher, running);
    }
}

#[test]
fn who_shares_a_link_goes_on_when_the_broker_is_killed_and_comes_to_the_next_one() {
    if !managed_runner() {
        return;
    }
    let mut host = Host::start(&["--pool", "64M", "--bandwidth-in", "32M"]);
    let node = Node::start("256M");
    let names = [1, 2, 4].map(|weight| name(&format!("orphaned-{weight}")));
    let launcher = |nth: usize| on_node(host.launcher(&names[nth], 8 * MEBIBYTE), &node, [1, 2, 4][nth]);
    let launchers = [launcher(0), launcher(1), launcher(2)];
    let running = beside(&launchers);

    host.kill();
    for name in &names {
        wait_for("the loss of the broker", || (standing(name) == "lost").then_some(()));
        let before = in_bytes(name);
        wait_for("more pages", || (in_bytes(name) > before + 1e6).then_some(()));
    }
    host.restart();
    for name in &names {
        wait_for("a new broker", || (standing(name) == "attached").then_some(()));
        let before = in_bytes(name);
        wait_for("more pages", || (in_bytes(name) > before + 1e6).then_some(()));
    }
    for (launcher, running) in launchers.iter().zip(running) {
        end(launcher, running);
    }
}

/// The node answers nothing while one of them is killed: so that one has transfers under way, and the others
/// wait for what it holds.
#[test]
fn one_that_is_killed_in_its_transfers_does_not_hold_up_those_who_wait_for_their_turn() {
    if !managed_runner() {
        return;
    }
    for has_broker in [true, false] {
        let mut host = Host::start(&["--pool", "64M", "--bandwidth-in", "32M"]);
        let node = Node::start("256M");
        let names = [4, 1, 1].map(|weight| name(&format!("killed-{weight}-{has_broker}")));
        let names = [names[0].clone(), format!("{}-b", names[1]), format!("{}-c", names[2])];
        let launcher = |nth: usize| on_node(host.launcher(&names[nth], 8 * MEBIBYTE), &node, [4, 1, 1][nth]);
        let launchers = [launcher(0), launcher(1), launcher(2)];
        let [killed, second, third] = beside(&launchers);
        if !has_broker {
            host.kill();
        }
        node.stop();
        std::thread::sleep(Duration::from_millis(300));
        drop(killed);
        node.go_on();
        for name in &names[1..] {
            let before = in_bytes(name);
            wait_for("more pages", || (in_bytes(name) > before + 1e6).then_some(()));
        }
        end(&launchers[1], second);
        end(&launchers[2], third);
    }
}

#[test]
fn an_application_keeps_to_its_own_limits_and_explains_what_it_waited_for() {
    if !managed_runner() {
        return;
    }
    const LIMIT: f64 = 8.0 * MEBIBYTE as f64;
    let node = Node::start("256M");
    let name = name("limited");
    let launcher = on_node(Launcher::managed(8 * MEBIBYTE), &node, 1);
    let limits = ["--bandwidth-in", "8M", "--bandwidth-out", "8M", "--name", &name, "--host", "none"];
    let launcher = limits.into_iter().fold(launcher, Launcher::option);
    let running = filled(&launcher, reader());
    let before = in_bytes(&name);
    wait_for("a round", || (in_bytes(&name) > before + LIMIT).then_some(()));
    let explained =
        Command::new(farmem_binary()).args(["explain", &name]).output().expect("farmem can be started");
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(explained.contains("waiting for a turn at the link"), "{explained}");
    std::fs::write(launcher.file("end"), "").expect("a file can be written");
    let finished = running.wait().success();
    assert_eq!(finished.text(), "same\n");
    let statistics =
        finished.statistics.as_ref().expect("a managed run").as_ref().expect("complete statistics");
    let most = statistics.number("wall_seconds") * LIMIT + AHEAD_BYTES;
    for direction in ["link_in_bytes", "link_out_bytes"] {
        let went = statistics.number(direction);
        assert!(went > 0.0 && went <= most, "{direction}: {went} of {most}");
    }
    assert!(statistics.number("link_wait_seconds") > 0.0);
    let of =
        |direction: &str, class: &str| statistics.number_of(&format!("link_{direction}_class_bytes"), class);
    for direction in ["in", "out"] {
        let sum: f64 = ["demand", "ahead", "bulk"].iter().map(|class| of(direction, class)).sum();
        assert_eq!(sum, statistics.number(&format!("link_{direction}_bytes")), "{direction}");
    }
    assert!(of("in", "demand") > 0.0 && of("out", "bulk") > 0.0, "threads wait for what slabs brought there");
}

#[test]
fn a_limit_of_a_link_that_is_none_is_refused() {
    for command in ["run", "host"] {
        for text in ["fast", "0", "100K", "-1"] {
            let mut farmem = Command::new(farmem_binary());
            farmem.args([command, &format!("--bandwidth-in={text}")]);
            if command == "run" {
                farmem.args(["--", "true"]);
            }
            let said = assert_refusal(2, &mut farmem);
            assert!(said.contains("bytes per second"), "{said}");
        }
    }
}
