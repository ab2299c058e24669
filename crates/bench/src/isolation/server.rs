//! The server that is asked: memcached, on one processor with its client; with one thread where it is a
//! victim, with several among programs of other kinds.
//!
//! Its threads of the background are off. They walk over items that nobody has asked for; and under a control
//! group's limit it is one of them, waiting for a page while the serving thread takes each that becomes free,
//! for which Linux 6.18 gives up and calls its out-of-memory killer, with swap nearly empty.

use std::path::Path;

use anyhow::Context;
use farmem_page::ByteCount;

use super::client::{Client, items};
use super::setting::{Application, Room, Setting, on_processor};
use crate::interrupt::Interrupt;

/// Where server and client run.
pub(super) const PROCESSOR: usize = 0;
/// The name of its space where it has a processor to itself.
pub(super) const NAME: &str = "bench-server";

/// The server's room where it has a processor to itself.
pub(super) fn room(local: ByteCount) -> Room<'static> {
    Room { name: NAME, local, processor: Some(PROCESSOR), share: None, broker: None, options: &[] }
}

/// Starts the server and fills it with `data` bytes of items.
pub(super) fn start(
    setting: &Setting,
    folder: &Path,
    room: Room<'_>,
    data: ByteCount,
) -> anyhow::Result<(Application, Client)> {
    let socket = folder.join("memcached");
    let mut server = setting.start(room, &command(&socket, data, 1))?;
    let client = fill(&socket, room.processor, data, setting.interrupt())?;
    server.limit()?;
    Ok((server, client))
}

/// Fills a server that has just been started with `data` bytes of items.
pub(super) fn fill(
    socket: &Path,
    processor: Option<usize>,
    data: ByteCount,
    interrupt: &Interrupt,
) -> anyhow::Result<Client> {
    let mut client = Client::connect(socket, interrupt)?;
    on_processor(processor, || client.load(data.get()))?.context("loading the server")?;
    Ok(client)
}

/// What starts a server with so many threads for so many bytes of items.
pub(super) fn command(socket: &Path, data: ByteCount, threads: u64) -> Vec<String> {
    // A hash table that grew while the server is measured would be walked with locks held.
    let hash_bits = (items(data.get()).ilog2() + 1).clamp(12, 32);
    let threads = threads.to_string();
    let mut command: Vec<String> =
        ["memcached", "-t", &threads, "-m", "65536", "-o"].map(str::to_owned).into();
    command.extend([format!("hashpower={hash_bits},no_lru_maintainer,no_lru_crawler"), "-s".to_owned()]);
    command.push(socket.to_string_lossy().into_owned());
    if rustix::process::geteuid().is_root() {
        command.extend(["-u", "root"].map(str::to_owned));
    }
    command
}
