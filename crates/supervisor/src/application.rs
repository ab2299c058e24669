//! What the processes of an application share: ledger, pool, disk, memory nodes.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use farmem_client::to_whole_pages;
use farmem_page::{ByteCount, VirtAddr};
use farmem_store::{Pool, PoolConfig, SLAB_BYTES};
use farmem_sys::AsFd;
use farmem_sys::disk::DiskFile;
use farmem_sys::maps::Maps;
use farmem_sys::shared::SharedMemory;
use farmem_sys::uffd::{FEATURES, Uffd, UffdError};
use farmem_telemetry::{Header, LEDGER_BYTES, Ledger, MAX_PROCESSES};

use crate::carrier::{self, Carrier, Reached, Sharing};
use crate::injection::Injection;
use crate::options::{DiskOptions, FarForm, Options};
use crate::threads::recorder::Recorder;

/// The pool as the supervisor sees it.
pub(crate) type SharedPool = Pool<&'static SharedMemory>;

/// The shared parts. They live as long as the supervisor.
#[derive(Clone, Copy)]
pub(crate) struct Application {
    pub(crate) ledger_memory: &'static SharedMemory,
    pub(crate) ledger: Ledger<'static>,
    pub(crate) pool_memory: &'static SharedMemory,
    pub(crate) pool: &'static SharedPool,
    /// Held while the packer stores for a process, and while what a process has stored is released.
    pub(crate) packing: &'static Mutex<()>,
    pub(crate) disk: Option<&'static DiskFile>,
    /// What brings slabs to memory nodes and pages back, if there are any.
    pub(crate) carrier: Option<&'static Carrier>,
    /// Whether the pool's limit is all that there is for now. Only then does content move to disk: a limit
    /// that is about to be raised is no reason to.
    pub(crate) is_pool_short: &'static AtomicBool,
    /// What writes a trace, if one is wanted.
    pub(crate) recorder: Option<&'static Recorder>,
    /// What the application's processes must know to be let in.
    pub(crate) token: u64,
    /// What tests order to go wrong.
    pub(crate) injection: Injection,
}

impl Application {
    /// Makes them, if the kernel lets this process do a supervisor's work.
    pub(crate) fn create(options: &Options) -> Result<Self> {
        permitted()?;
        Self::assemble(options)
    }

    /// Begins to record, if that is wanted. Last of all that may be refused: the trace that was there before
    /// is gone then.
    pub(crate) fn record(mut self, options: &Options) -> Result<Self> {
        if let Some(path) = &options.trace {
            self.recorder = Some(leak(Recorder::begin(path, self.ledger, options.prefetch)?));
            self.ledger.header(Header::IsTraced).store(1, Ordering::Release);
        }
        Ok(self)
    }

    fn assemble(options: &Options) -> Result<Self> {
        let injection = Injection::ordered();
        let ledger_memory = leak(SharedMemory::create(c"farmem-ledger", LEDGER_BYTES).map_err(to_error)?);
        let words = ledger_memory.atomics(0, LEDGER_BYTES / 8).context("the ledger's memory is too short")?;
        let ledger = Ledger::new(words).context("the ledger's memory is too short")?;
        ledger.format();
        ledger.header(Header::Inject).store(injection.pager_number(), Ordering::Release);
        ledger.header(Header::Prefetch).store(options.prefetch as u64, Ordering::Release);
        ledger.set_budget(options.local.pages());
        ledger.set_cache(to_whole_pages(options.cache));
        let (disk, disk_bytes) = match &options.disk {
            Some(disk) => {
                let (file, bytes) = open_disk(disk)?;
                (Some(leak(file)), bytes)
            }
            None => (None, ByteCount::ZERO),
        };
        let reached = match &options.nodes {
            Some(nodes) => Some(Reached::reach(nodes, carrier::new_space()?, carrier::connector(nodes)?)?),
            None => None,
        };
        let addresses = options.nodes.as_ref().map_or(&[][..], |nodes| &nodes.nodes);
        let joins = options.nodes.as_ref().map_or(0, |nodes| nodes.joins());
        let sharing = Sharing::new(addresses, joins, options.bandwidth).map_err(to_error)?;
        let nodes = reached.as_ref().map(|reached| reached.config(disk.is_some(), options.local));
        let limit = options.pool;
        let config = PoolConfig {
            limit,
            capacity: options.pool_capacity,
            disk: disk_bytes,
            nodes: nodes.unwrap_or_default(),
            owners: MAX_PROCESSES as u16,
            seed: random()?,
        };
        let bytes = config.memory_bytes().map_err(to_error)?;
        let pool_memory = leak(SharedMemory::create(c"farmem-pool", bytes).map_err(to_error)?);
        let pool = leak(Pool::create(pool_memory, &config).map_err(to_error)?);
        if let Some(partition) = options.partition {
            pool.set_partition(partition).map_err(to_error)?;
        }
        if options.far == FarForm::Raw {
            pool.store_raw();
        }
        if !options.keeps_entries {
            pool.renew_entries();
        }
        let carrier = reached.map(|reached| leak(Carrier::new(pool, reached, sharing)));
        let packing = leak(Mutex::new(()));
        let is_pool_short = leak(AtomicBool::new(true));
        Ok(Self {
            ledger_memory,
            ledger,
            pool_memory,
            pool,
            packing,
            disk,
            carrier,
            is_pool_short,
            recorder: None,
            token: random()?,
            injection,
        })
    }
}

