//! A cluster's description under a key of etcd, by its gateway of HTTP and JSON (`/v3/kv/range`, `/v3/watch`).
//!
//! A watch says only that something has changed; what is there is then read anew. So no event has to be understood, and none can be missed: whatever
//! happens to a connection, the next thing is to read. The gateway is one request to read, one answer that never ends to watch: no client library is needed for that, and none of
//! those that there are is small (docs/adr/0045).

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;

use crate::cluster::{MOST_BYTES, Source};

/// To connect, and for each piece of an answer. A step of the thread that looks takes no longer than a few of these.
const PATIENCE: Duration = Duration::from_secs(1);
/// An answer holds the text in a longer form, and some words around it.
const MOST_ANSWER_BYTES: u64 = 2 * MOST_BYTES;
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MOST: Duration = Duration::from_secs(30);
/// A watch that says nothing for so long is made anew: what is at its other end may be gone without a word.
const WATCH: Duration = Duration::from_secs(60);

/// Where a key is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdKey {
    /// `HOST:PORT` of members of one etcd: the first that answers is asked.
    pub endpoints: Vec<String>,
    /// The key.
    pub key: String,
}

impl EtcdKey {
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
        let mut reason = String::new();
        for endpoint in &self.endpoints {
            match ask(endpoint, "/v3/kv/range", &question).and_then(whole_answer) {
                Ok(body) => return self.understand(&body),
                Err(why) => reason = format!("{endpoint}: {why}"),
            }
        }
        Err(format!("etcd doesn't answer ({reason})"))
    }

    fn understand(&self, body: &[u8]) -> Result<Found, String> {
        let unexpected = || "etcd's answer can't be understood; version 3.4 or newer is needed".to_owned();
        let range: Range = serde_json::from_slice(body).map_err(|_| unexpected())?;
        let revision = range.header.revision.parse().map_err(|_| unexpected())?;
        let text = match range.kvs.first() {
            Some(pair) => {
                let bytes = STANDARD.decode(&pair.value).map_err(|_| unexpected())?;
                String::from_utf8(bytes).map_err(|_| "what is there is no text".to_owned())
            }
            None => Err(format!(
                "there is no key {0}; put a cluster there, by `etcdctl put {0} < FILE`",
                self.key
            )),
        };
        Ok(Found { text, revision })
    }

    /// Begins to hear of changes after that one.
    fn watch(&self, revision: u64) -> Result<Watch, String> {
        let question = json!({
            "create_request": { "key": STANDARD.encode(&self.key), "start_revision": (revision + 1).to_string() }
        });
        let mut reason = String::new();
        for endpoint in &self.endpoints {
            match ask(endpoint, "/v3/watch", &question.to_string()) {
                Ok(stream) => {
                    stream.set_nonblocking(true).map_err(|error| error.to_string())?;
                    return Ok(Watch { stream, heard: Vec::new(), since: Instant::now() });
                }
                Err(why) => reason = format!("{endpoint}: {why}"),
            }
        }
        Err(reason)
    }

    /// Begins to follow it.
    pub(crate) fn follow(self) -> Follower {
        Follower { key: self, watch: None, retry_at: None, retry_after: RETRY_FIRST, told: None }
    }
}

/// What there is under a key.
struct Found {
    text: Result<String, String>,
    /// The number of etcd's latest change.
    revision: u64,
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
}

/// Sends a question.
fn ask(endpoint: &str, path: &str, question: &str) -> Result<TcpStream, String> {
    let in_words = |error: std::io::Error| error.to_string();
    let address = endpoint.to_socket_addrs().map_err(in_words)?.next().ok_or("it has no address")?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(in_words)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(in_words)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(in_words)?;
    // Of version 1.0, so that an answer ends with its connection, and needs no decoding.
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {endpoint}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        question.len()
    );
    stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(question.as_bytes()))
        .map_err(in_words)?;
    Ok(stream)
}

/// The body of an answer that ends.
fn whole_answer(stream: TcpStream) -> Result<Vec<u8>, String> {
    let mut answer = Vec::new();
    stream.take(MOST_ANSWER_BYTES + 1).read_to_end(&mut answer).map_err(|error| error.to_string())?;
    if answer.len() as u64 > MOST_ANSWER_BYTES {
        return Err(format!("its answer is larger than {} MiB", MOST_ANSWER_BYTES >> 20));
    }
    body_of(&answer).map(<[u8]>::to_vec)
}

/// What follows the head of an answer that went well.
fn body_of(answer: &[u8]) -> Result<&[u8], String> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or("it doesn't speak HTTP")?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if !head.starts_with("HTTP/1.") || status != "200" {
        let line = head.lines().next().unwrap_or_default();
        return Err(format!("it says {line:?}"));
    }
    Ok(&answer[end + 4..])
}

/// A watch on a key.
struct Watch {
    stream: TcpStream,
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
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const BEGUN: &str = "{\"result\":{\"header\":{\"revision\":\"7\"},\"created\":true}}\n";
    const WRITTEN: &str = "{\"result\":{\"header\":{\"revision\":\"8\"},\"events\":[{\"kv\":{}}]}}\n";

    fn found(text: &str) -> String {
        let value = STANDARD.encode(text);
        format!("{{\"header\":{{\"revision\":\"7\"}},\"kvs\":[{{\"value\":\"{value}\"}}],\"count\":\"1\"}}")
    }

    /// An etcd that gives these answers, one to each connection; where a second part is there, it comes a little later, and then nothing.
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
        EtcdKey { endpoints: vec![endpoint], key: "farmem/cluster".to_owned() }
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
        assert!(body_of(b"HTTP/1.1 404 Not Found\r\n\r\n").unwrap_err().contains("404"));
        assert!(body_of(b"SSH-2.0").is_err());
    }
}
