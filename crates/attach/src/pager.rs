//! The pager of a program that was attached to, in a process of its own.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use farmem_page::PAGE_BYTES;
use farmem_pager::{NAME_BYTES, Split, Start, Started};
use farmem_sys::subject::tracee::{Options, State, Tracee};
use farmem_sys::subject::{self, Attached};
use farmem_sys::uffd::Uffd;
use farmem_sys::{AsFd, AsRawFd, descriptors, memory};
use procfs::process::MMapPath;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::java::Search;
use crate::puppet::{self, Made};
use crate::stops::Stops;
use crate::unfinished::Stay;
use crate::{AttachError, children, end, told, unfinished};

/// How often it is looked whether the program is another one by now (its end is told at once, `exec` isn't),
/// and whether children are to have pagers of their own.
const LOOK: Duration = Duration::from_millis(10);
/// The same when there have been no children for [`CHILDLESS`]. Each look takes a processor from idleness,
/// where the scheduler may then put the program's thread.
const RARE_LOOK: Duration = Duration::from_millis(50);
const CHILDLESS: Duration = Duration::from_secs(1);
/// The same while there are children without a pager of their own.
const CHILDS_LOOK: Duration = Duration::from_millis(1);

/// How long a program may take to end after its puppet has: what ends one from outside may end both.
const ENDING: Duration = Duration::from_secs(1);

/// Attaches the calling process to the process of that number, as its pager, until that has ended or is
/// another program. `supervisor` is the address of the application that it belongs to. The calling thread
/// must be the only one.
///
/// # Errors
/// The program is as it was.
pub fn run(number: u32, supervisor: &[u8]) -> Result<(), AttachError> {
    let outcome = manage(number, supervisor);
    // Also where no pager has begun, threads may have been stopped.
    unfinished::finish();
    outcome
}

fn manage(number: u32, supervisor: &[u8]) -> Result<(), AttachError> {
    if told::has_page_table_open(number as i32) {
        // Runtimes clear what they find written there before somebody else gets it.
        return Err(AttachError::Looking);
    }
    let start = begin(supervisor, stack(number)?)?;
    let Made { attached, uffd, tracee } = puppet::make(number, None)?;
    tracee.resume(0).map_err(AttachError::refused("the puppet's start"))?;
    let attached: &'static Attached = memory::leak(attached).map_err(AttachError::refused("memory"))?;
    subject::attach(attached);
    let began = if children::is_managed_by_another(number, attached.puppet.number()) {
        Err(AttachError::Managed)
    } else if attached.puppet.works() {
        start.for_attached(uffd, publish).map_err(|_| AttachError::Pager("the supervisor refuses"))
    } else {
        Err(AttachError::Filtered)
    };
    match began {
        Ok(()) => see_through(start, attached, Some(tracee)),
        Err(_) => leave(Ending::Refused, attached, Some(&tracee)),
    }
    began
}

/// How a pager leaves its program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// The program has ended, or is another one by now.
    Over,
    /// The program goes on, with all its memory.
    Withdrawn,
    /// The program goes on as it was: no pager has begun.
    Refused,
}

/// Leaves the program. The puppet goes, and with it the memory, unless that is the program's.
fn leave(ending: Ending, attached: &Attached, puppet: Option<&Tracee>) {
    if ending == Ending::Over {
        engine().into_iter().for_each(|engine| engine.note_end());
        subject::note_over();
    }
    if ending != Ending::Refused {
        unfinished::end_all();
    }
    if let Some(puppet) = puppet {
        match ending {
            Ending::Over => attached.puppet.tell_to_end(),
            Ending::Withdrawn | Ending::Refused => puppet::clear(puppet, attached),
        }
        end::see_end(puppet);
    }
    if ending == Ending::Withdrawn {
        engine().into_iter().for_each(|engine| engine.note_withdrawn());
    }
}

