//! The addresses of hosts. A thread that asks for one waits for a bounded time, whatever becomes of the
//! resolver; and addresses that were known once are tried when it says nothing: a name service that is down
//! takes no node away.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::LinkError;

/// Where addresses are known, the resolver has this part of the time.
const PART: u32 = 4;
/// A question that has had no answer for so long is asked again. A resolver gives up sooner; but a copy of
/// this process hears no answer at all.
const FORGOTTEN: Duration = Duration::from_secs(120);

/// What the resolver says of a host.
type Answer = std::io::Result<Vec<SocketAddr>>;

/// Asks the resolver.
type Resolve = fn(&str, u16) -> Answer;

/// The names that were asked for.
pub(crate) struct Names {
    hosts: Mutex<HashMap<(String, u16), Host>>,
    resolve: Resolve,
}

#[derive(Default)]
struct Host {
    /// The latest addresses.
    known: Vec<SocketAddr>,
    /// One question at a time is under way for a host, however many wait for the answer.
    question: Option<Arc<Question>>,
}

struct Question {
    since: Instant,
    answer: Mutex<Option<Result<Vec<SocketAddr>, Arc<std::io::Error>>>>,
    has_come: Condvar,
}

impl Default for Names {
    fn default() -> Self {
        Self { hosts: Mutex::default(), resolve: |host, port| Ok((host, port).to_socket_addrs()?.collect()) }
    }
}

impl Names {
    fn hosts(&self) -> MutexGuard<'_, HashMap<(String, u16), Host>> {
        // Each change is a single step.
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses of a host, asked for until the deadline at most.
    ///
    /// # Errors
    /// None are known.
    pub(crate) fn look_up(
        &self,
        host: &str,
        port: u16,
        deadline: Instant,
    ) -> Result<Vec<SocketAddr>, LinkError> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let (question, known) = self.ask(host, port)?;
        let left = deadline.saturating_duration_since(Instant::now());
        let patience = if known.is_empty() { left } else { left / PART };
        let Some(answer) = question.wait(patience) else {
            return if known.is_empty() { Err(LinkError::Silent) } else { Ok(known) };
        };
        let mut hosts = self.hosts();
        let entry = hosts.entry((host.to_owned(), port)).or_default();
        entry.question.take_if(|other| Arc::ptr_eq(other, &question));
        match answer {
            Ok(addresses) if !addresses.is_empty() => {
                entry.known.clone_from(&addresses);
                Ok(addresses)
            }
            _ if !known.is_empty() => Ok(known),
            Ok(_) => Err(LinkError::Closed),
            Err(error) => Err(LinkError::Kernel(copy_of(&error))),
        }
    }

    /// The question that is under way for a host, and what is known of it.
    fn ask(&self, host: &str, port: u16) -> Result<(Arc<Question>, Vec<SocketAddr>), LinkError> {
        let mut hosts = self.hosts();
        let entry = hosts.entry((host.to_owned(), port)).or_default();
        let is_under_way = |question: &&Arc<Question>| question.since.elapsed() < FORGOTTEN;
        if let Some(question) = entry.question.as_ref().filter(is_under_way) {
            return Ok((Arc::clone(question), entry.known.clone()));
        }
        let question =
            Arc::new(Question { since: Instant::now(), answer: Mutex::default(), has_come: Condvar::new() });
        let (asked, resolve, host) = (Arc::clone(&question), self.resolve, host.to_owned());
        let resolver = thread::Builder::new().name("farmem-names".to_owned());
        resolver.spawn(move || asked.answer(resolve(&host, port)))?;
        entry.question = Some(Arc::clone(&question));
        Ok((question, entry.known.clone()))
    }
}

impl Question {
    fn answer(&self, answer: Answer) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer.map_err(Arc::new));
        self.has_come.notify_all();
    }

    fn wait(&self, patience: Duration) -> Option<Result<Vec<SocketAddr>, Arc<std::io::Error>>> {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.has_come.wait_timeout_while(answer, patience, |answer| answer.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

/// The same error for another one who waits.
fn copy_of(error: &std::io::Error) -> std::io::Error {
    match error.raw_os_error() {
        Some(code) => std::io::Error::from_raw_os_error(code),
        None => std::io::Error::new(error.kind(), error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(40)
    }

    fn address() -> SocketAddr {
        "192.0.2.1:7070".parse().unwrap()
    }

    #[test]
    fn what_a_name_meant_is_used_while_the_resolver_says_nothing_or_fails() {
        static IS_SILENT: AtomicBool = AtomicBool::new(false);
        static FAILS: AtomicBool = AtomicBool::new(false);
        let resolve: Resolve = |_, _| {
            while IS_SILENT.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            if FAILS.load(Ordering::Relaxed) {
                Err(std::io::Error::other("down"))
            } else {
                Ok(vec![address()])
            }
        };
        let names = Names { resolve, ..Names::default() };
        let far = Instant::now() + Duration::from_secs(60);
        assert_eq!(names.look_up("node", 7070, far).unwrap(), [address()]);
        IS_SILENT.store(true, Ordering::Relaxed);
        assert_eq!(names.look_up("node", 7070, soon()).unwrap(), [address()]);
        FAILS.store(true, Ordering::Relaxed);
        IS_SILENT.store(false, Ordering::Relaxed);
        assert_eq!(names.look_up("node", 7070, far).unwrap(), [address()]);
        assert!(matches!(names.look_up("another", 7070, far), Err(LinkError::Kernel(_))));
    }

    #[test]
    fn however_many_ask_for_a_name_one_question_is_under_way_and_nobody_waits_longer_than_asked() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        static IS_SILENT: AtomicBool = AtomicBool::new(true);
        let resolve: Resolve = |_, _| {
            ASKED.fetch_add(1, Ordering::Relaxed);
            while IS_SILENT.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            Ok(vec![address()])
        };
        let names = Names { resolve, ..Names::default() };
        for _ in 0..3 {
            assert!(matches!(names.look_up("node", 1, soon()), Err(LinkError::Silent)));
        }
        IS_SILENT.store(false, Ordering::Relaxed);
        let far = Instant::now() + Duration::from_secs(60);
        assert_eq!(names.look_up("node", 1, far).unwrap(), [address()]);
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn numbers_are_no_names() {
        let names = Names { resolve: |_, _| unreachable!(), ..Names::default() };
        assert_eq!(names.look_up("192.0.2.1", 7070, soon()).unwrap(), [address()]);
    }
}
