//! The supervisor's loop, from the start of a program to its end.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farmem_page::PageCount;
use farmem_store::PoolUsage;
use farmem_sys::OwnedFd;
use farmem_telemetry::{Counter, ProcessSlot, SlotState};
use farmem_wire::Address;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{WaitOptions, WaitStatus, set_child_subreaper, wait};

use crate::application::Application;
use crate::carrier;
use crate::injection::{self, Injection};
use crate::limits::descent::Descent;
use crate::limits::lease_client::{self, LeaseClient};
use crate::limits::resize::{Condition, Resize};
use crate::limits::room;
use crate::limits::set::Limits;
use crate::limits::shrink::{Shrunk, Size};
use crate::limits::sizing::Sizing;
use crate::options::Options;
use crate::processes::Processes;
use crate::processes::attacher::Attacher;
use crate::processes::family::Family;
use crate::processes::group::Group;
use crate::processes::unidentified::MOST_UNIDENTIFIED;
use crate::program::background::{Role, split};
use crate::program::end::{End, end_as};
use crate::program::foreground::{self, Caller, Half, Part};
use crate::program::onlooker::{self, Onlooker, Standing};
use crate::program::signals::Signals;
use crate::program::{launch, own_limits};
use crate::queries::directory::{Own, listen};
use crate::queries::query::{Query, Question};
use crate::queries::regions::RegionQuestions;
use crate::reporting::inside;
use crate::reporting::progress::Progress;
use crate::reporting::report::{Report, Source};
use crate::reporting::statistics::StatisticsFile;
use crate::reporting::waiting::Waiting;
use crate::say::{self, say};
use crate::threads::mover;
use crate::threads::packer;
use crate::threads::side_service::{Ending, SideService};
use crate::threads::worker::Worker;
use crate::watch::Watch;

/// How often the supervisor looks around.
const LOOK: Duration = Duration::from_millis(50);
/// The same on the way to a budget, which goes by small steps.
const DESCENT_LOOK: Duration = Duration::from_millis(10);
/// How long nobody is let in after there was no descriptor for somebody.
const REST: Duration = Duration::from_millis(100);
/// What begins or ends together with the program's end has done so after this time. Only a program that
/// leaves somebody behind is waited for so long.
const SETTLING: Duration = Duration::from_millis(100);
/// In the background: nobody comes any more when for so long nobody has been there. A process that begins
/// another program is away for a moment.
const LAST: Duration = Duration::from_secs(2);

/// Why an application can't be left.
const REPORTING_AT_END: &str = "its supervisor is its parent, and reports when it has ended; raise its budget instead \
                                (`farmem set NAME local=SIZE`)";

/// Why an application that is being left can't be made small or large.
const LEAVING: &str = "it is being left; wait until it is, and attach to it again";

/// Why another user can't change limits, nor look inside.
const NOT_YOURS: &str = "it belongs to another user; ask that user, or root";

/// Runs the program under supervision until it has ended. The result is the status to exit with; if a signal
/// ended the program, the same signal ends the calling process.
///
/// Whoever waits for a program waits for that program alone. For processes that it has left behind, a copy of
/// the calling process goes on in the background until the last of them has gone.
///
/// # Errors
/// The program could not be started, or the kernel doesn't permit its management; nothing of it is left.
pub fn supervise(options: &Options) -> Result<u8> {
    if !options.reports_at_end() {
        return supervise_caller(options);
    }
    start(options, Origin::Child)
        .map(Supervisor::see_through)
        .inspect_err(|_| options.side_services.iter().for_each(SideService::leave))
}

/// What is attached to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The process of that number, and what comes of it.
    Process(u32),
    /// What is in the control group of that folder and in those below it.
    Group(PathBuf),
}

/// Manages processes that run already, from a copy of the calling process in the background. Returns when
/// they are within their budget, or nothing more can be done; `hear` is told now and then how it stands.
///
/// # Errors
/// Nothing is managed, for the reason that is given.
pub fn attach(options: &Options, subject: &Subject, hear: impl FnMut(&Standing)) -> Result<Standing> {
    let mut onlooker = match foreground::split_off()? {
        Half::Caller(link) => return onlooker::look_on(link, hear),
        Half::Supervisor(link) => Onlooker::new(link),
    };
    match start(options, Origin::Found(subject)) {
        Ok(mut supervisor) => {
            supervisor.onlooker = Some(onlooker);
            supervisor.see_through_found();
        }
        Err(error) => {
            options.side_services.iter().for_each(SideService::leave);
            onlooker.refuse(&format!("{error:#}"));
        }
    }
    std::process::exit(0)
}

