//! Two network namespaces, and a pair of virtual Ethernet devices between them. Nothing of that has a name
//! outside: the kernel takes it away with the last descriptor, socket and thread that is in it, however the
//! process ends.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use nix::sched::{CloneFlags, setns, unshare};

/// Addresses that are for benchmarks (RFC 2544), and here in no network but this.
pub(super) const NEAR: &str = "198.18.0.1";
pub(super) const FAR: &str = "198.18.0.2";
/// What a link with a rate lets through at once, and how long it lets a packet wait.
const BURST: &str = "128kb";
const LATENCY: &str = "50ms";

/// A network namespace, as long as the value lives.
pub(super) struct Namespace(OwnedFd);

impl Namespace {
    fn new() -> Result<Self> {
        aside(|| {
            unshare(CloneFlags::CLONE_NEWNET).context("cannot make a network namespace")?;
            Ok(Self(File::open("/proc/thread-self/ns/net")?.into()))
        })
    }

    /// Does `work` there. Sockets that it makes, and threads and processes that it starts, stay there.
    pub(super) fn within<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        aside(|| {
            setns(&self.0, CloneFlags::CLONE_NEWNET).context("cannot enter a network namespace")?;
            work()
        })
    }

    /// Where other processes find it.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// Both namespaces.
pub(super) struct Link {
    pub(super) near: Namespace,
    pub(super) far: Namespace,
}

impl Link {
    /// Joins two new ones, by a link of that rate in each direction (as `tc` takes it), or as fast as the
    /// machine.
    ///
    /// # Errors
    /// Without root, or the programs `ip` and `tc`.
    pub(super) fn new(rate: Option<&str>) -> Result<Self> {
        let link = Self { near: Namespace::new()?, far: Namespace::new()? };
        let far = link.far.path();
        link.near.within(|| {
            command("ip", &["link", "add", "near", "type", "veth", "peer", "name", "far", "netns", &far])?;
            up("near", NEAR, rate)
        })?;
        link.far.within(|| up("far", FAR, rate))?;
        Ok(link)
    }
}

fn up(device: &str, address: &str, rate: Option<&str>) -> Result<()> {
    command("ip", &["address", "add", &format!("{address}/24"), "dev", device])?;
    if let Some(rate) = rate {
        let words =
            ["qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", BURST, "latency", LATENCY];
        command("tc", &words)?;
    }
    command("ip", &["link", "set", device, "up"])
}

fn command(program: &str, words: &[&str]) -> Result<()> {
    let output =
        Command::new(program).args(words).output().with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}", words.join(" "), said.trim());
    Ok(())
}

/// Does `work` on a thread of its own, which ends with it.
fn aside<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| scope.spawn(work).join().map_err(|_| anyhow!("a thread has panicked"))?)
}
