//! The program, and all that comes of it; or all that is in a control group.
//!
//! Whoever forks is told of by the kernel's process connector, as long as it lets this process listen: a
//! daemon, whose parent ends at once, is known then. Where it doesn't (in containers), the children of those
//! that are known are looked for, and those of this process, which orphans are given to where the program is
//! below it. Where it isn't, one whose parents ended between two looks is missed: it has no pager.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farmem_machine::process::{self, Identity};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use rustix::process::Pid;

use crate::processes::group::Group;

/// The connector's number of process events, as a group and as a value.
const PROCESS_EVENTS: u32 = 1;
/// To the connector: what follows is a message for that.
const MESSAGE_DONE: u16 = 3;
const LISTEN: u32 = 1;
const FORK: u32 = 1;
const EXEC: u32 = 2;
/// Two headers, netlink's and the connector's.
const HEADERS: usize = 36;
/// What has happened, on which processor, and when.
const EVENT_HEADER: usize = 16;
/// What the kernel keeps for this process between two looks: some thousand events.
const BUFFER_BYTES: usize = 4 << 20;
/// Events that are heard of at one look, however many there are on this machine.
const MOST_EVENTS: usize = 10_000;
/// Looks that a process that has ended is remembered for: what it forked before may be told of after.
const REMEMBERED: u32 = 2;
/// Where the kernel reports forks, children are looked for at one of so many looks only: that is half of
/// what a look costs.
const SEARCH_EVERY: u32 = 8;

/// A member.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// When it began; `None` if it had ended before anybody looked.
    began: Option<u64>,
    /// Looks at which it was no longer there.
    missed: u32,
    /// Whether it has begun another program, and nobody has been told.
    has_begun: bool,
}

impl Member {
    fn since(began: Option<u64>) -> Self {
        Self { began, missed: 0, has_begun: false }
    }
}

/// When children are looked for, though the kernel reports forks.
#[derive(Debug, Default)]
struct Search {
    /// Whether the kernel reports anything: in a PID namespace it lets this process listen, and says
    /// nothing.
    is_told: bool,
    /// Looks until then.
    looks_left: u32,
}

impl Search {
    /// Whether it is time for that, at each look.
    fn is_due(&mut self) -> bool {
        if self.is_told && self.looks_left > 0 {
            self.looks_left -= 1;
            return false;
        }
        self.looks_left = SEARCH_EVERY - 1;
        true
    }
}

/// What is known of them.
#[derive(Debug)]
struct Known {
    members: HashMap<u32, Member>,
    search: Search,
    /// How often members have forked or begun another program, or may have, and how often the control group
    /// has had other processes than before.
    news: u64,
    /// The processes of the control group when that was counted.
    grouped: Vec<u32>,
}

/// The program and what comes of it.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    known: Arc<Mutex<Known>>,
    /// Where whoever is in there belongs to it, too.
    group: Option<Arc<Group>>,
    connector: Option<Arc<OwnedFd>>,
}

impl Family {
    /// That of a process which runs the program, or is about to.
    pub(crate) fn of(program: Pid) -> Self {
        let number = program.as_raw_nonzero().get().unsigned_abs();
        let began = process::identity(number).map(|identity| identity.began);
        Self::with(HashMap::from([(number, Member::since(began))]), None)
    }

    /// All that is in that control group, or comes to be, and what comes of it.
    pub(crate) fn of_group(group: Group) -> Self {
        Self::with(HashMap::new(), Some(Arc::new(group)))
    }

