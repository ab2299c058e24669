//! What stored pages take of the memory that holds them (FastSwap, Table II).

use clap::ValueEnum;
use serde::Serialize;

use super::setting::Setting;
use super::swapper::{self, Workload};
use super::victim::Scale;
use crate::workload::{Compressibility, Pattern};

const NAME: &str = "bench-pool";

/// Pages of one kind, stored.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Efficiency {
    /// How well they compress.
    pub compressibility: Compressibility,
    /// The pages, as they are.
    pub page_bytes: u64,
    /// The memory that they take, with all that is lost around them.
    pub used_bytes: u64,
}

impl Efficiency {
    /// Bytes used for each byte stored.
    pub fn share(self) -> f64 {
        self.used_bytes as f64 / self.page_bytes.max(1) as f64
    }
}

/// Stores pages of each kind; none where this peer has no compressed memory.
pub(super) fn turn(setting: &Setting, scale: Scale) -> anyhow::Result<Vec<Efficiency>> {
    let mut found = Vec::new();
    for &compressibility in Compressibility::value_variants() {
        let workload = Workload {
            local: scale.local(),
            data: scale.data,
            pattern: Pattern::Sequential,
            compressibility,
            ..Workload::default()
        };
        let mut swapper = swapper::start(setting, NAME, 0, workload)?;
        let used = setting.pool_use(NAME)?;
        swapper.application.end()?;
        match used {
            Some(used) => found.push(Efficiency {
                compressibility,
                page_bytes: used.stored_bytes,
                used_bytes: used.used_bytes,
            }),
            None => break,
        }
    }
    Ok(found)
}
