//! Programs that run at the same time, each again and again until all have been through once: so each is
//! disturbed by all others for as long as it is measured.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use farmem_page::ByteCount;
use serde::Serialize;
use serde_json::Value;

use super::profile::{PATIENCE, Profile, printed};
use super::program::{Kit, Program, SERVER_THREADS};
use crate::interrupt::Interrupt;
use crate::isolation::client::Client;
use crate::isolation::server;
use crate::isolation::setting::{Application, Room, Setting, on_processor};
use crate::isolation::site::Site;

/// The part of a processor that each program has, alone or not: two of them, and some for memcached's client.
const SHARE: f64 = 0.4;
const LOOK: Duration = Duration::from_millis(5);
/// Between two looks at what else than data the kernel counts.
const LIMIT: Duration = Duration::from_millis(100);
/// Requests between two looks of memcached's client at whether it is over.
const AT_ONCE: u64 = 200;

/// How a program went the first time that it ran.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Ran {
    pub(super) took: Duration,
    /// What Farmem says about it, where that runs it.
    pub(super) figures: Option<Figures>,
}

/// What Farmem says about a program.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Figures {
    /// Of the faults for far pages, those that prefetching saved.
    pub contribution: f64,
    /// Of the pages that were fetched ahead, those that were used.
    pub accuracy: f64,
    /// Pages that left.
    pub swap_outs: f64,
}

impl Figures {
    fn of(statistics: &Value) -> anyhow::Result<Self> {
        let figure = |name: &str| statistics[name].as_f64().with_context(|| format!("{name} isn't told"));
        Ok(Self {
            contribution: figure("contribution")?,
            accuracy: figure("accuracy")?,
            swap_outs: figure("evicted")?,
        })
    }
}

/// How all of them went.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Outcome {
    pub(super) programs: BTreeMap<Program, Ran>,
    /// Pages of all of them that left each second, while each ran for the first time; over the kernel's swap
    /// while any did.
    pub(super) swap_outs_per_second: f64,
}

/// Runs programs at the same time, each with its memory divided by `part` local. Under Farmem they share a
/// site.
pub(super) fn run(
    setting: &Setting,
    site: Option<&Site>,
    kit: &Kit,
    profiles: &[&Profile],
    requests: u64,
    part: u64,
) -> anyhow::Result<Outcome> {
    let interrupt = setting.interrupt();
    let mut clients = Vec::new();
    let mut course = Course { running: Vec::new() };
    // The server has all its data before anybody else begins.
    let (servers, others): (Vec<&Profile>, Vec<&Profile>) =
        profiles.iter().partition(|profile| profile.program == Program::Memcached);
    for profile in servers {
        let mut server = Running::start(setting, site, kit, profile, part)?;
        let client = server::fill(&kit.socket(), profile.program.processor(), kit.data(), interrupt)?;
        clients = client.divide(&kit.socket(), SERVER_THREADS)?;
        server.application.limit()?;
        course.running.push(server);
    }
    // Limited before they have anything: to take memory back from one takes seconds, in which the next one
    // would run without a limit.
    for profile in others {
        let mut other = Running::start(setting, site, kit, profile, part)?;
        other.application.limit()?;
        course.running.push(other);
    }
    for running in &mut course.running {
        running.note_what_left_before(setting)?;
    }
    // Those of all programs over the kernel's swap; Farmem tells them of each.
    let swapped_out = || setting.swapped_out(&[]);
    let before = swapped_out()?;
    let requests = Requests {
        began: Instant::now(),
        left: AtomicU64::new(requests),
        took: OnceLock::new(),
        is_over: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let asking: Vec<_> = clients.into_iter().map(|client| scope.spawn(|| requests.ask(client))).collect();
        let are_asking = || asking.iter().all(|asking| !asking.is_finished());
        let programs = course.watch(setting, kit, &requests.took, &are_asking, interrupt);
        let (after, seconds) = (swapped_out(), requests.began.elapsed().as_secs_f64());
        requests.is_over.store(true, Ordering::Release);
        let answered = asking
            .into_iter()
            .try_for_each(|asking| asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        // A thread that asks in vain knows more about it than one that looks on.
        let programs = answered.context("memcached").and(programs)?;
        let told: f64 =
            programs.values().filter_map(|ran| Some(ran.figures?.swap_outs / ran.took.as_secs_f64())).sum();
        let of_kernel = after?.saturating_sub(before) as f64 / seconds;
        Ok(Outcome { programs, swap_outs_per_second: told + of_kernel })
    })
}

/// What memcached is asked, by all connections together.
struct Requests {
    began: Instant,
    left: AtomicU64,
    /// How long those took that count.
    took: OnceLock<Duration>,
    is_over: AtomicBool,
}

