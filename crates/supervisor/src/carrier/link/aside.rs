//! A request whose answer nobody waits for: it is heard at a later turn. A link has one at most.
//!
//! What of it is not known when the link breaks is asked again by the next one, with the ticket that it had,
//! so that it takes effect once. When its node was lost meanwhile, or has left, nothing of it is expected any
//! more.

use std::time::{Duration, Instant};

use farmem_transport::{Answer, Completion, Failure, Request, Ticket};

use super::NodeLink;

/// An answer that has not come after so long is overdue.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longer than any link lives by which nothing comes.
const LASTING: Duration = Duration::from_secs(60);

pub(super) struct Aside {
    /// `None` until a link has taken it.
    pub(super) ticket: Option<Ticket>,
    request: Request,
    /// The incarnation of the node that was asked.
    incarnation: u32,
    since: Instant,
    came: Option<Came>,
}

/// What has come of it.
struct Came {
    result: Option<Result<Answer, Failure>>,
    /// Which of the links it came by.
    made: u64,
    took: Option<Duration>,
}

/// What came of a request that nobody waited for.
pub(in super::super) struct Reply {
    pub(in super::super) request: Request,
    /// `None` when it isn't known, and never will be.
    pub(in super::super) result: Option<Result<Answer, Failure>>,
    /// The incarnation of the node that was asked.
    pub(in super::super) incarnation: u32,
    /// How long it took, where somebody was listening when it came.
    pub(in super::super) took: Option<Duration>,
    /// Whether the connection that it came by is there still: then the node has not forgotten since what it
    /// did.
    pub(in super::super) is_fresh: bool,
}

impl NodeLink {
    /// Asks for something, without waiting for the answer. Not while another such request is under way.
    pub(in super::super) fn ask(&mut self, request: Request) {
        debug_assert!(self.aside.is_none(), "one at a time");
        let incarnation = self.carrier.incarnation(self.node);
        self.aside = Some(Aside { ticket: None, request, incarnation, since: Instant::now(), came: None });
        // Without a link it waits for one: whoever hears has it made.
        self.prepare();
        self.listen(false);
    }

    /// Whether what was asked has not been dealt with.
    pub(in super::super) fn is_asked(&self) -> bool {
        self.aside.is_some()
    }

    /// Whether its answer was late, or that to something else, and nothing has been heard since.
    pub(in super::super) fn owes(&self) -> bool {
        self.owes
    }

    /// Hears what has come, and sends what has not gone yet. `is_waiting` says whether somebody listens all
    /// the time. False when the link has ended.
    pub(in super::super) fn listen(&mut self, is_waiting: bool) -> bool {
        self.send_aside();
        // What else comes is of requests that were given up.
        let heard = self.hear_as(&mut Vec::new(), Duration::ZERO, is_waiting);
        self.look_at_aside();
        heard.is_ok()
    }

    fn look_at_aside(&mut self) {
        let Some(aside) = self.aside.as_mut().filter(|aside| aside.came.is_none()) else { return };
        if aside.incarnation != self.carrier.incarnation(self.node) {
            aside.came = Some(Came { result: None, made: self.made, took: None });
        } else if aside.since.elapsed() > PATIENCE && !self.owes {
            self.owes = true;
            self.doubt();
        }
    }

    /// What has come of the request, if that is known.
    pub(in super::super) fn take_reply(&mut self) -> Option<Reply> {
        let Aside { request, incarnation, came: Some(Came { result, made, took }), .. } =
            self.aside.take_if(|aside| aside.came.is_some())?
        else {
            return None;
        };
        let is_fresh = self.transport.is_some() && self.made == made;
        Some(Reply { request, result, incarnation, took, is_fresh })
    }

    /// Has the link take the request, if none has.
    fn send_aside(&mut self) {
        let Some(aside) = self.aside.as_mut().filter(|aside| aside.ticket.is_none()) else { return };
        let (Some(transport), ticket) = (&mut self.transport, Ticket(self.ticket + 1)) else { return };
        // A later incarnation of the node would take chunks of an earlier one for its own. By a link to an
        // earlier incarnation nothing comes to a later one.
        let is_meant = self.incarnation <= aside.incarnation;
        let deadline = Instant::now() + LASTING;
        if is_meant && transport.submit(ticket, aside.request.clone(), deadline).is_ok() {
            self.ticket += 1;
            aside.ticket = Some(ticket);
        }
    }

    /// Repeats the request by a link that has just been made, before anything else is asked there.
    pub(super) fn repeat_aside(&mut self) {
        let Some(aside) = self.aside.as_ref().filter(|aside| aside.came.is_none()) else { return };
        if let (Some(ticket), Some(transport)) = (aside.ticket, &mut self.transport)
            && self.incarnation == aside.incarnation
        {
            // A link that has taken nothing yet has room.
            let _ = transport.submit(ticket, aside.request.clone(), Instant::now() + LASTING);
        }
    }

    /// Takes note of what has come, if it is the answer to this request. The first one counts.
    pub(super) fn note(&mut self, completion: Completion, is_waiting: bool) -> Option<Completion> {
        if completion.result != Err(Failure::Late) {
            self.owes = false;
        }
        let Some(aside) = self.aside.as_mut().filter(|aside| aside.ticket == Some(completion.ticket)) else {
            return Some(completion);
        };
        if completion.result == Err(Failure::Late) {
            // It is asked again by another link.
            self.is_stale = true;
        } else if aside.came.is_none() {
            let took = is_waiting.then(|| aside.since.elapsed());
            aside.came = Some(Came { result: Some(completion.result), made: self.made, took });
        }
        None
    }
}
