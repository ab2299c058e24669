//! What the supervisor says, each thing once: a program that forks a thousand times is told once.

use std::collections::HashSet;

use crate::say::say;

/// What there may be to say.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Notice {
    /// A pager has come, and the kernel refuses the userfaultfd of its process.
    Unmanaged(u32),
    /// Hardly any descriptors are left.
    Crowded,
    /// A child that nobody can serve asked for a page.
    Abandoned,
    /// What moves the pages of that process has been ended.
    Stuck(u32),
}

impl Notice {
    fn sentence(self) -> String {
        match self {
            Self::Unmanaged(process) => format!(
                "process {process} runs without Farmem: the kernel refuses its userfaultfd; farmem needs \
                 CAP_SYS_PTRACE, so run it as root (`farmem doctor` says more)"
            ),
            Self::Crowded => "there are so many processes that hardly any descriptors are left to look after more: forked ones are \
                              served by their parents, and programs that are started run without Farmem; allow more (`ulimit -n`)"
                .to_owned(),
            Self::Abandoned => "a forked process asked for memory that only its parent could give, and its parent \
                                has ended; it gets SIGBUS (only processes whose parent was killed, \
                                with its pager, can be left like this)"
                .to_owned(),
            Self::Stuck(process) => format!(
                "nothing more of process {process} leaves: what moves its pages was ended, as by a filter of system \
                 calls that the program has installed; what is far comes back as ever"
            ),
        }
    }
}

/// What has been said.
#[derive(Default)]
pub(crate) struct Notices {
    said: HashSet<std::mem::Discriminant<Notice>>,
}

impl Notices {
    pub(crate) fn say(&mut self, notice: Notice) {
        if self.said.insert(std::mem::discriminant(&notice)) {
            say(&notice.sentence());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_notice_names_its_process_or_what_will_happen() {
        let sentence = Notice::Unmanaged(42).sentence();
        assert!(sentence.contains("process 42") && sentence.contains("farmem doctor"), "{sentence}");
        assert!(Notice::Crowded.sentence().contains("ulimit -n"));
        assert!(Notice::Abandoned.sentence().contains("SIGBUS"));
        assert!(Notice::Stuck(42).sentence().contains("process 42"));
    }
}
