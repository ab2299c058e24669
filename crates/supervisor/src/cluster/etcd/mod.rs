//! A cluster's description under a key of etcd, by its gateway of HTTP and JSON (`/v3/kv/range`,
//! `/v3/watch`).
//!
//! A watch says only that something has changed; what is there is then read again. So no event has to be
//! understood, and none can be missed: whatever happens to a connection, the next thing is to read. The
//! gateway is one request to read, one answer that never ends to watch: no client library is needed for that,
//! and none of those that there are is small (docs/adr/0045).

mod access;
mod gateway;

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;

use crate::cluster::source::Source;
use access::Access;
pub use access::EtcdFiles;
use gateway::{Connection, MOST_ANSWER_BYTES, Trouble, ask, exchange, host_of};

const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MOST: Duration = Duration::from_secs(30);
/// A watch that says nothing for so long is made again: what is at its other end may be gone without a word.
const WATCH: Duration = Duration::from_secs(60);
/// A change is tried so often where others change the key at the same time.
const TRIES: usize = 32;

/// Where a key is.
#[derive(Clone, Debug)]
pub struct EtcdKey {
    /// `HOST:PORT` of members of one etcd: the first that answers is asked.
    pub endpoints: Vec<String>,
    /// The key.
    pub key: String,
    /// Whether members are reached by TLS.
    pub is_secure: bool,
    access: Access,
}

impl EtcdKey {
    pub(crate) fn new(endpoints: Vec<String>, key: String, is_secure: bool) -> Self {
        Self { endpoints, key, is_secure, access: Access::default() }
    }

    /// Reached by what is in these files.
    ///
    /// # Errors
    /// One of them can't be used, or is missing; a sentence.
    pub(crate) fn with_files(mut self, files: &EtcdFiles) -> Result<Self, String> {
        let is_here = |host: &str| {
            let address = host.parse::<std::net::IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        };
        let is_local = self.endpoints.iter().all(|endpoint| is_here(host_of(endpoint)));
        self.access = Access::load(files, self.is_secure, is_local)?;
        Ok(self)
    }

    /// What is there.
    ///
    /// # Errors
    /// No member answers, or it is not there.
    pub(crate) fn read(&self) -> Result<String, String> {
        self.read_with_revision()?.text
    }

    /// What is there, or that nothing is.
    fn read_with_revision(&self) -> Result<Found, String> {
        let question = json!({ "key": STANDARD.encode(&self.key) }).to_string();
        let range = |endpoint: &str| exchange(endpoint, &self.access, "/v3/kv/range", &question);
        let body = self.of_any(Repeat::May, range).map_err(|trouble| trouble.to_string())?;
        self.understand(&body)
    }

    /// What the first member has to say that has anything to say.
    fn of_any<T>(&self, repeat: Repeat, question: impl Fn(&str) -> Result<T, Trouble>) -> Result<T, Trouble> {
        let mut trouble = Trouble::Away("no member is named".to_owned());
        for endpoint in &self.endpoints {
            match question(endpoint) {
                Err(Trouble::Unanswered(why)) if repeat == Repeat::May => trouble = Trouble::Unanswered(why),
                // That somebody can't be trusted is of more use than that another one is away.
                Err(Trouble::Away(_)) if matches!(trouble, Trouble::Untrusted(_)) => {}
                Err(next @ (Trouble::Away(_) | Trouble::Untrusted(_))) => trouble = next,
                outcome => return outcome,
            }
        }
        Err(trouble)
    }

    fn understand(&self, body: &[u8]) -> Result<Found, String> {
        let unexpected = || "etcd's answer can't be understood; version 3.4 or newer is needed".to_owned();
        let range: Range = serde_json::from_slice(body).map_err(|_| unexpected())?;
        let revision = range.header.revision.parse().map_err(|_| unexpected())?;
        let mut written = None;
        let text = match range.kvs.first() {
            Some(pair) => {
                written = Some(pair.mod_revision.clone());
                let bytes = STANDARD.decode(&pair.value).map_err(|_| unexpected())?;
                String::from_utf8(bytes).map_err(|_| "its value is not text".to_owned())
            }
            None => Err(format!(
                "there is no key {0}; put a cluster there, by `etcdctl put {0} < FILE`",
                self.key
            )),
        };
        Ok(Found { text, revision, written })
    }

    /// Changes what is there, if nobody else has changed it meanwhile; else what is there then is changed.
    /// Whether it is another text now.
    ///
    /// # Errors
    /// The change can't be made, or nobody knows whether it was; a sentence.
    pub(crate) fn edit(&self, change: &dyn Fn(&str) -> Result<String, String>) -> Result<bool, String> {
        for _ in 0..TRIES {
            let found = self.read_with_revision()?;
            let (text, written) = (found.text?, found.written.unwrap_or_default());
            let changed = change(&text)?;
            if changed == text {
                return Ok(false);
            }
            if self.swap(&written, &changed)? {
                return Ok(true);
            }
        }
        Err("others change it all the time; try again".to_owned())
    }

