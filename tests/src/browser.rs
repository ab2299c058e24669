//! A real browser without a screen, asked by its own protocol for what a person would do with it and see in
//! it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::scratch::Scratch;

/// A browser needs seconds to start where others work.
const PATIENCE: Duration = Duration::from_secs(120);
/// The size of its window, in which the page has its columns side by side.
const WINDOW: &str = "--window-size=1200,1600";

/// What a script contains is not on the page.
const DOCUMENT: &str = "(() => {
    const document = globalThis.document.documentElement?.cloneNode(true);
    for (const hidden of document?.querySelectorAll('script, style') ?? []) hidden.remove();
    return document?.outerHTML ?? '';
})()";

/// A browser that shows one page. Its profile lies in the test's directory; it ends with this.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    requests: ChildStdin,
    messages: Receiver<Value>,
    serial: u64,
    /// What stands for the page in requests.
    session: Option<String>,
}

impl Browser {
    /// Opens an address.
    ///
    /// # Panics
    /// When there is no browser, or it doesn't do as it is told.
    #[must_use]
    pub fn open(scratch: &Scratch, address: &str) -> Self {
        let name = ["chromium", "chromium-browser"]
            .into_iter()
            .find(|name| Command::new(name).arg("--version").output().is_ok())
            .expect("scripts/setup installs chromium");
        // It hears on descriptor 3, and answers on 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh", name])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe", WINDOW])
            .arg(format!("--user-data-dir={}", scratch.file("browser").display()))
            .current_dir(scratch.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the browser can be started");
        let requests = child.stdin.take().expect("a pipe");
        let mut answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, messages) = channel();
        // It ends with the browser.
        spawn(move || {
            let mut message = Vec::new();
            while answers.read_until(0, &mut message).is_ok_and(|length| length > 0) {
                let value = serde_json::from_slice(message.strip_suffix(&[0]).unwrap_or(&message));
                if value.is_ok_and(|value| sender.send(value).is_err()) {
                    return;
                }
                message.clear();
            }
        });
        let mut browser = Self { child, requests, messages, serial: 0, session: None };
        let target = browser.ask("Target.createTarget", &json!({ "url": "about:blank" }));
        let session =
            browser.ask("Target.attachToTarget", &json!({ "targetId": target["targetId"], "flatten": true }));
        browser.session = Some(session["sessionId"].as_str().expect("a session").to_owned());
        // Answered when the page has taken the place of the empty one: nothing that is asked from now on is
        // asked of that.
        browser.ask("Page.navigate", &json!({ "url": address }));
        browser
    }

    /// Waits until the document, as its scripts have made it and without them, is as wanted, and gives it
    /// back.
    ///
    /// # Panics
    /// When it isn't for too long.
    pub fn document(&mut self, what: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let document = self.evaluate(DOCUMENT);
            let document = document.as_str().expect("a document");
            if is_wanted(document) {
                return document.to_owned();
            }
            assert!(Instant::now() < end, "{what} does not come to be in {document}");
            sleep(Duration::from_millis(50));
        }
    }

    /// Types into what the selector names, as a keyboard would, then Enter.
    ///
    /// # Panics
    /// When there is no such thing.
    pub fn type_into(&mut self, selector: &str, text: &str) {
        self.focus(selector);
        self.ask("Input.insertText", &json!({ "text": text }));
        for kind in ["keyDown", "keyUp"] {
            let enter = json!({ "type": kind, "key": "Enter", "code": "Enter", "text": "\r",
                "windowsVirtualKeyCode": 13 });
            self.ask("Input.dispatchKeyEvent", &enter);
        }
    }

    /// What a script of the page's would make of an expression.
    ///
    /// # Panics
    /// When the expression fails.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let wanted = json!({ "expression": expression, "returnByValue": true });
        let answer = self.ask("Runtime.evaluate", &wanted);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// The number of its first process, of which all others come.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Writes a picture of the whole page, as PNG.
    ///
    /// # Panics
    /// When there is none, or it can't be written.
    pub fn picture(&mut self, path: &Path) {
        let answer =
            self.ask("Page.captureScreenshot", &json!({ "format": "png", "captureBeyondViewport": true }));
        let data = answer["data"].as_str().expect("a picture");
        fs::write(path, STANDARD.decode(data).expect("base64")).expect("it can be written");
    }

    fn focus(&mut self, selector: &str) {
        let selector = Value::from(selector);
        let focused = format!(
            "document.querySelector({selector})?.focus(), document.activeElement === document.querySelector({selector})"
        );
        assert_eq!(self.evaluate(&focused), true, "{selector} can't be typed into");
    }

    /// Asks, and waits for the answer. What the browser says by itself is passed over.
    fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        self.serial += 1;
        let mut request = json!({ "id": self.serial, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            request["sessionId"] = session.as_str().into();
        }
        let mut bytes = request.to_string().into_bytes();
        bytes.push(0);
        self.requests.write_all(&bytes).expect("the browser is there");
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let message = self.messages.recv_timeout(left).expect("the browser answers");
            if message["id"] == self.serial {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its other processes end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
