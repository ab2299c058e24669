//! Starts a program natively or under `farmem run`, watches it, and collects how it ended.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::looks::{LOOK_INTERVAL, pause_after};
use crate::scale::patience;
use crate::scratch::Scratch;
use crate::statistics::Statistics;
use crate::watch::{Peak, Sampler, describe, kill_tree};

/// The runner that is used when `FARMEM_TEST_RUNNER` does not say another.
pub const DEFAULT_RUNNER: Runner = Runner::Farmem;

const SAMPLE_INTERVAL: Duration = Duration::from_millis(4);

/// How the second run of a scenario is started.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Runner {
    /// As the first: for checking the scenarios themselves.
    Native,
    /// Under `farmem run`.
    Farmem,
}

/// The runner of this test run.
///
/// # Panics
/// When `FARMEM_TEST_RUNNER` names neither.
#[must_use]
pub fn runner() -> Runner {
    match std::env::var("FARMEM_TEST_RUNNER").as_deref() {
        Err(_) => DEFAULT_RUNNER,
        Ok("native") => Runner::Native,
        Ok("farmem") => Runner::Farmem,
        Ok(other) => panic!("FARMEM_TEST_RUNNER is `native` or `farmem`, not `{other}`"),
    }
}

/// True when tests run under the pager; says on standard error that a test has nothing to do when not.
#[must_use]
pub fn managed_runner() -> bool {
    let managed = runner() == Runner::Farmem;
    if !managed {
        eprintln!("skipped: this behaviour is farmem's own, and the runner is native");
    }
    managed
}

/// The `farmem` binary under test.
#[must_use]
pub fn farmem_binary() -> PathBuf {
    if let Some(path) = std::env::var_os("FARMEM_BIN") {
        return std::path::absolute(path).expect("FARMEM_BIN is a path");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), PathBuf::from);
    target.join("release/farmem")
}

/// A program to start.
#[derive(Clone, Debug)]
pub struct Program {
    path: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    input: Option<Vec<u8>>,
}

impl Program {
    /// The program at `path`, or found along `PATH`.
    #[must_use]
    pub fn new(path: impl Into<OsString>) -> Self {
        Self { path: path.into(), arguments: Vec::new(), environment: Vec::new(), input: None }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets one environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// What it reads from standard input; nothing when not given.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }
}

/// Starts the programs of one run of a scenario, and collects what they used.
///
/// Cheap to share by reference; several programs may run at a time.
#[derive(Debug)]
pub struct Launcher {
    scratch: Scratch,
    budget_bytes: Option<u64>,
    options: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    records: Mutex<Vec<Record>>,
    started: AtomicUsize,
    may_overshoot: AtomicBool,
}

#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) peak: Peak,
    pub(crate) statistics: Option<Result<Statistics, String>>,
}

impl Launcher {
    /// Starts programs as they are.
    #[must_use]
    pub fn native() -> Self {
        Self::with_budget(None)
    }

    /// Starts programs under `farmem run --local budget_bytes`.
    #[must_use]
    pub fn managed(budget_bytes: u64) -> Self {
        Self::with_budget(Some(budget_bytes))
    }

    fn with_budget(budget_bytes: Option<u64>) -> Self {
        // Daemons and other orphans become children of the test, so that they are found and ended with the
        // rest.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .expect("a process may adopt the orphans below it");
        Self {
            scratch: Scratch::new(),
            budget_bytes,
            options: Vec::new(),
            environment: Vec::new(),
            records: Mutex::new(Vec::new()),
            started: AtomicUsize::new(0),
            may_overshoot: AtomicBool::new(false),
        }
    }

    /// Adds an option for `farmem run`; `--local` stands instead of the launcher's budget.
    #[must_use]
    pub fn option(mut self, option: impl Into<OsString>) -> Self {
        self.options.push(option.into());
        self
    }

    /// Sets a variable for `farmem run` itself (the program inherits it).
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Its programs fill more than their budget before pagers can come, so only what they have in it is
    /// checked.
    pub fn let_overshoot(&self) {
        self.may_overshoot.store(true, Ordering::Relaxed);
    }

    /// Whether that was said.
    pub(crate) fn may_overshoot(&self) -> bool {
        self.may_overshoot.load(Ordering::Relaxed)
    }

