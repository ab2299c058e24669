//! Where the supervisor says what it has to say: on standard error, and once it is in the background, where nobody reads
//! that, in the system's log.

use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where the system's log listens. Its packets begin with facility (daemon) and urgency (error).
const LOG: &str = "/dev/log";
const DAEMON_ERROR: &str = "<27>";

static IS_IN_BACKGROUND: AtomicBool = AtomicBool::new(false);

/// From now on nobody reads standard error.
pub(crate) fn go_to_background() {
    IS_IN_BACKGROUND.store(true, Ordering::Relaxed);
}

/// Says one sentence.
pub(crate) fn say(sentence: &str) {
    if IS_IN_BACKGROUND.load(Ordering::Relaxed) {
        // A system without a log is none of Farmem's business.
        let packet = format!("{DAEMON_ERROR}farmem[{}]: {sentence}", std::process::id());
        let _ = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to(packet.as_bytes(), LOG)
        });
    } else {
        eprintln!("farmem: {sentence}");
    }
}
