//! Pagers come to processes from outside, each when its application comes near what it may have.
//!
//! Each gets a pager that is a process of its own (`farmem pager`, by
//! `farmem-attach`): a child of the supervisor, which lives as long as its program.

mod found;
mod lookout;
mod pauses;
mod refusals;
mod seen;

use std::collections::{HashMap, HashSet};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farmem_machine::process::{self, Identity, identity};
use farmem_sys::subject::{cpu_ns_of, share_memory};

use self::found::is_registered;
use self::lookout::Lookout;
use self::pauses::LONGEST;
use self::refusals::{Obstacle, Refusals};
use self::seen::Seen;
pub(crate) use self::seen::SharedMemory;
use crate::application::Application;
use crate::processes::family::Family;
use crate::processes::lineage::{Layout, layout};
use crate::processes::rest::RestWatch;
use crate::processes::shared::Shared;
use crate::say::say;
use crate::threads::worker::Worker;

/// When a pager hasn't managed its program for so long that is said. It goes on.
const STUCK: Duration = Duration::from_secs(5);
/// How long a process is left alone that its parent's pager serves: it may have run another program by then.
const INHERITED: Duration = Duration::from_millis(20);

/// Why a process is given up whose pagers were ended again and again.
const DEATHS: &str = "its pagers end as soon as they begin: somebody kills them, or they meet an internal error (a bug in \
                      Farmem: please report it)";
/// Why a pager can be on its way for so long: a kernel copies some of a process's files where none is wanted,
/// and closes the copies.
const CANNOT_CLOSE: &str = "its pager has been on its way for five seconds. A file that the program has open, in a file \
                            system over a network or in user space, can't be closed before its server answers";
/// Statuses with which a pager ends that has not managed its program, and for which it is tried again.
const STATUS_LATER: i32 = 3;
const STATUS_TRACED: i32 = 4;
const STATUS_LOOKING: i32 = 5;

struct Pager {
    of: Identity,
    layout: Option<Layout>,
    /// Whether the layout has been looked up since it has come. It ends with the program that it came to.
    is_settled: bool,
    child: Child,
    began: Instant,
    /// Whether it has been seen to manage its program.
    has_come: bool,
}

impl Pager {
    /// Whether it has been on its way for long. One that has ended isn't: its program may be about to end.
    fn is_stuck(&self) -> bool {
        let is_late = !self.has_come && self.began.elapsed() >= STUCK;
        is_late && process::living(self.child.id()).is_some()
    }
}

#[derive(Default)]
struct State {
    /// By the pager's number.
    pagers: HashMap<u32, Pager>,
    refusals: Refusals,
    /// Of the processes that were attached to: their forked children have the same, until they run another
    /// program.
    layouts: HashSet<Layout>,
    has_said: bool,
    seen: Seen,
    /// What processes share, and its pager; and when that is looked for again at the soonest.
    shared: Shared,
    shared_due: Option<Instant>,
    /// When it is asked again at the soonest who was forked by whom.
    distinct_due: Option<Instant>,
}

impl State {
    /// A process was not attached to.
    fn put_off(&mut self, of: Identity, obstacle: Obstacle, reason: &str) {
        if self.refusals.add(of, obstacle, Instant::now()) {
            tell(self, of, reason);
        }
    }

    /// Looks up the layouts of processes that may have run another program since their pagers were started:
    /// what they fork has the layout of the program that the pagers came to.
    fn settle_layouts(&mut self) {
        for pager in self.pagers.values_mut().filter(|pager| !pager.is_settled) {
            if let Some(layout) = layout(pager.of.number) {
                self.layouts.insert(layout);
                pager.layout = Some(layout);
            }
            pager.is_settled = pager.has_come;
        }
    }

    /// Whether a process of that layout may have been forked by one that was attached to.
    fn may_inherit(&mut self, layout: Option<Layout>) -> bool {
        let Some(layout) = layout else { return false };
        if !self.layouts.contains(&layout) {
            self.settle_layouts();
        }
        self.layouts.contains(&layout)
    }
}

/// Which process has which pager.
#[derive(Clone)]
pub(crate) struct Attacher {
    application: Application,
    address: Arc<str>,
    family: Family,
    processors: f64,
    state: Arc<Mutex<State>>,
}

impl Attacher {
    pub(crate) fn new(application: Application, address: &str, family: Family) -> Self {
        let processors = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        Self { application, address: address.into(), family, processors, state: Arc::default() }
    }

    /// The processes of the application, with a pager or without.
    pub(crate) fn living(&self) -> Vec<u32> {
        // While this is held no pager is started, and one that has no name yet is known by its number.
        let state = self.state();
        let is_pager = |number| state.pagers.contains_key(&number) || state.shared.is_pager(number);
        self.family.living(|number| is_pager(number) || is_ours(number))
    }