    fn with(members: HashMap<u32, Member>, group: Option<Arc<Group>>) -> Self {
        let connector = connect().ok().map(Arc::new);
        let known = Known { members, search: Search::default(), news: 0, grouped: Vec::new() };
        Self { known: Arc::new(Mutex::new(known)), group, connector }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the kernel reports forks and new programs.
    pub(crate) fn hears(&self) -> bool {
        self.connector.is_some()
    }

    /// Waits until somebody on this machine forks or begins another program, for so long at most, and says
    /// which members have begun one since this was asked before. Where the kernel tells nothing it just
    /// waits.
    pub(crate) fn listen(&self, timeout: Duration) -> Vec<u32> {
        let Some(connector) = &self.connector else {
            std::thread::sleep(timeout);
            return Vec::new();
        };
        let mut set = [PollFd::from_borrowed_fd(connector.as_fd(), PollFlags::IN)];
        let timeout =
            Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        let _ = poll(&mut set, Some(&timeout));
        let mut known = self.known();
        known.hear(connector);
        let begun =
            |(&number, member): (&u32, &mut Member)| std::mem::take(&mut member.has_begun).then_some(number);
        known.members.iter_mut().filter_map(begun).collect()
    }

    /// A number that is another one when members have forked or begun another program, as far as the kernel
    /// reports that, or others are in the control group. Costs less than to look for those that live.
    pub(crate) fn news(&self) -> u64 {
        let mut known = self.known();
        if let Some(connector) = &self.connector {
            known.hear(connector);
        }
        if let Some(group) = &self.group {
            let grouped = group.members();
            known.news += u64::from(grouped != known.grouped);
            known.grouped = grouped;
        }
        known.news
    }

    /// Those that live, but for those that `is_stranger` says, and what comes of them.
    pub(crate) fn living(&self, is_unrelated: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut known = self.known();
        if let Some(connector) = &self.connector {
            known.hear(connector);
        }
        let Known { members, search, .. } = &mut *known;
        let is_search = search.is_due();
        for number in self.group.iter().flat_map(|group| group.members()) {
            if !members.contains_key(&number)
                && !is_unrelated(number)
                && let Some(Identity { began, .. }) = process::living(number)
            {
                members.insert(number, Member::since(Some(began)));
            }
        }
        members.retain(|&number, member| {
            let is_there =
                member.began.is_some_and(|began| process::living(number) == Some(Identity { number, began }));
            member.missed = if is_there { 0 } else { member.missed + 1 };
            member.missed <= REMEMBERED
        });
        let mut living = Vec::new();
        let mut open: Vec<u32> =
            members.iter().filter(|(_, member)| member.missed == 0).map(|(&number, _)| number).collect();
        let own = std::process::id();
        open.push(own);
        while let Some(number) = open.pop() {
            if number != own {
                living.push(number);
            }
            let children = if is_search { process::children(number) } else { Vec::new() };
            for child in children {
                if !members.contains_key(&child)
                    && !is_unrelated(child)
                    && let Some(Identity { began, .. }) = process::living(child)
                {
                    members.insert(child, Member::since(Some(began)));
                    open.push(child);
                }
            }
        }
        // The connector reports puppets as well.
        living.retain(|&number| !is_unrelated(number));
        living
    }
}

impl Known {
    /// Hears what has happened so far. Children of members become members.
    fn hear(&mut self, connector: &OwnedFd) {
        for heard in std::iter::from_fn(|| next_event(connector)).take(MOST_EVENTS) {
            self.search.is_told = true;
            match heard {
                // Looking for children finds most of them.
                Heard::Gap => {
                    self.search.looks_left = 0;
                    self.news += 1;
                }
                Heard::Event(Event::Fork { parent, child }) if self.members.contains_key(&parent) => {
                    let began = process::identity(child).map(|identity| identity.began);
                    self.members.insert(child, Member::since(began));
                    self.news += 1;
                }
                Heard::Event(Event::Fork { .. }) => {}
                Heard::Event(Event::Exec(number)) => {
                    if let Some(member) = self.members.get_mut(&number) {
                        member.has_begun = true;
                        self.news += 1;
                    }
                }
            }
        }
    }
}

/// A socket on which the kernel reports each process that forks or begins another program, and of little
/// else.
fn connect() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::CONNECTOR))?;
    bind(&socket, &SocketAddrNetlink::new(0, PROCESS_EVENTS))?;
    // Whatever the kernel grants is better than nothing.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES);
    let request = [LISTEN, FORK | EXEC].map(u32::to_ne_bytes).concat();
    let mut message = Vec::new();
    message.extend((HEADERS as u32 + request.len() as u32).to_ne_bytes());
    message.extend(MESSAGE_DONE.to_ne_bytes());
    message.extend([0; 10]);
    message.extend([PROCESS_EVENTS, PROCESS_EVENTS, 0, 0].map(u32::to_ne_bytes).concat());
    message.extend((request.len() as u16).to_ne_bytes());
    message.extend([0; 2]);
    message.extend(request);
    send(&socket, &message, SendFlags::empty())?;
    Ok(socket)
}