/// Makes a pager's process of the calling one, of the application that has its supervisor at that address.
/// `stack` is an address on the program's main stack.
pub(crate) fn begin(supervisor: &[u8], stack: usize) -> Result<Start, AttachError> {
    let mut start = Start { name: [0; NAME_BYTES], name_length: supervisor.len(), stack };
    start
        .name
        .get_mut(..supervisor.len())
        .ok_or(AttachError::Pager("the supervisor's address is too long"))?
        .copy_from_slice(supervisor);
    farmem_sys::process::begin_session();
    // By this name a supervisor knows its pagers from what it manages.
    farmem_sys::thread::name(c"farmem-pager");
    Ok(start)
}

/// The pager of this process. The program itself has no way to it but its faults.
static ENGINE: Mutex<Option<Started>> = Mutex::new(None);

pub(crate) fn publish(engine: Started) {
    *ENGINE.lock().unwrap_or_else(PoisonError::into_inner) = Some(engine);
}

pub(crate) fn engine() -> Option<Started> {
    *ENGINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An address on the main stack, which stays local.
fn stack(number: u32) -> Result<usize, AttachError> {
    let maps = told::maps(number as i32).ok_or(AttachError::Ended)?;
    let stack = maps.iter().find(|map| map.pathname == MMapPath::Stack);
    Ok(stack.map_or(0, |map| map.address.1 as usize - PAGE_BYTES))
}

/// Until the program ends or becomes another one, or goes on without a pager, and its children have pagers of
/// their own. Without a puppet nothing leaves, and what is far comes back as ever.
fn see_through(start: Start, attached: &Attached, mut puppet: Option<Tracee>) {
    let number = attached.puppet.number();
    let handle = Pid::from_raw(number as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let mut has_ended = false;
    let mut is_over = false;
    let mut pause = LOOK;
    let mut had_children = Instant::now();
    let mut java = Search::new();
    let mut stay = Stay::default();
    let stops = Stops::hear();
    let mut stuck_since = None;
    if puppet.is_none() {
        attached.puppet.note_lost();
        stuck_since = Some(Instant::now());
    }
    let ending = loop {
        let mut set = Vec::new();
        // An end is told for ever: of a program whose memory another one still shares it is told only once.
        if !has_ended {
            set.push(PollFd::from_borrowed_fd(attached.handle.as_fd(), PollFlags::IN));
        }
        if let Some(handle) = handle.as_ref().filter(|_| puppet.is_some()) {
            set.push(PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN));
        }
        if let Some(stops) = &stops {
            set.push(PollFd::from_borrowed_fd(stops.watch(), PollFlags::IN));
        }
        let look = Timespec { tv_sec: 0, tv_nsec: pause.as_nanos() as i64 };
        let _ = poll(&mut set, Some(&look));
        stops.iter().for_each(Stops::clear);
        match puppet.as_ref().map(|puppet| puppet.state(false)) {
            None | Some(Ok(State::Running)) => {}
            // No signal is the puppet's business.
            Some(Ok(State::Stopped | State::AtCall | State::Made | State::Signalled(_))) => {
                puppet.iter().for_each(|puppet| _ = puppet.resume(0));
            }
            Some(Ok(State::Ended) | Err(_)) => {
                puppet = None;
                attached.puppet.note_lost();
                stuck_since = Some(Instant::now());
            }
        }
        puppet::see_to_seized();
        has_ended |= attached.has_ended();
        let is_another = || puppet.is_some() && !attached.has_same_memory();
        is_over = is_over || (has_ended || is_another()) && !children::is_shared(number);
        let Some(engine) = engine() else { break Ending::Refused };
        pause = if had_children.elapsed() < CHILDLESS { LOOK } else { RARE_LOOK };
        // First: from then on a reading lasts for ever, and whoever waits for its end would, too.
        if engine.has_withdrawn() {
            break Ending::Withdrawn;
        }
        if engine.has_children() {
            pause = CHILDS_LOOK;
            had_children = Instant::now();
            part_with_child(start, engine);
        } else if is_over {
            break Ending::Over;
        }
        if stuck_since.is_some_and(|since| since.elapsed() >= ENDING) && !told::is_dumped(number as i32) {
            stuck_since = None;
            engine.note_stuck();
        }
        stay.step(engine);
        pause = unfinished::look().map_or(pause, |look| look.min(pause));
        if puppet.is_some() {
            java.step(engine, attached);
        }
    };
    leave(ending, attached, puppet.as_ref());
}

/// Nothing of the supervisor's is the forked pager's to read or write.
fn take_standard_streams() {
    use rustix::fs::{Mode, OFlags, open};
    for _ in 0..3 {
        // The lowest numbers are free.
        let null = open(c"/dev/null", OFlags::RDWR, Mode::empty());
        null.into_iter().for_each(std::mem::forget);
    }
}

/// Gives a child a pager of its own, if it can be attached to. In that pager it doesn't return.
fn part_with_child(start: Start, engine: Started) {
    let Some((epoch, uffd)) = engine.child_to_part_with() else { return };
    let uffd = Uffd::from(uffd);
    // Until its number is known it may be in the midst of being made.
    let parent = subject::attached().map_or(0, |attached| attached.process);
    let made = children::find(parent, &uffd, |page| engine.may_child_have_marker(epoch, page))
        .ok_or(AttachError::Busy)
        .and_then(|number| puppet::make(number, Some(&uffd)));
    let Ok(Made { attached, uffd: own, tracee }) = made else {
        engine.put_child_off(epoch);
        return;
    };
    let number = tracee.thread();
    // From here on it runs, and nobody traces it; the new pager does so next.
    if tracee.let_go(0).is_err() {
        end::see_end(&tracee);
        engine.put_child_off(epoch);
        return;
    }
    let split = || match farmem_sys::process::fork_for_parent() {
        Ok(Some(_)) => Split::Here,
        Ok(None) => Split::There,
        Err(_) => Split::Failed,
    };
    let mut outcome = Split::Failed;
    let child = engine.part_with(epoch, || {
        outcome = split();
        outcome
    });
    if outcome != Split::There {
        if outcome == Split::Failed {
            attached.puppet.tell_to_end();
            engine.put_child_off(epoch);
        } else {
            children::note_parted(attached.process);
        }
        return;
    }
    let tracee =
        Tracee::seize(number, Options { follows: false, ends_with_tracer: true, is_unfiltered: false });
    let mut kept = [&attached.handle, &attached.folder, &attached.memory_folder]
        .map(|descriptor| descriptor.as_raw_fd())
        .to_vec();
    kept.push(own.as_fd().as_raw_fd());
    kept.sort_unstable();
    descriptors::keep_only(&kept);
    take_standard_streams();
    farmem_sys::process::begin_session();
    // Without memory for this little nothing of the child's can be served.
    let Ok(attached) = memory::leak(attached) else { farmem_sys::process::exit() };
    let attached: &'static Attached = attached;
    if tracee.is_err() {
        // A filter of the program's has ended it.
        attached.puppet.note_lost();
    }
    subject::attach(attached);
    let Some(child) = child else { quit(attached, tracee.ok().as_ref()) };
    let start = Start { stack: stack(attached.process).unwrap_or(0), ..start };
    if start.for_parted(engine, child, own, publish).is_err() {
        if subject::has_ended() {
            quit(attached, tracee.ok().as_ref());
        }
        // What it had far, nobody can give it any more.
        subject::end();
    }
    see_through(start, attached, tracee.ok());
    farmem_sys::process::exit()
}

/// Ends a pager that has not begun, because its program has ended.
fn quit(attached: &Attached, puppet: Option<&Tracee>) -> ! {
    attached.puppet.tell_to_end();
    puppet.into_iter().for_each(end::see_end);
    farmem_sys::process::exit()
}
