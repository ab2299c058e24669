//! What the kernel lets this process do to others.

use procfs::process::Process;

/// Whether this process holds `CAP_SYS_PTRACE`: then the kernel itself permits it userfaultfd and tracing,
/// and whoever refuses is a filter of system calls or a security module. `false` where the kernel doesn't
/// say.
pub fn may_trace() -> bool {
    const SYS_PTRACE: u32 = 19;
    let status = Process::myself().and_then(|this| this.status());
    status.is_ok_and(|status| status.capeff & 1 << SYS_PTRACE != 0)
}