/// What the kernel reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    /// A process has made another one.
    Fork { parent: u32, child: u32 },
    /// A process has begun another program.
    Exec(u32),
}

/// What comes of one reading.
enum Heard {
    Event(Event),
    /// Some events were lost.
    Gap,
}

fn next_event(connector: &OwnedFd) -> Option<Heard> {
    loop {
        let mut message = [0; 256];
        let length = match recv(connector, &mut message, RecvFlags::empty()) {
            Ok((length, _)) => length,
            Err(Errno::NOBUFS) => return Some(Heard::Gap),
            Err(Errno::INTR) => continue,
            Err(_) => return None,
        };
        if let Some(event) = event_in(&message[..length]) {
            return Some(Heard::Event(event));
        }
    }
}

/// What a message reports; a new thread is nothing.
fn event_in(message: &[u8]) -> Option<Event> {
    let event = message.get(HEADERS..)?;
    let number = |at: usize| Some(u32::from_ne_bytes(event.get(at..at + 4)?.try_into().ok()?));
    // Of each process: the thread, then the process.
    let [first_process, second_thread, second_process] =
        [EVENT_HEADER + 4, EVENT_HEADER + 8, EVENT_HEADER + 12].map(number);
    match number(0)? {
        FORK => {
            let (parent, child) = (first_process?, second_process?);
            (child == second_thread? && parent != child).then_some(Event::Fork { parent, child })
        }
        EXEC => Some(Event::Exec(first_process?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(what: u32, numbers: [u32; 4]) -> Vec<u8> {
        let mut message = vec![0; HEADERS];
        message.extend(what.to_ne_bytes());
        message.extend([0; EVENT_HEADER - 4]);
        message.extend(numbers.map(u32::to_ne_bytes).concat());
        message
    }

    #[test]
    fn a_new_process_is_a_fork_and_a_new_thread_is_none() {
        assert_eq!(event_in(&message(FORK, [11, 10, 20, 20])), Some(Event::Fork { parent: 10, child: 20 }));
        assert_eq!(event_in(&message(FORK, [11, 10, 12, 10])), None);
        assert_eq!(event_in(&message(EXEC, [11, 10, 0, 0])), Some(Event::Exec(10)));
        assert_eq!(event_in(&message(4, [11, 10, 20, 20])), None);
        assert_eq!(event_in(&message(FORK, [11, 10, 20, 20])[..60]), None);
    }

    #[test]
    fn children_are_looked_for_rarely_only_where_the_kernel_tells_of_forks() {
        let mut search = Search::default();
        let looks = |search: &mut Search| (0..2 * SEARCH_EVERY).filter(|_| search.is_due()).count();

        assert_eq!(looks(&mut search), 2 * SEARCH_EVERY as usize);
        search.is_told = true;
        assert_eq!(looks(&mut search), 2);
        search.looks_left = 0;
        assert!(search.is_due(), "some events were lost");
    }

    #[test]
    fn who_has_ended_is_forgotten_and_its_children_are_not() {
        let mut parent = std::process::Command::new("sh")
            .args(["-c", "sleep 20 >/dev/null 2>&1 & echo $!; read line"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a shell");
        let family = Family::of(Pid::from_child(&parent));
        let mut output = std::io::BufReader::new(parent.stdout.take().expect("a pipe"));
        let mut line = String::new();
        std::io::BufRead::read_line(&mut output, &mut line).expect("its number");
        let child: u32 = line.trim().parse().expect("a number");
        assert!(family.living(|_| false).contains(&child));

        drop(parent.stdin.take());
        parent.wait().expect("it ends");
        for _ in 0..=REMEMBERED {
            let living = family.living(|_| false);
            assert!(living.contains(&child) && !living.contains(&parent.id()), "{living:?}");
        }
        rustix::process::kill_process(
            Pid::from_raw(child as i32).expect("not 0"),
            rustix::process::Signal::KILL,
        )
        .expect("it lives");
    }
}
