//! The end at which a supervisor hears of its processes, and whatever else anybody wants of it.

use farmem_client::SOCKET_PREFIX;
use farmem_sys::link::listen_at;
use farmem_sys::{Errno, OwnedFd};

/// Most supervisors in the background whose names have the same process number in them.
const MOST_NAMESAKES: u32 = 100;

/// Opens the end at which the calling process hears of its processes. The socket and its name: a supervisor
/// that goes on in the background keeps its name, while its process number may be given out again.
///
/// # Errors
/// What the kernel says.
pub(crate) fn listen() -> Result<(OwnedFd, String), Errno> {
    let own = format!("{SOCKET_PREFIX}{}", std::process::id());
    let others = (1..MOST_NAMESAKES).map(|more| format!("{own}.{more}"));
    let mut outcome = Err(Errno::ADDRINUSE);
    for name in std::iter::once(own.clone()).chain(others) {
        outcome = listen_at(name.as_bytes()).map(|socket| (socket, name));
        if !matches!(outcome, Err(Errno::ADDRINUSE)) {
            break;
        }
    }
    outcome
}