impl Requests {
    /// Asks, so many times that all of them together come to the number that counts, and then until it is
    /// over.
    fn ask(&self, mut client: Client) -> anyhow::Result<()> {
        on_processor(Program::Memcached.processor(), || {
            while !self.is_over.load(Ordering::Acquire) {
                client.ask(AT_ONCE)?;
                let take = |left: u64| Some(left.saturating_sub(AT_ONCE));
                let before = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
                if before.is_ok_and(|left| left <= AT_ONCE) {
                    self.took.get_or_init(|| self.began.elapsed());
                }
            }
            Ok(())
        })?
    }
}

struct Course<'a> {
    /// In the order in which they began, and the opposite of that in which they end.
    running: Vec<Running<'a>>,
}

impl Course<'_> {
    fn watch(
        &mut self,
        setting: &Setting,
        kit: &Kit,
        asked: &OnceLock<Duration>,
        are_asking: &dyn Fn() -> bool,
        interrupt: &Interrupt,
    ) -> anyhow::Result<BTreeMap<Program, Ran>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            interrupt.check()?;
            ensure!(are_asking(), "a client of memcached's has ended");
            ensure!(Instant::now() < deadline, "the programs don't end");
            for running in &mut self.running {
                let look = if running.profile.program == Program::Memcached {
                    running.look_at_server(setting, asked)
                } else {
                    running.look(kit)
                };
                look.with_context(|| running.profile.program.room())?;
            }
            let programs = self.running.iter().map(|running| Some((running.profile.program, running.ran?)));
            if let Some(programs) = programs.collect() {
                return Ok(programs);
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
    /// Where its statistics are once it has ended, under Farmem.
    statistics: Option<PathBuf>,
    /// Pages that had left before it counted.
    left_before: f64,
    ran: Option<Ran>,
}

impl<'a> Running<'a> {
    fn start(
        setting: &Setting,
        site: Option<&Site>,
        kit: &Kit,
        profile: &'a Profile,
        part: u64,
    ) -> anyhow::Result<Self> {
        let program = profile.program;
        let local = ByteCount::new(profile.peak.get() / part);
        let (name, processor) = (program.room(), program.processor());
        let options = site.map(|site| site.options(name, profile.peak)).unwrap_or_default();
        let broker = site.map(Site::broker);
        let room = Room { name, local, processor, share: Some(SHARE), broker, options: &options };
        let application = setting.start(room, &kit.command(program))?;
        application.spare()?;
        let now = Instant::now();
        let statistics = site.map(|site| site.statistics(name));
        let (began, limited) = (now, now);
        Ok(Self { profile, application, began, limited, statistics, left_before: 0.0, ran: None })
    }

    /// What a server has done while it was filled doesn't count.
    fn note_what_left_before(&mut self, setting: &Setting) -> anyhow::Result<()> {
        if self.profile.program == Program::Memcached && self.statistics.is_some() {
            self.left_before = Figures::of(&setting.figures(self.profile.program.room())?)?.swap_outs;
        }
        Ok(())
    }

    fn look_at_server(&mut self, setting: &Setting, asked: &OnceLock<Duration>) -> anyhow::Result<()> {
        self.application.check()?;
        if let (None, Some(&took)) = (self.ran, asked.get()) {
            let figures = match self.statistics {
                Some(_) => Some(Figures::of(&setting.figures(self.profile.program.room())?)?),
                None => None,
            };
            self.note(took, figures);
        }
        self.keep_limited()
    }

    fn note(&mut self, took: Duration, figures: Option<Figures>) {
        let figures =
            figures.map(|figures| Figures { swap_outs: figures.swap_outs - self.left_before, ..figures });
        self.ran.get_or_insert(Ran { took, figures });
    }

    fn look(&mut self, kit: &Kit) -> anyhow::Result<()> {
        let Some(status) = self.application.child.try_wait()? else { return self.keep_limited() };
        ensure!(status.success(), "it ended with {status}");
        ensure!(printed(&mut self.application.child)? == self.profile.output, "it came to another result");
        if self.ran.is_none() {
            let took = self.began.elapsed();
            let read = |path: &PathBuf| -> anyhow::Result<Figures> {
                let text = fs::read(path).context("it left no statistics")?;
                Figures::of(&serde_json::from_slice(&text)?)
            };
            self.note(took, self.statistics.as_ref().map(read).transpose()?);
        }
        self.application.restart(&kit.command(self.profile.program))
    }

    fn keep_limited(&mut self) -> anyhow::Result<()> {
        let is_due = self.limited.elapsed() >= LIMIT;
        self.application.tend(is_due)?;
        if is_due {
            self.limited = Instant::now();
        }
        Ok(())
    }
}
