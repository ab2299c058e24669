//! A network of the test's own, whose link can be cut.

use std::fs::File;
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

use crate::node::Node;

/// Addresses that are for benchmarks (RFC 2544), and here in no network but this.
const NEAR: &str = "198.18.0.1/24";
const FAR: &str = "198.18.0.2";

/// Two network namespaces, joined by a pair of virtual Ethernet devices: this thread is in the near one, with
/// all that it starts. The kernel takes them away with the last process that is in them.
#[derive(Debug)]
pub struct Network {
    far: File,
}

impl Network {
    /// Enters one, for good.
    ///
    /// # Panics
    /// Without root.
    #[must_use]
    pub fn enter() -> Self {
        let far = aside(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace of its own");
            File::open("/proc/thread-self/ns/net").expect("its descriptor")
        });
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace of its own");
        let network = Self { far };
        let place =
            format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&network.far));
        ip(&["link", "add", "near", "type", "veth", "peer", "name", "far", "netns", &place]);
        up("near", NEAR);
        network.within(|| up("far", &format!("{FAR}/24")));
        network
    }

    /// A node on the other side, which lends so much.
    ///
    /// # Panics
    /// When it doesn't listen.
    #[must_use]
    pub fn node(&self, memory: &str) -> Node {
        self.within(|| Node::start_at(&format!("{FAR}:0"), memory, &["--plain".as_ref()]))
    }

    /// From now on nothing comes through, and nobody is told.
    pub fn cut(&self) {
        self.within(|| ip(&["link", "set", "far", "down"]));
    }

    /// Everything comes through again.
    pub fn repair(&self) {
        self.within(|| ip(&["link", "set", "far", "up"]));
    }

    fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        aside(|| {
            setns(&self.far, CloneFlags::CLONE_NEWNET).expect("the other namespace");
            work()
        })
    }
}

fn up(device: &str, address: &str) {
    ip(&["address", "add", address, "dev", device]);
    ip(&["link", "set", device, "up"]);
    ip(&["link", "set", "lo", "up"]);
}

fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().expect("ip, which scripts/setup installs");
    assert!(output.status.success(), "ip {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
}

/// Does `work` on a thread of its own, which ends with it.
fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().expect("no panic"))
}