/// Whose program it is.
enum Origin<'a> {
    /// A child of the supervisor's is to become it.
    Child,
    /// The process that was called is to become it.
    Caller(&'a mut Caller),
    /// It runs already.
    Found(&'a Subject),
}

/// The calling process becomes the program, and a copy of it the supervisor.
fn supervise_caller(options: &Options) -> Result<u8> {
    let mut caller = match foreground::split()? {
        Part::Program(supervisor) => return Err(supervisor.become_program(options)),
        Part::Supervisor(caller) => caller,
    };
    let refused = start(options, Origin::Caller(&mut caller)).map(Supervisor::see_through_caller).err();
    if let Some(error) = refused {
        options.side_services.iter().for_each(SideService::leave);
        caller.refuse(&error);
    }
    std::process::exit(0)
}

/// Starts the program, unless it runs already, and all that looks after it.
fn start<'a>(options: &'a Options, origin: Origin<'a>) -> Result<Supervisor<'a>> {
    let limits = own_limits::lift()?;
    let application = Application::create(options).map_err(own_limits::explain)?;
    let (listener, name) = listen().context("cannot listen for the program's processes")?;
    let signals = Signals::take()?;
    // Orphans become children of this process: so it knows, when the program has ended, whether anybody is
    // left.
    set_child_subreaper(Some(rustix::process::getpid())).context("cannot adopt the program's orphans")?;
    let begun = LeaseClient::begin(
        application,
        &options.name,
        &options.host,
        options.terms(),
        options.sizing.is_none(),
    )?;
    let lease_client: &'static Mutex<LeaseClient> = Box::leak(Box::new(Mutex::new(begun)));
    let application = application.record(options)?;
    let address = Address { name: name.as_bytes(), token: application.token }.to_string();
    let began = Instant::now();
    let (program, group) = match &origin {
        Origin::Caller(caller) => (caller.process(), None),
        Origin::Child => (launch::launch(options, limits, signals.before())?, None),
        Origin::Found(Subject::Process(number)) => (found(Some(*number))?, None),
        Origin::Found(Subject::Group(folder)) => {
            let group = Group::at(folder);
            (found(group.members().first().copied())?, Some(group))
        }
    };
    let family = group.map_or_else(|| Family::of(program), Family::of_group);
    let is_found = matches!(origin, Origin::Found(_));
    let caller = match origin {
        Origin::Caller(caller) => Some(caller.let_begin()?),
        Origin::Child | Origin::Found(_) => None,
    };
    let program = Pid::from_raw(program.as_raw_nonzero().get());
    let attacher = Attacher::new(application, &address, family);
    let descent = is_found.then(|| Descent::begin(application.ledger, attacher.see().unknown())).flatten();
    // For the supervisor's own: two links of each lane to each node, and several descriptors for each
    // process. The program has its limit as it was.
    farmem_sys::descriptors::allow_most();
    tracing::info!(
        application = options.name,
        process = program.as_raw(),
        local_bytes = options.local.get(),
        pool_bytes = options.pool.get(),
        nodes = options.nodes.as_ref().map_or(0, |nodes| nodes.nodes.len()),
        "program started"
    );
    let workers = start_workers(application, lease_client, &attacher);
    injection::start(application);
    let own = Own::at(&name);
    Ok(Supervisor {
        options,
        side_services: begin_side_services(options, &own),
        own,
        application,
        listener,
        listens_from: began,
        signals,
        processes: Processes::new(application),
        lease_client,
        watch: Watch::new(application, options.sizing.map(|sizing| Sizing::new(sizing, options.local))),
        workers,
        attacher,
        statistics: options.stats.as_deref().map(StatisticsFile::at),
        progress: options.progress.then(Progress::new),
        waiting: Waiting::new(),
        regions: RegionQuestions::new(application.ledger),
        program,
        caller,
        onlooker: None,
        descent,
        resize: Resize::new(application),
        is_found,
        is_withdrawing: false,
        has_ended: is_found,
        began,
        cpu_before: Duration::ZERO,
    })
}

/// The process of that number, if there is one.
fn found(number: Option<u32>) -> Result<rustix::process::Pid> {
    number
        .and_then(|number| rustix::process::Pid::from_raw(i32::try_from(number).ok()?))
        .context("all its processes have ended; look which ones run now, and attach again")
}

/// Threads that look after what the processes have stored, and how much they may.
fn start_workers(
    application: Application,
    lease_client: &'static Mutex<LeaseClient>,
    attacher: &Attacher,
) -> Vec<Worker> {
    // In this order: the mover first looks for what others have left half done.
    let of_pool = mover::start(application).into_iter().chain(packer::start(application));
    let recorder = application.recorder.map(|recorder| recorder.start());
    of_pool
        .chain([lease_client::start(lease_client)])
        .chain(carrier::start(application))
        .chain(recorder)
        .chain(attacher.start())
        .collect()
}

/// One that can't begin is named: the program goes on without it.
fn begin_side_services(options: &Options, own: &Own) -> Vec<Ending> {
    let begin =
        |service: &SideService| service.begin(own.clone()).map_err(|error| say(&format!("{error:#}"))).ok();
    options.side_services.iter().filter_map(begin).collect()
}

struct Supervisor<'a> {
    options: &'a Options,
    own: Own,
    side_services: Vec<Ending>,
    application: Application,
    listener: OwnedFd,
    listens_from: Instant,
    signals: Signals,
    processes: Processes,
    lease_client: &'static Mutex<LeaseClient>,
    watch: Watch,
    workers: Vec<Worker>,
    /// Where pagers come from outside.
    attacher: Attacher,
    statistics: Option<StatisticsFile>,
    progress: Option<Progress>,
    waiting: Waiting,
    regions: RegionQuestions,
    program: Pid,
    /// Where the program is the process that was called.
    caller: Option<&'a Caller>,
    /// Where the program ran already: the process that waits until it is within its budget.
    onlooker: Option<Onlooker>,
    descent: Option<Descent>,
    /// Whether somebody has asked for less.
    resize: Resize,
    is_found: bool,
    /// Whether all is to come back, and this process to end.
    is_withdrawing: bool,
    /// From then on its number may be somebody else's. Of one that ran already nobody tells.
    has_ended: bool,
    began: Instant,
    /// Processor time that was known when the supervisor went to the background.
    cpu_before: Duration,
}