    /// Writes a text in the place of the one that was written by the change with that number. Whether that
    /// one was still there.
    fn swap(&self, written: &str, text: &str) -> Result<bool, String> {
        let key = STANDARD.encode(&self.key);
        let question = json!({
            "compare": [{ "target": "MOD", "result": "EQUAL", "key": key, "mod_revision": written }],
            "success": [{ "request_put": { "key": key, "value": STANDARD.encode(text) } }],
        })
        .to_string();
        let swap = |endpoint: &str| exchange(endpoint, &self.access, "/v3/kv/txn", &question);
        let body = self.of_any(Repeat::MayNot, swap).map_err(|trouble| match trouble {
            Trouble::Unanswered(_) => {
                format!(
                    "{trouble}, so nobody knows whether the change was made; look by `farmem cluster show`"
                )
            }
            other => other.to_string(),
        })?;
        let swapped: Swapped = serde_json::from_slice(&body)
            .map_err(|_| "etcd's answer can't be understood; look by `farmem cluster show`".to_owned())?;
        Ok(swapped.succeeded)
    }

    /// Begins to hear of changes after that one.
    fn watch(&self, revision: u64) -> Result<Watch, Trouble> {
        let question = json!({
            "create_request": { "key": STANDARD.encode(&self.key), "start_revision": (revision + 1).to_string() }
        })
        .to_string();
        let connection =
            self.of_any(Repeat::May, |endpoint| ask(endpoint, &self.access, "/v3/watch", &question))?;
        connection.set_nonblocking().map_err(|error| Trouble::Away(error.to_string()))?;
        Ok(Watch { stream: connection, heard: Vec::new(), since: Instant::now() })
    }

    /// Begins to follow it.
    pub(crate) fn follow(self) -> Follower {
        Follower { key: self, watch: None, retry_at: None, retry_after: RETRY_FIRST, told: None }
    }
}

/// Whether a question that was sent to one member may be sent to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Repeat {
    May,
    MayNot,
}

/// What there is under a key.
struct Found {
    text: Result<String, String>,
    /// The number of etcd's latest change.
    revision: u64,
    /// The number of the change that wrote the key.
    written: Option<String>,
}

/// What of the answer matters. Numbers of 64 bits are texts there.
#[derive(Deserialize)]
struct Range {
    header: Header,
    #[serde(default)]
    kvs: Vec<Pair>,
}

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    revision: String,
}

#[derive(Deserialize)]
struct Pair {
    #[serde(default)]
    value: String,
    #[serde(default)]
    mod_revision: String,
}

#[derive(Deserialize)]
struct Swapped {
    #[serde(default)]
    succeeded: bool,
}

/// A watch on a key.
struct Watch {
    stream: Connection,
    heard: Vec<u8>,
    since: Instant,
}

/// What a watch has to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Heard {
    Nothing,
    /// The key was written, or the watch has ended: it is to be read.
    Change,
}

impl Watch {
    /// Hears what has come. Doesn't wait.
    fn hear(&mut self) -> Heard {
        let mut piece = [0; 4096];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Heard::Change,
                Ok(count) => self.heard.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Heard::Change,
            }
            if self.heard.len() as u64 > MOST_ANSWER_BYTES {
                return Heard::Change;
            }
        }
        if self.since.elapsed() > WATCH || says_change(&self.heard) { Heard::Change } else { Heard::Nothing }
    }
}

/// Whether a watch has told of more than that it has begun. Its first line does that.
fn says_change(heard: &[u8]) -> bool {
    let contains = |word: &[u8]| heard.windows(word.len()).any(|part| part == word);
    contains(b"\"events\"") || contains(b"\"canceled\"") || contains(b"\"error\"")
}

/// Follows a key.
pub(crate) struct Follower {
    key: EtcdKey,
    watch: Option<Watch>,
    /// Not before this is it asked again.
    retry_at: Option<Instant>,
    retry_after: Duration,
    told: Option<Result<String, String>>,
}

impl Follower {
    fn later(&mut self) {
        self.retry_at = Some(Instant::now() + self.retry_after);
        self.retry_after = (self.retry_after * 2).min(RETRY_MOST);
    }
}

