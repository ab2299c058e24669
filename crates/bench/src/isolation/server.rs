//! The server that is asked: memcached with one thread, on one processor with its client.

use std::path::Path;

use anyhow::Context;
use farmem_page::ByteCount;

use super::client::{Client, items};
use super::setting::{Application, Setting, on_processor};

/// Where server and client run.
pub(super) const PROCESSOR: usize = 0;
/// The name of its space or control group.
const NAME: &str = "bench-server";

/// Starts the server with `local` bytes of local memory and fills it with `data` bytes of items.
pub(super) fn start(
    setting: &Setting,
    folder: &Path,
    local: ByteCount,
    data: ByteCount,
) -> anyhow::Result<(Application, Client)> {
    let socket = folder.join("memcached");
    // A hash table that grew while the server is measured would be walked with locks held.
    let hash_bits = (items(data.get()).ilog2() + 1).clamp(12, 32);
    let mut command: Vec<String> = ["memcached", "-t", "1", "-m", "65536", "-o"].map(str::to_owned).into();
    command.extend([format!("hashpower={hash_bits}"), "-s".to_owned()]);
    command.push(socket.to_string_lossy().into_owned());
    if rustix::process::geteuid().is_root() {
        command.extend(["-u", "root"].map(str::to_owned));
    }
    let mut server = setting.start(NAME, local, PROCESSOR, &command)?;
    let mut client = Client::connect(&socket)?;
    on_processor(PROCESSOR, || client.load(data.get()))?.context("loading the server")?;
    server.limit()?;
    Ok((server, client))
}