/// Whether the kernel lets this process do what the supervisor does for each of the program's processes.
fn permitted() -> Result<()> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/userfaultfd").ok();
    let created = Uffd::create(device.as_ref().map(AsFd::as_fd));
    if let Err(error) = created.and_then(|uffd| uffd.handshake(FEATURES)) {
        bail!(refusal(error));
    }
    // The pagers would find this out in each process, and leave it unmanaged.
    if Maps::open().and_then(|maps| maps.next(VirtAddr::new(0))).is_err() {
        bail!(OLD_KERNEL);
    }
    Ok(())
}

const OLD_KERNEL: &str =
    "this kernel lacks what Farmem needs; use Linux 6.11 or newer (`farmem doctor` tells what is missing)";

/// Why there is no userfaultfd, and what to do.
fn refusal(error: UffdError) -> &'static str {
    match error {
        UffdError::Denied if farmem_machine::may_trace() => {
            "a filter of system calls refuses userfaultfd; allow it in the container's seccomp profile (`farmem doctor` says more)"
        }
        UffdError::Denied if farmem_machine::is_in_user_namespace() => {
            "userfaultfd needs the machine's own CAP_SYS_PTRACE, and this is a user namespace; run as root outside of it (`farmem doctor` says more)"
        }
        UffdError::Denied => "userfaultfd needs CAP_SYS_PTRACE; run as root (`farmem doctor` says more)",
        UffdError::Unsupported => OLD_KERNEL,
        _ => "this kernel offers no userfaultfd (`farmem doctor` says more)",
    }
}

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn to_error(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("{error}")
}

fn random() -> Result<u64> {
    let mut bytes = [0_u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

fn open_disk(disk: &DiskOptions) -> Result<(DiskFile, ByteCount)> {
    let shown = disk.path.display();
    let folder =
        if disk.path.is_dir() { disk.path.as_path() } else { disk.path.parent().unwrap_or(Path::new("/")) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let free = rustix::fs::statvfs(folder).map(|stat| stat.f_bavail * stat.f_frsize).with_context(|| {
        format!("cannot use --disk {shown}; name a folder, or a new file in a folder that exists")
    })?;
    let bytes = disk.size.map_or(free / 10 * 9, ByteCount::get);
    if bytes < SLAB_BYTES as u64 {
        bail!("--disk {shown} has no room; give it at least {} KiB", SLAB_BYTES >> 10);
    }
    let path = CString::new(disk.path.as_os_str().as_bytes())?;
    let file = DiskFile::create(&path, bytes).map_err(|error| {
        anyhow::anyhow!("cannot use --disk {shown}: {error}; name a folder, or a file that isn't there yet")
    })?;
    Ok((file, ByteCount::new(bytes)))
}

#[cfg(test)]
use crate::limits::lease_client::HostChoice;

#[cfg(test)]
impl Application {
    /// A small one that needs no permission.
    pub(crate) fn for_test() -> Self {
        Self::assemble(&Self::options_for_test()).expect("memory for a small application")
    }

    pub(crate) fn options_for_test() -> Options {
        Options {
            local: ByteCount::new(1 << 20),
            sizing: None,
            pool: ByteCount::new(4 << 20),
            pool_guaranteed: ByteCount::ZERO,
            pool_capacity: ByteCount::new(8 << 20),
            partition: None,
            cache: ByteCount::new(1 << 20),
            host: HostChoice::None,
            weight: 1,
            prefetch: farmem_policy::PrefetchPolicy::default(),
            borrows: false,
            far: FarForm::Packed,
            keeps_entries: true,
            disk: None,
            nodes: None,
            bandwidth: crate::Bandwidth::default(),
            name: "test".to_owned(),
            managed_by: None,
            stats: None,
            trace: None,
            side_services: Vec::new(),
            progress: false,
            summary: false,
            program: "test".into(),
            executable: "/bin/true".into(),
            arguments: Vec::new(),
        }
    }
}
