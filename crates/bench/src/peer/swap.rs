//! Kinds of kernel swap, turned on and, whatever happens, off.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, bail, ensure};
use farmem_page::ByteCount;
use procfs::Current;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use super::tool;
use crate::undo::{Guard, Journal, Step};

/// A kind of kernel swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Compressed in memory, by zram with lz4.
    ZramLz4,
    /// Compressed in memory by zswap, in front of a file.
    Zswap,
    /// A file on disk.
    File,
    /// A loop device over a file in tmpfs: a block device as fast as memory.
    Loop,
}

/// What the kernel reads from swap along with a page that a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Readahead {
    /// As much as this machine has set.
    AsSet,
    /// Nothing.
    Off,
}

/// What compressed memory holds and takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PoolUse {
    /// The pages, as they are.
    pub(crate) stored_bytes: u64,
    /// The memory that they take compressed, with all that is lost around them.
    pub(crate) used_bytes: u64,
}

/// Swap that is on. Off when dropped.
#[derive(Debug)]
pub(crate) struct Swap {
    /// What a reader of the figures should know: compressor, file system.
    pub(crate) detail: String,
    /// The number of the zram device, where there is one.
    zram: Option<u32>,
    kind: Kind,
    /// In the order of the changes; undone from the end.
    guards: Vec<Guard>,
}

const ZSWAP_ENABLED: &str = "/sys/module/zswap/parameters/enabled";
const ZSWAP_COMPRESSOR: &str = "/sys/module/zswap/parameters/compressor";
const PAGE_CLUSTER: &str = "/proc/sys/vm/page-cluster";
const ZRAM_CONTROL: &str = "/sys/class/zram-control";
/// Above every other swap that may be on.
const PRIORITY: &str = "32767";

impl Swap {
    /// Turns swap of this kind on, `size` of it; files are made in `folder`. Needs root.
    ///
    /// # Errors
    /// When the machine doesn't offer it; the error says what is missing. Nothing stays changed then.
    pub(crate) fn on(
        kind: Kind,
        readahead: Readahead,
        size: ByteCount,
        folder: &Path,
        journal: &Rc<Journal>,
    ) -> anyhow::Result<Self> {
        let mut swap = Self { detail: String::new(), zram: None, kind, guards: Vec::new() };
        // zswap would stand in front of the other kinds as well.
        swap.switch_zswap(kind == Kind::Zswap, journal)?;
        if kind == Kind::Zswap {
            swap.choose_zswap_compressor(journal)?;
        }
        if readahead == Readahead::Off {
            swap.stop_readahead(journal)?;
        }
        match kind {
            Kind::ZramLz4 => swap.on_zram(size, journal)?,
            Kind::Zswap | Kind::File => swap.on_file(size, folder, journal)?,
            Kind::Loop => swap.on_loop(size, journal)?,
        }
        Ok(swap)
    }

    /// How many pages the kernel reads at once at most, the one that a thread waits for among them, as this
    /// machine has it set.
    pub(crate) fn read_at_once() -> anyhow::Result<u64> {
        let cluster: u32 = fs::read_to_string(PAGE_CLUSTER)?.trim().parse()?;
        1_u64.checked_shl(cluster).context("the kernel reads more at once than there can be")
    }

    /// What the pages in compressed memory would take as they are, and what that memory takes; `None` for
    /// other kinds of swap.
    pub(crate) fn pool_use(&self) -> anyhow::Result<Option<PoolUse>> {
        if let Some(index) = self.zram {
            let text = fs::read_to_string(format!("/sys/block/zram{index}/mm_stat"))?;
            let fields: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
            let [stored_bytes, _, used_bytes, ..] = fields[..] else {
                bail!("zram tells less than it should")
            };
            return Ok(Some(PoolUse { stored_bytes, used_bytes }));
        }
        if self.kind != Kind::Zswap {
            return Ok(None);
        }
        let memory = procfs::Meminfo::current()?;
        let used = memory.z_swap.zip(memory.z_swapped);
        Ok(used.map(|(used_bytes, stored_bytes)| PoolUse { stored_bytes, used_bytes }))
    }

    fn will(&mut self, journal: &Rc<Journal>, step: Step) -> anyhow::Result<()> {
        self.guards.push(journal.will(step)?);
        Ok(())
    }

    fn switch_zswap(&mut self, on: bool, journal: &Rc<Journal>) -> anyhow::Result<()> {
        let wanted = if on { "Y" } else { "N" };
        match fs::read_to_string(ZSWAP_ENABLED) {
            Ok(current) if current.trim() == wanted => Ok(()),
            Ok(current) => self.change(journal, ZSWAP_ENABLED, current.trim(), wanted),
            Err(_) if on => bail!("this kernel has no zswap"),
            Err(_) => Ok(()),
        }
    }

