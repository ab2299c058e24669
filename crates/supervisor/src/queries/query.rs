//! What a supervisor can be asked by somebody who isn't a process of the application, and the way back to the
//! asker.

use farmem_page::PageCount;
use farmem_sys::link::Link;
use farmem_wire::{Request, Resizing};
use serde::Serialize;

use farmem_client::Limits;

/// What somebody wants who isn't a process of the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Question {
    /// How is the application?
    Report,
    /// How are its processes?
    Processes,
    /// What do the regions of this process hold?
    Regions(u32),
    /// Change these limits.
    Set(Limits),
    /// Bring back all that is far, and leave the processes.
    Withdraw,
    /// Make it so small, or as small as is sensible.
    Shrink(Option<PageCount>),
    /// Let it be so large, or as large as it was.
    Grow(Option<PageCount>),
    /// How large is it?
    Size,
    /// Is this process one of the application's?
    Holds(u32),
}

impl Question {
    /// The question that a packet asks; `None` for what a process of the application says.
    pub(crate) fn of(request: Request) -> Option<Self> {
        match request {
            Request::Query => Some(Self::Report),
            Request::Look { process: 0 } => Some(Self::Processes),
            Request::Look { process } => Some(Self::Regions(process)),
            Request::Withdraw => Some(Self::Withdraw),
            Request::Holds { process } => Some(Self::Holds(process)),
            Request::Resize { step, budget_pages } => {
                let budget = (budget_pages != 0).then(|| PageCount::new(budget_pages));
                Some(match step {
                    Resizing::Look => Self::Size,
                    Resizing::Shrink => Self::Shrink(budget),
                    Resizing::Grow => Self::Grow(budget),
                })
            }
            Request::Set { .. } => Limits::of_request(request).map(Self::Set),
            _ => None,
        }
    }
}

/// Somebody asks something of the supervisor.
pub(crate) struct Query {
    link: Link,
    pub(crate) question: Question,
    /// Whether the asker has the right to change limits, and to know addresses.
    pub(crate) may_set: bool,
}

impl Query {
    pub(crate) fn new(link: Link, question: Question, may_set: bool) -> Self {
        Self { link, question, may_set }
    }

    /// A question, and the end at which its answer comes.
    #[cfg(test)]
    pub(crate) fn for_test(question: Question) -> (Self, Link) {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let ends = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (near, far) = ends.expect("two sockets");
        (Self::new(Link::from(near), question, true), Link::from(far))
    }

    /// Answers with what was asked for.
    pub(crate) fn answer(&self, answer: &(impl Serialize + ?Sized)) {
        // Numbers and names: always JSON.
        let text = serde_json::to_string(answer).unwrap_or_default();
        // An asker that has gone meanwhile needs no answer.
        let _ = self.link.send(text.as_bytes(), &[]);
    }

    /// Answers with the reason why not: a text, where anything else would be the answer.
    pub(crate) fn refuse(&self, reason: &str) {
        self.answer(reason);
    }
}