    /// True when programs run under the pager.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        self.budget_bytes.is_some()
    }

    /// The directory of this run.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// The path of a file in the directory of this run.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.scratch.file(name)
    }

    /// Starts a program in the directory of this run.
    ///
    /// # Panics
    /// When it can't be started.
    pub fn start(&self, program: Program) -> Running<'_> {
        self.start_within(program, self.budget_bytes, true)
    }

    fn start_within(&self, program: Program, budget_bytes: Option<u64>, recorded: bool) -> Running<'_> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let statistics_path = budget_bytes.map(|_| self.file(&format!("statistics.{number}.json")));
        let mut command = match (budget_bytes, &statistics_path) {
            (Some(budget_bytes), Some(path)) => {
                let mut command = Command::new(farmem_binary());
                command.arg("run");
                if !self.options.iter().any(|option| option == "--local") {
                    command.arg("--local").arg(format!("{budget_bytes}"));
                }
                command.arg("--stats").arg(path).args(&self.options).arg("--").arg(&program.path);
                command
            }
            _ => Command::new(&program.path),
        };
        command.args(&program.arguments);
        command.envs(self.environment.iter().cloned()).envs(program.environment.iter().cloned());
        command.current_dir(self.directory());
        let stdin = match &program.input {
            None => Stdio::null(),
            Some(bytes) => {
                let path = self.file(&format!("stdin.{number}"));
                std::fs::write(&path, bytes).expect("the directory of the run can be written");
                File::open(path).expect("it was just written").into()
            }
        };
        let stdout_path = self.file(&format!("stdout.{number}"));
        let stderr_path = self.file(&format!("stderr.{number}"));
        let create = |path: &Path| File::create(path).expect("the directory of the run can be written");
        // A group of its own, so that a signal for one program never reaches the test.
        command.stdin(stdin).stdout(create(&stdout_path)).stderr(create(&stderr_path)).process_group(0);
        let child = command.spawn().unwrap_or_else(|error| {
            panic!(
                "{:?} can't be started: {error}; `scripts/setup` installs what the tests need",
                command.get_program()
            )
        });
        let watch = Watch::start(child.id(), patience());
        Running {
            launcher: self,
            recorded,
            child: Some(child),
            watch: Some(watch),
            stdout_path,
            stderr_path,
            statistics_path,
        }
    }

    /// Starts a program and waits for its end.
    pub fn run(&self, program: Program) -> Finished {
        self.start(program).wait()
    }

    /// Runs a program natively whichever the runner: for what prepares or checks, and is not under test.
    ///
    /// # Panics
    /// When it fails.
    pub fn helper(&self, program: Program) -> Finished {
        self.start_within(program, None, false).wait().success()
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        self.records.lock().expect("no holder panics").clone()
    }

    /// The most resident memory that a process of its programs shared by mapping it, in bytes, as the kernel
    /// counts it.
    #[must_use]
    pub fn shared_peak_bytes(&self) -> u64 {
        self.records().iter().map(|record| record.peak.shared_bytes).max().unwrap_or_default()
    }

    pub(crate) fn budget_bytes(&self) -> Option<u64> {
        self.budget_bytes
    }
}

/// Samples what the processes use, and ends them when they take too long.
#[derive(Debug)]
struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(Peak, Option<String>)>,
}

impl Watch {
    fn start(root: u32, limit: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let deadline = Instant::now() + limit;
            let mut sampler = Sampler::default();
            while !stopped.load(Ordering::Acquire) {
                let began = Instant::now();
                sampler.sample(root);
                if began > deadline {
                    let report = format!("stuck after {} s:\n{}", limit.as_secs(), describe(root));
                    kill_tree(root);
                    return (sampler.peak, Some(report));
                }
                pause_after(began, SAMPLE_INTERVAL);
            }
            (sampler.peak, None)
        });
        Self { stop, thread }
    }

    fn finish(self) -> (Peak, Option<String>) {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("the watch does not panic")
    }
}

/// A program that was started. Dropping it ends it with all its descendants.
#[derive(Debug)]
pub struct Running<'launcher> {
    launcher: &'launcher Launcher,
    recorded: bool,
    child: Option<Child>,
    watch: Option<Watch>,
    stdout_path: PathBuf,
    stderr_path: PathBuf,
    statistics_path: Option<PathBuf>,
}

