//! Many threads of one process that want pages of memory nodes at a time: they wait for their own pages, and
//! for nobody else's.

use std::path::Path;

use farmem_tests::{Finished, Launcher, Node, Program, Running, managed_runner};

use crate::far_redis::{launcher, number, unique, wait_for_pages_on_nodes};

const MIB: u64 = 48;

fn fetches<'a>(launcher: &'a Launcher, name: &str, threads: u32) -> Running<'a> {
    let program = Program::new(env!("PROGRAM_FETCHES"));
    let program = program.arg(MIB.to_string()).arg(threads.to_string()).arg(launcher.directory());
    let mut running = launcher.start(program);
    until_there(&mut running, &launcher.file("ready"));
    wait_for_pages_on_nodes(name, 8 << 20);
    order(&launcher.file("go"));
    running
}

fn order(file: &Path) {
    std::fs::write(file, []).expect("the folder is the test's own");
}

fn until_there(running: &mut Running<'_>, file: &Path) {
    running.until(&format!("{}", file.display()), || file.exists().then_some(()));
}

/// Lets the thread with memory of its own take some steps, and waits until it has.
fn step(launcher: &Launcher, running: &mut Running<'_>, number: u32) {
    order(&launcher.file(&format!("step-{number}")));
    until_there(running, &launcher.file(&format!("taken-{number}")));
}

fn end(launcher: &Launcher, running: Running<'_>) -> Finished {
    order(&launcher.file("end"));
    let finished = running.wait().success();
    assert_eq!(finished.text().trim(), format!("{} pages, 0 words wrong", MIB * 256));
    assert_eq!(number(&finished, "lost"), 0.0);
    finished
}

#[test]
fn two_hundred_threads_read_from_a_node_and_see_what_was_written() {
    many_threads_read_from_a_node(200);
}

/// More than all handlers together can remember one by one.
#[test]
fn seven_hundred_threads_read_from_a_node_and_see_what_was_written() {
    many_threads_read_from_a_node(700);
}

fn many_threads_read_from_a_node(threads: u32) {
    if !managed_runner() {
        return;
    }
    let (node, name) = (Node::start("256M"), unique(&format!("threads-{threads}")));
    let launcher = launcher(&[&node], &name);
    let mut running = fetches(&launcher, &name, threads);
    (1..=3).for_each(|number| step(&launcher, &mut running, number));
    let finished = end(&launcher, running);
    assert!(number(&finished, "node_fetches") > 0.0);
}

#[test]
fn a_thread_with_memory_of_its_own_goes_on_while_the_node_that_others_wait_for_is_stopped() {
    if !managed_runner() {
        return;
    }
    let (node, name) = (Node::start("256M"), unique("stopped"));
    let launcher = launcher(&[&node], &name);
    let mut running = fetches(&launcher, &name, 16);
    step(&launcher, &mut running, 1);
    // For less than it takes until a node counts as lost.
    node.stop();
    step(&launcher, &mut running, 2);
    node.go_on();
    step(&launcher, &mut running, 3);
    end(&launcher, running);
}