    /// Starts to look at processes, and at what they share.
    pub(crate) fn start(&self) -> [Worker; 3] {
        let (attacher, of_shared, of_rest) = (self.clone(), self.clone(), self.clone());
        let mut rest = RestWatch::new(self.application.ledger);
        let attend = move || {
            // What shared memory has is used by others than its pager.
            let shared_pager = of_rest.state().shared.number();
            rest.step(|number| shared_pager == Some(number), cpu_ns_of)
        };
        let mut lookout = Lookout::new();
        let follow = move || {
            // Until there is a pager whoever looks at processes looks at what they share, too.
            if of_shared.state().shared.has_pager() { of_shared.look_at_shared() } else { LONGEST }
        };
        [Worker::start(move || attacher.step(&mut lookout)), Worker::start(follow), Worker::start(attend)]
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No further pager comes, and those that there are leave.
    pub(crate) fn withdraw(&self) {
        // Held, so that none is about to come that nobody knows of.
        let _state = self.state();
        self.application.ledger.withdraw();
    }

    /// Whether a pager that was started here is still there.
    pub(crate) fn has_pagers(&self) -> bool {
        let state = self.state();
        !state.pagers.is_empty() || state.shared.has_pager()
    }

    /// These processes have a pager that manages them.
    fn note_managed(&self, managed: &HashSet<u32>) {
        let mut state = self.state();
        for pager in state.pagers.values_mut() {
            pager.has_come |= managed.contains(&pager.of.number);
        }
        state.settle_layouts();
    }

    fn attach(&self, identity: Identity) {
        let mut state = self.state();
        if self.application.ledger.is_withdrawing() {
            return;
        }
        state.refusals.tidy(|of| process::identity(of.number) == Some(of));
        if let Some(pager) = state.pagers.values().find(|pager| pager.of == identity) {
            if !state.has_said && pager.is_stuck() {
                tell(&mut state, identity, CANNOT_CLOSE);
            }
            return;
        }
        let now = Instant::now();
        if !state.refusals.permit(identity, now) {
            return;
        }
        let layout = layout(identity.number);
        let may_inherit = state.may_inherit(layout);
        // Two processes that share their memory have one pager.
        let shares = |pager: &Pager| {
            layout.is_some()
                && pager.layout == layout
                && share_memory(pager.of.number, identity.number) == Some(true)
        };
        if state.pagers.values().any(shares) {
            return;
        }
        if may_inherit && is_registered(identity.number) {
            // The pager of the process that has forked it serves it, and gives it one of its own.
            state.refusals.rest(identity, now, now + INHERITED);
            return;
        }
        let began = pager_command(&self.address)
            .arg(identity.number.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        match began {
            Ok(child) => {
                state.layouts.extend(layout);
                state.pagers.insert(
                    child.id(),
                    Pager {
                        of: identity,
                        layout,
                        is_settled: false,
                        child,
                        began: Instant::now(),
                        has_come: false,
                    },
                );
            }
            Err(error) => {
                if !std::mem::replace(&mut state.has_said, true) {
                    say(&format!("no pager could be started: {error}"));
                }
                state.refusals.add(identity, Obstacle::Lasting, now);
            }
        }
    }

    /// A child of the supervisor has ended, with that status if it has ended by itself. It may have been a
    /// pager, and have managed something.
    pub(crate) fn ended(&self, number: u32, status: Option<i32>, had_managed: bool) {
        let mut state = self.state();
        if state.shared.ended(number, status) {
            return;
        }
        let Some(pager) = state.pagers.remove(&number) else { return };
        let reason =
            pager.child.stdout.and_then(|output| std::io::read_to_string(output).ok()).unwrap_or_default();
        match status {
            Some(0) => {}
            Some(status) => {
                let obstacle = match status {
                    STATUS_LATER => Obstacle::Passing,
                    STATUS_TRACED => Obstacle::Traced,
                    STATUS_LOOKING => Obstacle::Looking,
                    _ => Obstacle::Lasting,
                };
                state.put_off(pager.of, obstacle, &reason);
            }
            // It was ended; what its program has far, nobody can give it any more.
            None if had_managed => {
                drop(state);
                self.end_children_of(pager.of, pager.layout);
            }
            None => state.put_off(pager.of, Obstacle::Death, DEATHS),
        }
    }

    /// Ends what was forked by a process whose pager was ended, and has none of its own: that pager has
    /// served it, and now it would find zeros. A process that began before was forked by another one, and
    /// goes on. Of younger ones nobody says by whom they were forked: rather one too many ends than that one
    /// finds zeros.
    fn end_children_of(&self, parent: Identity, layout: Option<Layout>) {
        if layout.is_none() {
            return;
        }
        let managed = self.managed();
        let is_orphan = |number: &u32| {
            *number != parent.number
                && !managed.contains(number)
                && identity(*number).is_some_and(|identity| identity.began >= parent.began)
                && self::layout(*number) == layout
        };
        for number in self.living().into_iter().filter(is_orphan) {
            if let Some(process) = rustix::process::Pid::from_raw(number as i32) {
                let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            }
            say(&format!("process {number} was ended: its memory was served by a pager that has ended"));
        }
    }
}

/// The command that starts a pager, but for what it is to manage, of the application that has its supervisor
/// at that address.
pub(super) fn pager_command(address: &str) -> Command {
    // Another version may have been installed meanwhile, so no path of this program's file is good.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("farmem").arg("pager").env("FARMEM_SUPERVISOR", address);
    command
}

fn tell(state: &mut State, of: Identity, reason: &str) {
    let has_ended = identity(of.number) != Some(of);
    if !has_ended {
        state.seen.refusal = Some(format!("process {}: {}", of.number, reason.trim()));
    }
    if !has_ended && !std::mem::replace(&mut state.has_said, true) {
        say(&format!("process {} runs without Farmem: {}", of.number, reason.trim()));
    }
}

/// Whether it is a pager or a puppet, by its name. A program that calls itself so is left alone. A puppet
/// that has no name yet shares its program's memory, and so gets no pager.
fn is_ours(number: u32) -> bool {
    process::is_named(number, &process::OWN_NAMES)
}