impl Running<'_> {
    /// The number of the process that was started: the supervisor when managed.
    ///
    /// # Panics
    /// Never before [`Self::wait`].
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.child.as_ref().expect("present until it was waited for").id()
    }

    /// The number of the program's own first process, once it is there.
    #[must_use]
    pub fn program_process_id(&self) -> Option<u32> {
        if !self.launcher.is_managed() {
            return Some(self.process_id());
        }
        crate::watch::process_tree(self.process_id()).get(1).copied()
    }

    /// True until the program has ended.
    ///
    /// # Panics
    /// When the kernel refuses to say.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().expect("present until it was waited for").try_wait().expect("own child").is_none()
    }

    /// Waits until `ready` gives something; fails when the program ends before, or nothing comes.
    ///
    /// # Panics
    /// As said, with what the program wrote.
    pub fn until<T>(&mut self, what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + patience();
        loop {
            let began = Instant::now();
            if let Some(value) = ready() {
                return value;
            }
            let running = self.is_running();
            if !running || Instant::now() > deadline {
                let report = describe(self.process_id());
                let stderr = std::fs::read_to_string(&self.stderr_path).unwrap_or_default();
                let stdout = std::fs::read_to_string(&self.stdout_path).unwrap_or_default();
                panic!(
                    "{what} never came (program is running: {running})\n{report}\nstdout:\n{stdout}\nstderr:\n{stderr}"
                );
            }
            pause_after(began, LOOK_INTERVAL);
        }
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it takes so long that it counts as stuck; the message says what each thread was doing.
    pub fn wait(mut self) -> Finished {
        let mut child = self.child.take().expect("present until it was waited for");
        while process_is_alive(&mut child) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let (peak, stuck) = self.watch.take().expect("present until it was waited for").finish();
        let status = child.wait().expect("own child");
        let read = |path: &Path| std::fs::read(path).unwrap_or_default();
        let statistics = self.statistics_path.as_deref().map(Statistics::read);
        if self.recorded {
            let record = Record { peak, statistics: statistics.clone() };
            self.launcher.records.lock().expect("no holder panics").push(record);
        }
        let finished =
            Finished { status, stdout: read(&self.stdout_path), stderr: read(&self.stderr_path), statistics };
        if let Some(report) = stuck {
            panic!("{report}\n{finished}");
        }
        finished
    }
}

/// Looks without reaping, so that the watch may still use the number.
fn process_is_alive(child: &mut Child) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    !matches!(stat.rsplit(')').next().unwrap_or_default().trim().chars().next(), None | Some('Z' | 'X'))
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let ended = child.try_wait();
        if std::thread::panicking() {
            match &ended {
                Ok(Some(status)) => eprintln!("it had ended by the failure: {status}"),
                _ => eprintln!("at the failure:\n{}", describe(child.id())),
            }
            eprintln!("stderr:\n{}", std::fs::read_to_string(&self.stderr_path).unwrap_or_default());
        }
        if matches!(ended, Ok(None)) {
            if let Some(watch) = self.watch.take() {
                watch.finish();
            }
            kill_tree(child.id());
            let _ = child.wait();
        }
    }
}

/// How a program ended.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status, or the signal that ended it.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// The statistics that farmem left, when managed.
    pub statistics: Option<Result<Statistics, String>>,
}

impl Finished {
    /// Standard output as text.
    ///
    /// # Panics
    /// When it is not UTF-8.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("the program writes text")
    }

    /// Itself, when the program ended with status 0.
    ///
    /// # Panics
    /// When it did not.
    #[must_use]
    pub fn success(self) -> Self {
        self.assert_success();
        self
    }

    /// Checks that the program ended with status 0.
    ///
    /// # Panics
    /// When it did not.
    pub fn assert_success(&self) {
        assert!(self.status.success(), "the program failed: {self}");
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tail = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(40)..].join("\n")
        };
        write!(
            formatter,
            "code {:?}, signal {:?}\nstdout:\n{}\nstderr:\n{}",
            self.status.code(),
            self.status.signal(),
            tail(&self.stdout),
            tail(&self.stderr)
        )
    }
}
