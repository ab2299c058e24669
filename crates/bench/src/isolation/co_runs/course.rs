//! Programs that run at the same time, each again and again until all have been through once: so each is disturbed by all others for as long as it
//! is measured.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use farmem_page::ByteCount;

use super::profile::{PATIENCE, Profile, printed};
use super::program::{Kit, Program};
use crate::interrupt::Interrupt;
use crate::isolation::client::Client;
use crate::isolation::server;
use crate::isolation::setting::{Application, Room, Setting, on_processor};

/// The part of a processor that each program has, alone or not: two of them, and some for memcached's client.
const SHARE: f64 = 0.4;
const LOOK: Duration = Duration::from_millis(5);
/// Between two looks at what else than data the kernel counts.
const LIMIT: Duration = Duration::from_millis(100);
/// Requests between two looks of memcached's client at whether it is over.
const AT_ONCE: u64 = 200;

/// Runs programs at the same time, each with its memory divided by `part` local; how long each took the first time.
pub(super) fn run(
    setting: &Setting,
    kit: &Kit,
    profiles: &[&Profile],
    requests: u64,
    part: u64,
) -> anyhow::Result<BTreeMap<Program, Duration>> {
    let interrupt = setting.interrupt();
    let mut client = None;
    let mut course = Course { running: Vec::new() };
    // The server has all its data before anybody else begins.
    let (servers, others): (Vec<&Profile>, Vec<&Profile>) =
        profiles.iter().partition(|profile| profile.program == Program::Memcached);
    for profile in servers {
        let mut server = Running::start(setting, kit, profile, part)?;
        client = Some(server::fill(&kit.socket(), profile.program.processor(), kit.data(), interrupt)?);
        server.application.limit()?;
        course.running.push(server);
    }
    // Limited before they have anything: to take memory back from one takes seconds, in which the next one would run without a limit.
    for profile in others {
        let mut other = Running::start(setting, kit, profile, part)?;
        other.application.limit()?;
        course.running.push(other);
    }
    let (is_over, asked) = (AtomicBool::new(false), OnceLock::new());
    thread::scope(|scope| {
        let asking = client.map(|client| scope.spawn(|| ask(client, requests, &asked, &is_over)));
        let is_asking = || asking.as_ref().is_none_or(|asking| !asking.is_finished());
        let times = course.watch(kit, &asked, &is_asking, interrupt);
        is_over.store(true, Ordering::Release);
        let answered = asking.map_or(Ok(Ok(())), |asking| asking.join());
        let answered = answered.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // Who asks in vain knows more about it than who looks on.
        answered.context("memcached").and(times)
    })
}

/// Asks memcached, so many times, and then until it is over.
fn ask(
    mut client: Client,
    requests: u64,
    asked: &OnceLock<Duration>,
    is_over: &AtomicBool,
) -> anyhow::Result<()> {
    on_processor(Program::Memcached.processor(), || {
        let began = Instant::now();
        let mut left = requests;
        while !is_over.load(Ordering::Acquire) {
            client.ask(AT_ONCE)?;
            left = left.saturating_sub(AT_ONCE);
            if left == 0 {
                asked.get_or_init(|| began.elapsed());
            }
        }
        Ok(())
    })?
}

struct Course<'a> {
    /// In the order in which they began, and the opposite of that in which they end.
    running: Vec<Running<'a>>,
}

impl Course<'_> {
    fn watch(
        &mut self,
        kit: &Kit,
        asked: &OnceLock<Duration>,
        is_asking: &dyn Fn() -> bool,
        interrupt: &Interrupt,
    ) -> anyhow::Result<BTreeMap<Program, Duration>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            interrupt.check()?;
            ensure!(is_asking(), "memcached's client has ended");
            ensure!(Instant::now() < deadline, "the programs don't end");
            for running in &mut self.running {
                let look = if running.profile.program == Program::Memcached {
                    running.look_at_server(asked)
                } else {
                    running.look(kit)
                };
                look.with_context(|| running.profile.program.room())?;
            }
            let times = self.running.iter().map(|running| Some((running.profile.program, running.took?)));
            if let Some(times) = times.collect() {
                return Ok(times);
            }
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Course<'_> {
    fn drop(&mut self) {
        while self.running.pop().is_some() {}
    }
}

struct Running<'a> {
    profile: &'a Profile,
    application: Application,
    began: Instant,
    limited: Instant,
    took: Option<Duration>,
}

impl<'a> Running<'a> {
    fn start(setting: &Setting, kit: &Kit, profile: &'a Profile, part: u64) -> anyhow::Result<Self> {
        let program = profile.program;
        let local = ByteCount::new(profile.peak.get() / part);
        let (name, processor) = (program.room(), program.processor());
        let room = Room { name, local, processor, share: Some(SHARE), options: &[] };
        let application = setting.start(room, &kit.command(program))?;
        let now = Instant::now();
        Ok(Self { profile, application, began: now, limited: now, took: None })
    }

    fn look_at_server(&mut self, asked: &OnceLock<Duration>) -> anyhow::Result<()> {
        self.application.check()?;
        self.took = asked.get().copied();
        self.keep_limited()
    }

    fn look(&mut self, kit: &Kit) -> anyhow::Result<()> {
        let Some(status) = self.application.child.try_wait()? else { return self.keep_limited() };
        ensure!(status.success(), "it ended with {status}");
        ensure!(printed(&mut self.application.child)? == self.profile.output, "it came to another result");
        self.took.get_or_insert(self.began.elapsed());
        self.application.restart(&kit.command(self.profile.program))
    }

    fn keep_limited(&mut self) -> anyhow::Result<()> {
        if self.limited.elapsed() < LIMIT {
            return Ok(());
        }
        self.application.limit()?;
        self.limited = Instant::now();
        Ok(())
    }
}