    /// lz4 where the kernel has it, as for zram; else what is set.
    fn choose_zswap_compressor(&mut self, journal: &Rc<Journal>) -> anyhow::Result<()> {
        let current = fs::read_to_string(ZSWAP_COMPRESSOR)?;
        if current.trim() != "lz4" && self.change(journal, ZSWAP_COMPRESSOR, current.trim(), "lz4").is_err() {
            self.detail.push_str(&format!("compressor {}; ", current.trim()));
        } else {
            self.detail.push_str("compressor lz4; ");
        }
        Ok(())
    }

    /// Linux 6.18 reads ahead, from what is in memory most of all, until its out-of-memory killer ends a
    /// process in a small control group; and what zswap or zram hold is as near as what was read ahead.
    fn stop_readahead(&mut self, journal: &Rc<Journal>) -> anyhow::Result<()> {
        let current = fs::read_to_string(PAGE_CLUSTER)?;
        self.detail.push_str("no readahead; ");
        if current.trim() == "0" { Ok(()) } else { self.change(journal, PAGE_CLUSTER, current.trim(), "0") }
    }

    fn change(&mut self, journal: &Rc<Journal>, file: &str, before: &str, after: &str) -> anyhow::Result<()> {
        self.will(journal, Step::Restore { file: file.into(), value: before.to_owned() })?;
        fs::write(file, after).with_context(|| format!("cannot write to {file}"))
    }

    fn on_zram(&mut self, size: ByteCount, journal: &Rc<Journal>) -> anyhow::Result<()> {
        if !Path::new(ZRAM_CONTROL).exists() {
            tool("modprobe", ["zram".as_ref()]).context("this kernel has no zram")?;
        }
        let index = fs::read_to_string(Path::new(ZRAM_CONTROL).join("hot_add"))?.trim().parse()?;
        self.will(journal, Step::RemoveZram { index })?;
        self.zram = Some(index);
        let settings = PathBuf::from(format!("/sys/block/zram{index}"));
        fs::write(settings.join("comp_algorithm"), "lz4").context("this kernel's zram has no lz4")?;
        fs::write(settings.join("disksize"), size.get().to_string())
            .context("cannot size the zram device")?;
        self.detail.push_str("compressor lz4");
        self.swap_on(Path::new(&format!("/dev/zram{index}")), journal)
    }

    fn on_file(&mut self, size: ByteCount, folder: &Path, journal: &Rc<Journal>) -> anyhow::Result<()> {
        ensure!(folder.is_dir(), "{} is not a folder", folder.display());
        // As the kernel will list it: what undoes this finds it there, whichever folder that is in.
        let folder = folder.canonicalize()?;
        let file = folder.join(format!("farmem-bench-{}.swap", std::process::id()));
        self.allocate(&file, size, journal)?;
        self.detail.push_str(&format!("file in {}", folder.display()));
        self.swap_on(&file, journal)
    }

    fn on_loop(&mut self, size: ByteCount, journal: &Rc<Journal>) -> anyhow::Result<()> {
        let folder = PathBuf::from(format!("/run/farmem-bench/tmpfs-{}", std::process::id()));
        self.will(journal, Step::RemoveFolder { folder: folder.clone() })?;
        fs::create_dir_all(&folder)?;
        self.will(journal, Step::Unmount { folder: folder.clone() })?;
        // Without `noswap` the pages of the file could be swapped to the file itself, and the kernel would
        // wait for itself.
        let room = size.get() + (16 << 20);
        let data = std::ffi::CString::new(format!("noswap,mode=700,size={room}"))?;
        mount("farmem-bench", &folder, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, data.as_c_str())
            .map_err(|error| match error {
                Errno::INVAL => anyhow::anyhow!("this kernel's tmpfs has no `noswap` (Linux 6.4)"),
                _ => anyhow::Error::from(error).context("cannot mount a tmpfs"),
            })?;
        let file = folder.join("swap");
        self.allocate(&file, size, journal)?;
        let device = PathBuf::from(tool("losetup", [OsStr::new("--find")])?);
        self.will(journal, Step::DetachLoop { device: device.clone(), file: file.clone() })?;
        tool("losetup", [device.as_os_str(), file.as_os_str()])?;
        self.detail.push_str("loop device over tmpfs");
        self.swap_on(&device, journal)
    }

    fn allocate(&mut self, path: &Path, size: ByteCount, journal: &Rc<Journal>) -> anyhow::Result<()> {
        self.will(journal, Step::RemoveFile { file: path.to_owned() })?;
        let file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        fallocate(&file, FallocateFlags::empty(), 0, size.get())
            .with_context(|| format!("cannot allocate {} bytes in {}", size.get(), path.display()))
    }

    fn swap_on(&mut self, device: &Path, journal: &Rc<Journal>) -> anyhow::Result<()> {
        tool("mkswap", [device.as_os_str()])?;
        self.will(journal, Step::SwapOff { device: device.to_owned() })?;
        tool("swapon", [OsStr::new("-p"), OsStr::new(PRIORITY), device.as_os_str()]).map(drop)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        while let Some(guard) = self.guards.pop() {
            drop(guard);
        }
    }
}
