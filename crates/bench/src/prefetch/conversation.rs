//! What is asked of Redis while it is measured.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::ensure;
use farmem_page::ByteCount;

use crate::interrupt::Interrupt;
use crate::redis::Client;

/// A server is filled, asked, and ended.
#[derive(Clone, Debug)]
pub(super) struct Conversation {
    pub(super) socket: PathBuf,
    /// What it is filled with.
    pub(super) data: ByteCount,
    /// Whether it is asked for everything, rather than for what is popular.
    pub(super) is_scan: bool,
}

/// A request for a popular value for so many bytes of data.
const BYTES_PER_REQUEST: u64 = 2048;
const SCANS: u32 = 2;

impl Conversation {
    /// Holds it with a server that has been started; how many seconds the questions took, without the
    /// filling.
    ///
    /// # Errors
    /// When the server answers otherwise, or the benchmark is to stop. The server has been told to end.
    pub(super) fn hold(&self, interrupt: &Interrupt) -> anyhow::Result<f64> {
        let mut client = Client::connect(&self.socket)?;
        let took = self.ask(&mut client, interrupt);
        // Where it answers no more it has ended.
        let ended = client.end();
        let took = took?;
        ended.map(|()| took)
    }

    fn ask(&self, client: &mut Client, interrupt: &Interrupt) -> anyhow::Result<f64> {
        client.load(self.data, interrupt)?;
        let began = Instant::now();
        if self.is_scan {
            for _ in 0..SCANS {
                let found = client.scan(interrupt)?;
                ensure!(found >= client.items(), "a scan found {found} keys of {}", client.items());
            }
        } else {
            client.ask_by_popularity(self.data.get() / BYTES_PER_REQUEST, interrupt)?;
        }
        Ok(began.elapsed().as_secs_f64())
    }
}
