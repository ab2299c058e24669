//! What this user may do.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use procfs::process::{Process, Status};
use rustix::fs::{Access, access};

use super::{Check, read};

/// Number of CAP_SYS_PTRACE.
const SYS_PTRACE: u32 = 19;

pub(super) fn checks() -> Vec<Check> {
    let status = Process::myself().and_then(|this| this.status()).ok();
    vec![
        privilege(status.as_ref()),
        unprivileged(status.as_ref()),
        device(),
        filter(status.as_ref()),
        tracing(),
    ]
}

fn has_privilege(status: Option<&Status>) -> bool {
    status.is_some_and(|status| status.capeff & 1 << SYS_PTRACE != 0)
}

/// Whether the kernel would permit userfaultfd, so that only a filter of system calls can refuse it.
pub(super) fn is_privileged() -> bool {
    let status = Process::myself().and_then(|this| this.status()).ok();
    has_privilege(status.as_ref())
}

fn privilege(status: Option<&Status>) -> Check {
    let has = has_privilege(status);
    Check::ok(
        "CAP_SYS_PTRACE",
        if has { "held" } else { "not held" },
        "the kernel tells of forks only to who holds it; without, programs that fork can't be managed",
    )
    .gap_unless(has, "sudo farmem run ...")
    .essential()
}

fn unprivileged(status: Option<&Status>) -> Check {
    let allowed = read("/proc/sys/vm/unprivileged_userfaultfd");
    let found = match allowed.as_deref() {
        Some("1") => "allowed for everyone",
        Some(_) if has_privilege(status) => "for privileged users only, and this one is",
        Some(_) => "for privileged users only",
        None => "the kernel doesn't tell",
    };
    let fine = allowed.as_deref() == Some("1") || has_privilege(status) || device_opens();
    Check::ok("unprivileged uffd", found, "faults inside system calls are served as well")
        .gap_unless(fine, "sudo sysctl vm.unprivileged_userfaultfd=1")
}

const DEVICE: &str = "/dev/userfaultfd";

fn device_opens() -> bool {
    access(DEVICE, Access::READ_OK | Access::WRITE_OK).is_ok()
}

fn device() -> Check {
    const MEANING: &str = "the other way to be permitted userfaultfd";
    match fs::metadata(DEVICE) {
        Ok(metadata) => {
            let mode = metadata.permissions().mode() & 0o777;
            let found = if device_opens() { "opens" } else { "may not be opened" };
            Check::ok(DEVICE, format!("{found}, mode {mode:o}"), MEANING)
                .gap_unless(device_opens(), "sudo chmod 666 /dev/userfaultfd")
        }
        Err(_) => Check::unknown(DEVICE, "not there; came with 6.1", MEANING),
    }
}

fn filter(status: Option<&Status>) -> Check {
    const NAME: &str = "seccomp";
    const MEANING: &str = "a container's filter can refuse what Farmem needs; what it refuses shows above";
    match status.and_then(|status| status.seccomp) {
        Some(0) => Check::ok(NAME, "no filter", MEANING),
        Some(_) => Check::unknown(NAME, "a filter is on", MEANING),
        None => Check::unknown(NAME, "the kernel doesn't tell", MEANING),
    }
}

fn tracing() -> Check {
    const NAME: &str = "yama ptrace_scope";
    const MEANING: &str = "the supervisor looks into the programs that it started; 0 and 1 allow that";
    match read("/proc/sys/kernel/yama/ptrace_scope").and_then(|scope| scope.parse::<u32>().ok()) {
        Some(scope) => {
            let status = Process::myself().and_then(|this| this.status()).ok();
            let fine = scope <= 1 || scope == 2 && has_privilege(status.as_ref());
            Check::ok(NAME, scope.to_string(), MEANING)
                .gap_unless(fine, "sudo sysctl kernel.yama.ptrace_scope=1")
        }
        None => Check::ok(NAME, "yama is not in this kernel", MEANING),
    }
}
