//! Where the supervisor says what it has to say: on standard error, and once it is in the background, where
//! nobody reads that, in the system's log.

use std::io::{Write, stderr};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where the system's log listens. Its packets begin with facility (daemon) and urgency (error).
const LOG: &str = "/dev/log";
const DAEMON_ERROR: &str = "<27>";
/// To a terminal: back to the first column, and delete what follows.
const CLEAR: &str = "\r\x1b[K";

static IS_IN_BACKGROUND: AtomicBool = AtomicBool::new(false);
/// Whether a line stands there that the next words take the place of.
static IS_LINE_SHOWN: AtomicBool = AtomicBool::new(false);

/// From now on nobody reads standard error.
pub(crate) fn go_to_background() {
    IS_IN_BACKGROUND.store(true, Ordering::Relaxed);
}

/// Says one sentence; where events are logged it is one of them.
pub(crate) fn say(sentence: &str) {
    tracing::warn!("{sentence}");
    if IS_IN_BACKGROUND.load(Ordering::Relaxed) {
        // A system without a log is none of Farmem's business.
        let packet = format!("{DAEMON_ERROR}farmem[{}]: {sentence}", std::process::id());
        let _ = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to(packet.as_bytes(), LOG)
        });
    } else if !tracing::dispatcher::has_been_set() {
        clear_line();
        write(&format!("farmem: {sentence}\n"));
    }
}

/// Shows a line on the terminal that standard error is, in the place of the one before.
pub(crate) fn show_line(line: &str) {
    write(&format!("{CLEAR}{line}"));
    IS_LINE_SHOWN.store(true, Ordering::Relaxed);
}

/// Takes that line away.
pub(crate) fn clear_line() {
    if IS_LINE_SHOWN.swap(false, Ordering::Relaxed) {
        write(CLEAR);
    }
}

/// Writes to standard error. Whoever read there may have gone, and the terminal may be closed: that must not
/// end a supervisor, so nothing here uses what panics then.
pub(crate) fn write(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}
