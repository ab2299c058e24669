//! What the processes of an application share: ledger, pool, disk.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};
use farmem_page::ByteCount;
use farmem_store::{Pool, PoolConfig, SLAB_BYTES};
use farmem_sys::AsFd;
use farmem_sys::disk::DiskFile;
use farmem_sys::shared::SharedMemory;
use farmem_sys::uffd::{FEATURES, Uffd, UffdError};
use farmem_telemetry::{Header, LEDGER_BYTES, Ledger, MAX_PROCESSES};

use crate::injection::Injection;
use crate::options::{DiskOptions, Options};

/// Parts of a machine's memory that a pool of default size leaves alone.
const SPARED_SHARE: u64 = 10;
const SMALLEST_POOL: u64 = 16 << 20;

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
    pub(crate) device: Option<&'static File>,
    /// What the application's processes must know to be let in.
    pub(crate) token: u64,
    /// What tests order to go wrong.
    pub(crate) injection: Injection,
}

impl Application {
    /// Makes them, if the kernel lets this process do a supervisor's work.
    pub(crate) fn create(options: &Options) -> Result<Self> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/userfaultfd").ok();
        permitted(device.as_ref())?;
        Self::assemble(options, device)
    }

    fn assemble(options: &Options, device: Option<File>) -> Result<Self> {
        let injection = Injection::ordered();
        let ledger_memory = leak(SharedMemory::create(c"farmem-ledger", LEDGER_BYTES).map_err(to_error)?);
        let words = ledger_memory.atomics(0, LEDGER_BYTES / 8).context("the ledger's memory is too short")?;
        let ledger = Ledger::new(words).context("the ledger's memory is too short")?;
        ledger.format();
        ledger.header(Header::Inject).store(injection.pager_number(), Ordering::Release);
        ledger.header(Header::BudgetPages).store(options.local.pages().get().max(1), Ordering::Release);
        let (disk, disk_bytes) = match &options.disk {
            Some(disk) => {
                let (file, bytes) = open_disk(disk)?;
                (Some(leak(file)), bytes)
            }
            None => (None, ByteCount::ZERO),
        };
        let limit = match options.pool {
            Some(limit) => limit,
            None => default_pool(options.local)?,
        };
        let config = PoolConfig { limit, disk: disk_bytes, owners: MAX_PROCESSES as u16, seed: random()? };
        let bytes = config.memory_bytes().map_err(to_error)?;
        let pool_memory = leak(SharedMemory::create(c"farmem-pool", bytes).map_err(to_error)?);
        let pool = leak(Pool::create(pool_memory, &config).map_err(to_error)?);
        let device = device.map(leak);
        let packing = leak(Mutex::new(()));
        Ok(Self {
            ledger_memory,
            ledger,
            pool_memory,
            pool,
            packing,
            disk,
            device,
            token: random()?,
            injection,
        })
    }
}

/// Whether the kernel lets this process do what the supervisor does for each of the program's processes.
fn permitted(device: Option<&File>) -> Result<()> {
    let created = Uffd::create(device.map(AsFd::as_fd));
    match created.and_then(|uffd| uffd.handshake(FEATURES)) {
        Ok(()) => Ok(()),
        Err(UffdError::Denied) => {
            bail!("userfaultfd needs CAP_SYS_PTRACE; run as root (`farmem doctor` tells more)")
        }
        Err(UffdError::Unsupported) => bail!(
            "this kernel's userfaultfd lacks what Farmem needs; use Linux 6.8 or newer (`farmem doctor` tells more)"
        ),
        Err(_) => bail!("this kernel offers no userfaultfd (`farmem doctor` tells more)"),
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

/// What the machine has available now, less the budget and a tenth of the machine.
fn default_pool(local: ByteCount) -> Result<ByteCount> {
    let text = std::fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let figure = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok())
            .map_or(0, |kib| kib << 10)
    };
    let spared = figure("MemTotal:") / SPARED_SHARE;
    let left = figure("MemAvailable:").saturating_sub(local.get()).saturating_sub(spared);
    Ok(ByteCount::new(left.max(SMALLEST_POOL)))
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
impl Application {
    /// A small one that needs no permission.
    pub(crate) fn for_test() -> Self {
        let options = Options {
            local: ByteCount::new(1 << 20),
            pool: Some(ByteCount::new(4 << 20)),
            disk: None,
            name: "test".to_owned(),
            stats: None,
            summary: false,
            program: "test".into(),
            executable: "/bin/true".into(),
            arguments: Vec::new(),
        };
        Self::assemble(&options, None).expect("memory for a small application")
    }
}
