//! Processes that connect, fork and end, with this process at both ends of their connections.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;
use crate::processes::unidentified::{INTRODUCTION, MOST_UNIDENTIFIED};

struct Peer {
    key: u64,
    link: Link,
}

/// A process that connects.
fn connect(processes: &mut Processes) -> Peer {
    let flags = SocketFlags::CLOEXEC;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    processes.accept(near);
    Peer { key: processes.next_key - 1, link: Link::from(far) }
}

impl Peer {
    fn ask(&self, processes: &mut Processes, request: Request, descriptors: &[BorrowedFd<'_>]) {
        self.link.send(&request.encode(), descriptors).unwrap();
        processes.hear(self.key);
    }

    fn hear(&self) -> Option<Reply> {
        let mut packet = [0; PACKET_BYTES];
        let (length, _) = self.link.receive(&mut packet).unwrap();
        Reply::decode(&packet[..length])
    }
}

fn processes() -> Processes {
    // Both ends of the connections are this process's.
    Processes::new(Application::for_test())
}

/// A program that has said who it is; its slot.
fn begin(processes: &mut Processes) -> (Peer, usize) {
    let peer = connect(processes);
    let token = processes.application.token;
    peer.ask(processes, Request::Hello { token, process: 0 }, &[]);
    let Some(Reply::Welcome { slot, .. }) = peer.hear() else { panic!("not welcome") };
    (peer, slot as usize)
}

/// Any descriptor stands for a userfaultfd whose memory has not ended.
fn fork(processes: &mut Processes, parent: &Peer, epoch: u64) {
    let memory = processes.application.ledger_memory;
    parent.ask(processes, Request::Forked { epoch }, &[memory.file()]);
}

fn inherit(processes: &mut Processes, parent_slot: usize, epoch: u64) -> Peer {
    let child = connect(processes);
    let token = processes.application.token;
    let request = Request::Inherit {
        parent_slot: parent_slot as u32,
        epoch,
        token,
        process: 0,
        shared_pages: 0,
        own_pages: 0,
    };
    child.ask(processes, request, &[]);
    child
}

#[test]
fn who_does_not_know_the_token_gets_nothing_and_is_dropped() {
    let mut processes = processes();
    let token = !processes.application.token;
    for request in [
        Request::Hello { token, process: 0 },
        Request::Inherit { parent_slot: 0, epoch: 1, token, process: 0, shared_pages: 0, own_pages: 0 },
    ] {
        let unidentified = connect(&mut processes);
        unidentified.ask(&mut processes, request, &[]);
        assert_eq!(unidentified.hear(), None);
    }
    assert!(processes.connected.is_empty());
}

#[test]
fn of_many_who_say_nothing_the_first_are_dropped_and_nobody_who_has_said_something() {
    let mut processes = processes();
    let (_program, slot) = begin(&mut processes);
    let waiting = connect(&mut processes);
    let token = processes.application.token;
    // On its way when the others come.
    waiting.link.send(&Request::Hello { token, process: 0 }.encode(), &[]).unwrap();
    let unidentified: Vec<Peer> = (0..2 * MOST_UNIDENTIFIED).map(|_| connect(&mut processes)).collect();

    processes.drop_unidentified();

    assert!(processes.is_connected(slot) && processes.connected.contains_key(&waiting.key));
    let (dropped, kept) = unidentified.split_at(MOST_UNIDENTIFIED);
    assert!(dropped.iter().all(|unidentified| unidentified.link.is_cut()));
    assert!(kept.iter().all(|unidentified| processes.connected.contains_key(&unidentified.key)));
}

#[test]
fn an_unidentified_connection_is_dropped_after_a_while() {
    let mut processes = processes();
    let unidentified = connect(&mut processes);
    processes.connected.get_mut(&unidentified.key).unwrap().came = Instant::now() - 2 * INTRODUCTION;

    processes.drop_unidentified();

    assert!(unidentified.link.is_cut());
}

#[test]
fn a_parent_stays_when_there_is_no_descriptor_for_its_child() {
    let mut processes = processes();
    let (parent, slot) = begin(&mut processes);

    parent.ask(&mut processes, Request::Forked { epoch: 1 }, &[]);
    fork(&mut processes, &parent, 2);
    let child = inherit(&mut processes, slot, 2);

    assert!(processes.is_connected(slot));
    assert_eq!(processes.lost, [(slot, 1)]);
    assert!(matches!(child.hear(), Some(Reply::Inherited { .. })));
}

#[test]
fn the_program_is_welcome() {
    let mut processes = processes();
    let (_program, slot) = begin(&mut processes);
    assert_eq!(slot, 0);
    let view = processes.application.ledger.slot(slot).unwrap();
    assert_eq!(view.process(), std::process::id(), "the kernel's word counts");
}

#[test]
fn a_child_inherits_after_its_parent_has_gone() {
    let mut processes = processes();
    let (parent, slot) = begin(&mut processes);
    fork(&mut processes, &parent, 1);
    processes.gone(parent.key);

    let child = inherit(&mut processes, slot, 1);

    let Some(Reply::Inherited { slot: own, .. }) = child.hear() else { panic!("nothing inherited") };
    assert_ne!(own as usize, slot);
    assert_eq!(processes.kept, [slot]);
}

#[test]
fn a_child_that_comes_before_its_parents_word_waits_for_it() {
    let mut processes = processes();
    let (parent, slot) = begin(&mut processes);

    let child = inherit(&mut processes, slot, 1);
    fork(&mut processes, &parent, 1);

    assert!(matches!(child.hear(), Some(Reply::Inherited { .. })));
}

#[test]
fn a_child_of_which_its_parent_never_told_is_refused_when_the_parent_goes() {
    let mut processes = processes();
    let (parent, slot) = begin(&mut processes);

    let child = inherit(&mut processes, slot, 1);
    processes.gone(parent.key);

    assert_eq!(child.hear(), Some(Reply::Refused { errno: 0 }));
}

#[test]
fn a_child_that_never_comes_keeps_its_parents_entries_frozen() {
    let mut processes = processes();
    let (parent, slot) = begin(&mut processes);
    let view = processes.application.ledger.slot(slot).unwrap();

    fork(&mut processes, &parent, 3);

    assert_eq!((view.frozen_epoch(), view.heard_epoch()), (3, 3));
}

#[test]
fn what_was_heard_of_a_fork_stays_so_when_a_kept_child_forks() {
    let mut processes = processes();
    let (parent, slot) = begin(&mut processes);
    fork(&mut processes, &parent, 1);
    fork(&mut processes, &parent, 2);

    fork(&mut processes, &parent, 1);

    let view = processes.application.ledger.slot(slot).unwrap();
    assert_eq!((view.frozen_epoch(), view.heard_epoch()), (2, 2));
}

#[test]
fn a_parent_outlives_the_sudden_end_of_its_child() {
    let mut processes = processes();
    let (parent, slot) = begin(&mut processes);
    let child = inherit(&mut processes, slot, 1);
    drop(child);

    fork(&mut processes, &parent, 1);

    assert!(processes.is_connected(slot));
}
