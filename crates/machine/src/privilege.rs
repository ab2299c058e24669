//! What the kernel lets this process do to others.

use procfs::process::Process;

/// Whether this process holds `CAP_SYS_PTRACE`: then the kernel itself permits it userfaultfd and tracing,
/// and whoever refuses is a filter of system calls or a security module. `false` where the kernel doesn't
/// say, and in a user namespace, whose capabilities are good for that namespace alone.
pub fn may_trace() -> bool {
    const SYS_PTRACE: u32 = 19;
    let status = Process::myself().and_then(|this| this.status());
    status.is_ok_and(|status| status.capeff & 1 << SYS_PTRACE != 0) && !is_in_user_namespace()
}

/// Whether its users are those of a user namespace other than the machine's first.
pub fn is_in_user_namespace() -> bool {
    // The kernel gives the first one always the same number.
    const FIRST: &str = "user:[4026531837]";
    std::fs::read_link("/proc/self/ns/user").is_ok_and(|own| own.as_os_str() != FIRST)
}
