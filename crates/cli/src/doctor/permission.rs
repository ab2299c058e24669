//! What this user may do.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use farmem_machine::{is_in_user_namespace, may_trace};
use procfs::process::{Process, Status};
use rustix::fs::{Access, access};

use super::{Check, read};

pub(super) fn checks() -> Vec<Check> {
    let status = Process::myself().and_then(|this| this.status()).ok();
    let may_trace = may_trace();
    vec![privilege(may_trace), unprivileged(may_trace), device(), filter(status.as_ref()), tracing(may_trace)]
}

fn privilege(has: bool) -> Check {
    Check::ok(
        "CAP_SYS_PTRACE",
        match has {
            true => "held",
            false if is_in_user_namespace() => "not held outside of this user namespace",
            false => "not held",
        },
        "the kernel reports forks only to a process that has it; without it, programs that fork can't be managed",
    )
    .gap_unless(has, "sudo farmem run ...")
    .essential()
}

fn unprivileged(may_trace: bool) -> Check {
    let allowed = read("/proc/sys/vm/unprivileged_userfaultfd");
    let found = match allowed.as_deref() {
        Some("1") => "allowed for everyone",
        Some(_) if may_trace => "for privileged users only, and this one is",
        Some(_) => "for privileged users only",
        None => "the kernel doesn't say",
    };
    let fine = allowed.as_deref() == Some("1") || may_trace || device_opens();
    Check::ok("unprivileged uffd", found, "faults inside system calls are served as well")
        .gap_unless(fine, "sudo sysctl vm.unprivileged_userfaultfd=1")
}

const DEVICE: &str = "/dev/userfaultfd";

fn device_opens() -> bool {
    access(DEVICE, Access::READ_OK | Access::WRITE_OK).is_ok()
}

fn device() -> Check {
    const MEANING: &str = "another way to be allowed to use userfaultfd";
    match fs::metadata(DEVICE) {
        Ok(metadata) => {
            let mode = metadata.permissions().mode() & 0o777;
            let found = if device_opens() { "opens" } else { "can't be opened" };
            Check::ok(DEVICE, format!("{found}, mode {mode:o}"), MEANING)
                .gap_unless(device_opens(), "sudo chmod 666 /dev/userfaultfd")
        }
        Err(_) => Check::unknown(DEVICE, "not there; available since Linux 6.1", MEANING),
    }
}

fn filter(status: Option<&Status>) -> Check {
    const NAME: &str = "seccomp";
    const MEANING: &str =
        "a container's filter can refuse what Farmem needs; the checks above show what it refuses";
    match status.and_then(|status| status.seccomp) {
        Some(0) => Check::ok(NAME, "no filter", MEANING),
        Some(_) => Check::unknown(NAME, "a filter is on", MEANING),
        None => Check::unknown(NAME, "the kernel doesn't say", MEANING),
    }
}

fn tracing(may_trace: bool) -> Check {
    const NAME: &str = "yama ptrace_scope";
    const MEANING: &str = "the supervisor looks into the programs that it started; 0 and 1 allow that";
    match read("/proc/sys/kernel/yama/ptrace_scope").and_then(|scope| scope.parse::<u32>().ok()) {
        Some(scope) => {
            let fine = scope <= 1 || scope == 2 && may_trace;
            Check::ok(NAME, scope.to_string(), MEANING)
                .gap_unless(fine, "sudo sysctl kernel.yama.ptrace_scope=1")
        }
        None => Check::ok(NAME, "yama is not in this kernel", MEANING),
    }
}