/// What has happened while the supervisor waited.
struct News {
    /// Keys of the connections on which there is something to be read.
    links: Vec<u64>,
    has_signal: bool,
    has_connection: bool,
}

impl Supervisor<'_> {
    /// To the program's end, and beyond where it leaves somebody behind. The status to exit with.
    fn see_through(mut self) -> u8 {
        let end = self.run();
        self.progress = None;
        self.settle();
        self.explain_endings(true);
        self.tell_end(end);
        self.finish();
        match self.processes.remain() || self.has_descendants() {
            true => self.hand_on(),
            false => self.conclude(),
        }
        end_as(end)
    }

    /// The same in a process next to the one that was called.
    fn see_through_caller(mut self) {
        let end = self.run();
        self.explain_endings(true);
        foreground::leave_standard_error();
        self.settle();
        self.tell_end(end);
        if self.processes.remain() || self.has_descendants() {
            self.attend();
        }
        self.workers.drain(..).for_each(Worker::stop);
        self.side_services.drain(..).for_each(|end| end());
        self.conclude();
    }

    /// The same for processes that ran already.
    fn see_through_found(mut self) {
        self.attend();
        self.workers.drain(..).for_each(Worker::stop);
        self.side_services.drain(..).for_each(|end| end());
        self.conclude();
    }

    /// Until the program's end.
    fn run(&mut self) -> End {
        loop {
            self.wait_and_hear();
            self.watch.look(&mut self.processes);
            self.follow_shrunk();
            self.explain_endings(false);
            self.show_progress();
            self.tell_waiting();
            if let Some(end) = self.reap() {
                // What the program's last processes had to say is in their slots already.
                self.wait_and_hear();
                return end;
            }
            if self.has_withdrawn() {
                return End::Unseen;
            }
        }
    }

    fn show_progress(&mut self) {
        if !self.progress.as_ref().is_some_and(Progress::is_due) {
            return;
        }
        let now = self.report(self.application.pool.usage());
        if let Some(progress) = &mut self.progress {
            progress.show(now);
        }
    }

    /// Logs when the program begins to wait for most of its time, and when it no longer does.
    fn tell_waiting(&mut self) {
        if tracing::dispatcher::has_been_set() && self.waiting.is_due() {
            let now = self.report(self.application.pool.usage());
            if let Some(change) = self.waiting.judge(now) {
                change.tell(&self.options.name);
            }
        }
    }

    fn tell_end(&self, end: End) {
        if !tracing::dispatcher::has_been_set() {
            return;
        }
        let report = self.final_report();
        tracing::info!(
            application = self.options.name,
            end = ?end,
            wall_seconds = report.wall_seconds,
            resident_peak_bytes = report.resident_peak_bytes,
            faults = report.counter("faults"),
            stall_seconds = report.counter("stall_ns") as f64 / 1e9,
            "program ended"
        );
    }

    /// Lets those who are about to begin or to end do so. A process that is there afterwards has been left
    /// behind.
    fn settle(&mut self) {
        let began = Instant::now();
        while (self.has_children() || self.processes.remain()) && began.elapsed() < SETTLING {
            self.wait_and_hear();
            self.watch.look(&mut self.processes);
        }
    }

    /// Goes on in the background for processes that the program has left behind. Returns in the process that
    /// was called.
    fn hand_on(&mut self) {
        self.cpu_before = children_cpu();
        self.side_services.drain(..).for_each(|end| end());
        self.workers.drain(..).for_each(Worker::stop);
        match split() {
            Ok(Role::Caller) => {}
            Ok(Role::Background) => {
                self.workers = start_workers(self.application, self.lease_client, &self.attacher);
                self.side_services = begin_side_services(self.options, &self.own);
                self.attend();
                self.conclude();
                std::process::exit(0);
            }
            Err(error) => say(&format!(
                "what the program has left behind goes on without a supervisor, and nothing of it moves to disk any \
                 more: {error}"
            )),
        }
    }

    /// The last process has gone: nobody needs what is on memory nodes any more, and nothing more happens to
    /// any page.
    fn conclude(&self) {
        if let Some(carrier) = self.application.carrier {
            carrier.leave();
        }
        if let Some(recorder) = self.application.recorder {
            recorder.end();
        }
        self.options.side_services.iter().for_each(SideService::leave);
    }

    /// In the background: until the last process has gone.
    fn attend(&mut self) {
        tracing::info!(application = self.options.name, "goes on in the background");
        let mut seen = Instant::now();
        // Below a program that was started here all processes are known. Elsewhere one may come that nobody
        // has seen.
        let last = if !self.is_found { SETTLING } else { LAST };
        while seen.elapsed() < last && !self.has_withdrawn() {
            self.wait_and_hear();
            self.descend();
            self.follow_shrunk();
            self.watch.look(&mut self.processes);
            self.explain_endings(false);
            self.has_children();
            // Those without a pager are looked for only when there is nobody else: it means a walk through
            // all of them.
            if self.processes.remain() || seen.elapsed() > last / 2 && self.has_descendants() {
                seen = Instant::now();
            }
        }
        let report = self.final_report();
        say_failed(self.statistics.as_mut().map(|file| file.write_anew(&report)));
    }

    /// A step on the way to the budget, and word of it to the process that waits for that.
    fn descend(&mut self) {
        if !self.is_found {
            return;
        }
        let attacher = &self.attacher;
        let ledger = self.application.ledger;
        if let Some(descent) = &mut self.descent
            && (self.is_withdrawing || !descent.step(ledger, ledger.resident() + attacher.seen().unknown()))
        {
            self.descent = None;
        }
        if !self.onlooker.as_ref().is_some_and(Onlooker::is_due) {
            return;
        }
        let seen = attacher.seen();
        let report = self.report(self.application.pool.usage());
        let standing = Standing {
            name: report.name,
            process: report.process,
            processes: seen.processes as u64,
            managed: report.processes,
            budget_bytes: report.budget_bytes,
            resident_bytes: report.resident_bytes + seen.unknown().bytes().get(),
            far_bytes: PageCount::new(report.far_pages).bytes().get(),
            refusal: seen.refusal,
            is_over: false,
        };
        let is_alone = standing.managed == 0 && !attacher.has_pagers() && !standing.is_within_budget();
        let Some(onlooker) = &mut self.onlooker else { return };
        let is_over = match standing.refusal.clone().filter(|_| is_alone) {
            Some(refusal) => {
                onlooker.refuse(&format!("nothing can be managed: {refusal}"));
                attacher.withdraw();
                self.is_withdrawing = true;
                true
            }
            None => onlooker.tell(standing, self.descent.is_some()),
        };
        if is_over {
            self.onlooker = None;
            foreground::leave_standard_error();
        }
    }

    /// Has all that is far brought back, and ends then. Why not, if it can't be.
    fn withdraw(&mut self) -> Result<(), String> {
        if self.caller.is_none() && !self.is_found {
            return Err(REPORTING_AT_END.to_owned());
        }
        if self.is_withdrawing {
            return Ok(());
        }
        let is_full = self.application.injection == Injection::NoMemory;
        if let Some(reason) = room::refusal(self.application.ledger, is_full) {
            return Err(reason);
        }
        self.attacher.withdraw();
        self.is_withdrawing = true;
        self.resize.forget();
        tracing::info!(application = self.options.name, "far memory is brought back");
        Ok(())
    }

    /// Whether all has come back, and no pager is there any more.
    fn has_withdrawn(&self) -> bool {
        self.is_withdrawing && !self.processes.remain() && !self.attacher.has_pagers()
    }

    /// Whether the process is one of the application's.
    fn holds(&self, process: u32) -> bool {
        let is_it = |slot: &ProcessSlot<'_>| slot.state() != SlotState::Free && slot.process() == process;
        self.application.ledger.slots().any(|slot| is_it(&slot))
            || !self.is_found && self.program.as_raw() as u32 == process && !self.has_ended
            || self.attacher.living().contains(&process)
    }

    /// Waits for something to happen, at most until it is time to look around, and deals with it.
    fn wait_and_hear(&mut self) {
        let Some(news) = self.await_news() else { return };
        for key in news.links {
            if let Some(query) = self.processes.hear(key) {
                self.answer(query);
            }
        }
        self.regions.look();
        if news.has_signal {
            let program = rustix::process::Pid::from_raw(self.program.as_raw());
            self.signals.pass_on(program.filter(|_| !self.has_ended && self.caller.is_none()));
        }
        if news.has_connection {
            self.let_in();
        }
        self.processes.drop_unidentified();
    }

    /// What has happened, when something has or it is time to look around; `None` when waiting was
    /// interrupted.
    fn await_news(&self) -> Option<News> {
        let keys: Vec<u64> = self.processes.links().map(|(key, _)| key).collect();
        let mut set: Vec<PollFd<'_>> =
            self.processes.links().map(|(_, link)| PollFd::from_borrowed_fd(link, PollFlags::IN)).collect();
        set.push(PollFd::from_borrowed_fd(self.signals.fd().as_fd(), PollFlags::IN));
        let is_listening = self.listens_from <= Instant::now();
        let new = if is_listening { PollFlags::IN } else { PollFlags::empty() };
        set.push(PollFd::from_borrowed_fd(self.listener.as_fd(), new));
        if let Some(caller) = self.caller {
            set.push(caller.watch());
        }
        let is_falling = self.descent.is_some() || self.resize.is_falling();
        let look = if is_falling { DESCENT_LOOK } else { LOOK };
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: look.as_nanos() as i64 };
        poll(&mut set, Some(&timeout)).ok()?;
        let is_ready = |place: &PollFd<'_>| !place.revents().is_empty();
        Some(News {
            links: keys.iter().zip(&set).filter(|(_, place)| is_ready(place)).map(|(&key, _)| key).collect(),
            has_signal: is_ready(&set[keys.len()]),
            has_connection: is_ready(&set[keys.len() + 1]),
        })
    }

    /// Answers what somebody asks, at once unless it is for a process to tell.
    fn answer(&mut self, query: Query) {
        let refused = match query.question {
            Question::Report => None,
            Question::Holds(process) => return query.answer(&self.holds(process)),
            _ if !query.may_set => Some(NOT_YOURS.to_owned()),
            Question::Processes => return query.answer(&inside::processes(&self.application.ledger)),
            Question::Regions(process) => return self.regions.take(query, process),
            Question::Size => return query.answer(&self.size()),
            Question::Shrink(to) | Question::Grow(to) => {
                let is_to_shrink = matches!(query.question, Question::Shrink(_));
                return match self.change_size(is_to_shrink, to) {
                    Ok(()) => query.answer(&self.size()),
                    Err(reason) => query.refuse(&reason),
                };
            }
            Question::Set(limits) => self.set(limits).err(),
            Question::Withdraw => self.withdraw().err(),
        };
        match refused {
            Some(reason) => query.refuse(&reason),
            None => query.answer(&self.report(self.application.pool.usage())),
        }
    }

    /// Changes limits: all of them or none.
    ///
    /// # Errors
    /// A sentence that says why they can't be set.
    fn set(&mut self, limits: Limits) -> Result<(), String> {
        let outcome = self.resize.set(limits, &mut locked(self.lease_client));
        match &outcome {
            Ok(()) => tracing::info!(application = self.options.name, ?limits, "limits changed"),
            Err(reason) => tracing::info!(application = self.options.name, reason, "limits refused"),
        }
        if outcome.is_ok() && limits.local.is_some() {
            *self.watch.sizing() = None;
        }
        outcome
    }

    /// Makes it so small, or as small as is sensible, and remembers how it was; or lets it be so large, or as
    /// large as it was.
    ///
    /// # Errors
    /// A sentence that says why not; then all is as it was.
    fn change_size(&mut self, is_to_shrink: bool, to: Option<PageCount>) -> Result<(), String> {
        if self.is_withdrawing {
            return Err(LEAVING.to_owned());
        }
        self.attacher.see();
        let condition = self.condition();
        let (lease_client, sizing) = (&mut locked(self.lease_client), self.watch.sizing());
        match is_to_shrink {
            true => self.resize.shrink(to, &condition, lease_client, sizing)?,
            false => self.resize.grow(to, lease_client, sizing)?,
        }
        self.descent = None;
        tracing::info!(application = self.options.name, is_to_shrink, "size changed");
        Ok(())
    }

    fn follow_shrunk(&mut self) {
        if self.resize.shrunk().is_some() {
            let condition = self.condition();
            self.resize.follow(&condition, &mut locked(self.lease_client));
        }
    }

    /// What the application has, by the latest look at its processes.
    fn condition(&self) -> Condition {
        let seen = self.attacher.seen();
        Condition {
            processes: seen.processes,
            resident: self.application.ledger.resident() + seen.unknown(),
            evicted: self.processes.sum().get(Counter::Evicted),
            refusal: seen.refusal,
        }
    }

    /// How large it is.
    fn size(&self) -> Size {
        let report = self.report(self.application.pool.usage());
        let resident = self.application.ledger.resident() + self.attacher.seen().unknown();
        let shrunk = self.resize.shrunk();
        let wanted = shrunk.map_or_else(|| self.resize.agreed(&self.lease_client()), Shrunk::wanted);
        Size {
            budget_bytes: report.budget_bytes,
            wanted_bytes: wanted.bytes().get(),
            shrunk_from_bytes: report.shrunk_from_bytes,
            resident_bytes: resident.bytes().get(),
            far_bytes: report.far_bytes(),
            pool_bytes: report.pool_bytes,
            own_bytes: report.own_bytes,
            node_bytes: report.node_bytes,
            disk_bytes: report.disk_bytes,
            is_small: shrunk.is_some_and(|shrunk| shrunk.is_small(resident)),
            reason: shrunk.and_then(|shrunk| shrunk.reason().map(str::to_owned)),
            process: report.process,
            name: report.name,
        }
    }

    /// Takes new connections, no more than are heard out before the next ones.
    fn let_in(&mut self) {
        for _ in 0..MOST_UNIDENTIFIED {
            match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(socket) => self.processes.accept(socket),
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    // Whoever waits still waits: asking again and again wouldn't help.
                    self.listens_from = Instant::now() + REST;
                    return;
                }
                Err(_) => return,
            }
        }
    }

    /// Whether the program has ended, and how. Orphans that have ended are let go.
    fn reap(&mut self) -> Option<End> {
        if let Some(caller) = self.caller {
            self.has_children();
            self.has_ended = caller.has_ended();
            return self.has_ended.then_some(End::Unseen);
        }
        while let Ok(Some((child, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if child.as_raw_nonzero().get() != self.program.as_raw() {
                self.note_ended(child, status);
                continue;
            }
            if let Some(end) =
                status.exit_status().map(End::Exited).or(status.terminating_signal().map(End::Signalled))
            {
                self.has_ended = true;
                return Some(end);
            }
            // A shell at a terminal waits for the job, and wants to see that it was stopped. It lets the
            // whole job go on. Elsewhere whoever stops the program lets the program alone go on: its
            // supervisor would stay stopped for ever.
            if status.stopped() && has_terminal() {
                let _ = nix::sys::signal::kill(Pid::this(), Signal::SIGSTOP);
            }
        }
        None
    }

    /// After the program's end: whether processes live that it has left behind, with a pager or without.
    fn has_descendants(&self) -> bool {
        !self.has_withdrawn() && !self.attacher.living().is_empty()
    }

    /// After the program's end: whether orphans of its live.
    fn has_children(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((child, status))) => self.note_ended(child, status),
                Err(Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Another child than the program has ended: an orphan of it, or a pager.
    fn note_ended(&mut self, child: rustix::process::Pid, status: WaitStatus) {
        if !status.stopped() {
            let number = child.as_raw_nonzero().get().unsigned_abs();
            let had_managed = self.processes.had_managed(number);
            self.attacher.ended(number, status.exit_status(), had_managed);
        }
    }

    fn explain_endings(&mut self, is_last: bool) {
        if is_last {
            // The connection of a process that was killed may be noticed after its end.
            self.wait_and_hear();
        }
        for (process, ending) in self.processes.endings.drain(..) {
            let is_disk_failing = self.application.pool.usage().disk_writes_failed > 0;
            let reason = ending.reason(is_disk_failing);
            say(&format!("process {process} was ended: {reason}"));
        }
    }

    fn lease_client(&self) -> MutexGuard<'_, LeaseClient> {
        locked(self.lease_client)
    }

    fn report(&self, usage: PoolUsage) -> Report {
        let (terms, standing) = {
            let lease_client = self.lease_client();
            (lease_client.terms(), lease_client.standing())
        };
        let totals = self.processes.sum();
        Report::new(&Source {
            name: &self.options.name,
            managed_by: self.options.managed_by.as_ref(),
            process: self.program.as_raw() as u32,
            wall: self.began.elapsed(),
            cpu: self.cpu_before + children_cpu(),
            ledger: self.application.ledger,
            absences: self.watch.under_budget(&totals.absences()),
            totals,
            started: self.processes.started(),
            shared: self.attacher.shared(),
            terms,
            standing,
            shrunk_from: self.resize.shrunk().map_or(PageCount::ZERO, |shrunk| shrunk.before.budget),
            usage,
            nodes: self.application.carrier.map(|carrier| carrier.figures()).unwrap_or_default(),
            links: self.application.carrier.map(|carrier| carrier.sharing().figures()).unwrap_or_default(),
        })
    }

    /// Totals as they are, the pool as it was when it held most.
    fn final_report(&self) -> Report {
        let now = self.application.pool.usage();
        self.report(PoolUsage {
            disk_writes_failed: now.disk_writes_failed,
            away_reads: now.away_reads,
            buffer_hits: now.buffer_hits,
            fetches: now.fetches,
            fetches_failed: now.fetches_failed,
            slabs_raised: now.slabs_raised,
            ..self.watch.peak()
        })
    }

    fn finish(&mut self) {
        let report = self.final_report();
        say_failed(self.statistics.as_mut().map(|file| file.write(&report)));
        if self.options.summary {
            say::write(&report.summary());
        }
    }
}

fn locked(lease_client: &Mutex<LeaseClient>) -> MutexGuard<'_, LeaseClient> {
    lease_client.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Statistics that could not be written are no reason to end otherwise than the program did.
fn say_failed(written: Option<Result<()>>) {
    if let Some(Err(error)) = written {
        say(&format!("{error:#}"));
    }
}

/// Whether there is a terminal whose shell controls jobs.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Processor time of all that this process has waited for.
fn children_cpu() -> Duration {
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_or(Duration::ZERO, |usage| to_duration(usage.user_time()) + to_duration(usage.system_time()))
}

fn to_duration(time: nix::sys::time::TimeVal) -> Duration {
    Duration::from_secs(time.tv_sec() as u64) + Duration::from_micros(time.tv_usec() as u64)
}
