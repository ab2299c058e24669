//! Why processes were ended before their time, in words for the user.

use std::io;

use farmem_telemetry::{Failure, Refusal, Step};

/// Why a process could not go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// Its pager said so, or the supervisor of its pager.
    Failed(Failure),
    /// Its pager ended, and nobody said why.
    Deserted,
    /// The supervisor had no descriptor left by which its memory would outlive its parent.
    Crowded,
}

impl Ending {
    /// The reason, to follow "process N was ended: ".
    pub(crate) fn reason(self, is_disk_failing: bool) -> String {
        let reason = match self {
            Self::Failed(Failure::Stalled) => {
                "its pager has stopped: it had faults to serve and did nothing about them (a bug in Farmem: please report it)"
            }
            Self::Deserted => {
                "its pager ended without a word: somebody has killed it, the kernel has for want of memory, or it met an \
                 internal error (a bug in Farmem: please report it)"
            }
            Self::Failed(Failure::NoRoom) if is_disk_failing => {
                "the pool is full, the disk refuses what is written to it, and the local budget is used up: \
                 see to the disk, or raise --pool or --local"
            }
            Self::Failed(Failure::NoRoom) => {
                "pool, nodes and disk are full and its local budget is used up: raise --pool, --disk or --local, or name \
                 more nodes"
            }
            Self::Failed(Failure::Kernel(refusal)) => return refused(refusal),
            Self::Crowded => {
                "its supervisor had no descriptor left to hold its far memory once its parent has ended: allow more \
                 (`ulimit -n`)"
            }
        };
        reason.to_owned()
    }
}

fn refused(Refusal { step, error }: Refusal) -> String {
    let what = match step {
        Step::Table => "memory for the table of pages",
        Step::Message => "a message of the userfaultfd",
        Step::Mappings => "a look at the process's mappings",
        Step::MoveOut => "a page's move out",
        Step::PutBack => "a page's way back",
        Step::Staging => "memory for pages on their way out",
        Step::Child => "serving a forked child",
        Step::Thread => "a thread for the pager",
    };
    let error = io::Error::from_raw_os_error(i32::from(error));
    format!("the kernel refused what the pager needs ({what}: {error}); `farmem doctor` may say why")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_refused_is_named_with_its_error() {
        let refusal = Refusal { step: Step::PutBack, error: 12 };
        let reason = Ending::Failed(Failure::Kernel(refusal)).reason(false);
        assert!(reason.contains("(a page's way back: Cannot allocate memory"), "{reason}");
    }

    #[test]
    fn a_disk_that_fails_is_told_from_one_that_is_full() {
        let full = Ending::Failed(Failure::NoRoom);
        assert!(full.reason(true).contains("the disk refuses"));
        assert!(full.reason(false).contains("disk are full"));
    }
}