impl Source for Follower {
    fn look(&mut self) -> Option<Result<String, String>> {
        if self.watch.as_mut().is_some_and(|watch| watch.hear() == Heard::Nothing)
            || self.retry_at.is_some_and(|at| at > Instant::now())
        {
            return None;
        }
        self.watch = None;
        let found = self.key.read_with_revision();
        match found.as_ref().map(|found| self.key.watch(found.revision)) {
            Ok(Ok(watch)) => {
                self.watch = Some(watch);
                (self.retry_at, self.retry_after) = (None, RETRY_FIRST);
            }
            _ => self.later(),
        }
        let now = Some(found.and_then(|found| found.text));
        // One reason after another says nothing new.
        let is_known = now == self.told || matches!((&now, &self.told), (Some(Err(_)), Some(Err(_))));
        self.told.clone_from(&now);
        if is_known { None } else { now }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const BEGUN: &str = "{\"result\":{\"header\":{\"revision\":\"7\"},\"created\":true}}\n";
    const WRITTEN: &str = "{\"result\":{\"header\":{\"revision\":\"8\"},\"events\":[{\"kv\":{}}]}}\n";

    fn found(text: &str) -> String {
        let value = STANDARD.encode(text);
        format!(
            "{{\"header\":{{\"revision\":\"7\"}},\"kvs\":[{{\"value\":\"{value}\",\"mod_revision\":\"5\"}}],\"count\":\"1\"}}"
        )
    }

    /// An etcd that gives these answers, one to each connection; where a second part is there, it comes a
    /// little later, and then nothing.
    fn etcd(answers: Vec<(String, Option<&'static str>)>) -> EtcdKey {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let mut open = Vec::new();
            for (first, second) in answers {
                let (mut stream, _) = listener.accept().unwrap();
                // What is not read when a connection is closed would break it.
                let (mut question, mut piece) = (Vec::new(), [0; 4096]);
                while !question.ends_with(b"}") {
                    let count = stream.read(&mut piece).unwrap();
                    question.extend_from_slice(&piece[..count]);
                }
                stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n").unwrap();
                stream.write_all(first.as_bytes()).unwrap();
                if let Some(second) = second {
                    thread::sleep(Duration::from_millis(50));
                    stream.write_all(second.as_bytes()).unwrap();
                    open.push(stream);
                }
            }
        });
        EtcdKey::new(vec![endpoint], "farmem/cluster".to_owned(), false)
    }

    fn next(follower: &mut Follower) -> Result<String, String> {
        let began = Instant::now();
        loop {
            if let Some(told) = follower.look() {
                return told;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "nothing is told");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn what_is_written_is_read_anew_when_the_watch_tells_of_it() {
        let watch = |second| (BEGUN.to_owned(), Some(second));
        let key = etcd(vec![(found("one"), None), watch(WRITTEN), (found("two"), None), watch("")]);
        let mut follower = key.follow();
        assert_eq!(next(&mut follower), Ok("one".to_owned()));
        assert_eq!(next(&mut follower), Ok("two".to_owned()));
        assert_eq!(follower.look(), None);
    }

    #[test]
    fn an_etcd_that_is_gone_is_told_once_and_asked_less_and_less() {
        let key = etcd(vec![(found("one"), None), (BEGUN.to_owned(), None)]);
        let mut follower = key.follow();
        assert_eq!(next(&mut follower), Ok("one".to_owned()));
        assert!(next(&mut follower).unwrap_err().contains("etcd doesn't answer"));
        follower.retry_at = None;
        assert_eq!(follower.look(), None);
        assert!(follower.retry_after > RETRY_FIRST);
    }

    #[test]
    fn what_is_no_etcd_and_a_key_that_is_not_there_are_told_apart() {
        let nothing = "{\"header\":{\"revision\":\"7\"}}".to_owned();
        assert!(etcd(vec![(nothing, None)]).read().unwrap_err().contains("there is no key"));
        for nonsense in ["", "<html>", "{\"kvs\":3}"] {
            assert!(etcd(vec![(nonsense.to_owned(), None)]).read().unwrap_err().contains("be understood"));
        }
    }

    #[test]
    fn a_change_is_made_anew_where_another_one_came_between() {
        let (lost, made) = ("{}".to_owned(), "{\"succeeded\":true}".to_owned());
        let key = etcd(vec![(found("one"), None), (lost, None), (found("two"), None), (made, None)]);
        let seen = std::cell::RefCell::new(Vec::new());
        let change = |text: &str| {
            seen.borrow_mut().push(text.to_owned());
            Ok(format!("{text} and more"))
        };
        assert_eq!(key.edit(&change), Ok(true));
        assert_eq!(*seen.borrow(), ["one", "two"]);
        assert_eq!(etcd(vec![(found("one"), None)]).edit(&|text| Ok(text.to_owned())), Ok(false));
    }

    #[test]
    fn a_change_whose_answer_does_not_come_is_not_repeated_at_another_member() {
        let mut key = etcd(vec![(found("one"), None), (String::new(), None)]);
        key.endpoints.insert(0, "127.0.0.1:1".to_owned());
        // What answers nothing of use has taken the question all the same.
        let refusal = key.edit(&|_| Ok("two".to_owned())).unwrap_err();
        assert!(refusal.contains("farmem cluster show"), "{refusal}");
    }
}
