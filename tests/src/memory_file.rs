//! The memory files that applications make.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// Bytes of the kernel's memory in the memory file of that name that the process holds; `None` when it holds
/// none, or has gone.
#[must_use]
pub fn memory_file_bytes(process: u32, name: &str) -> Option<u64> {
    const BLOCK_BYTES: u64 = 512;
    let link = format!("/memfd:{name} ");
    let mut held =
        fs::read_dir(format!("/proc/{process}/fd")).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let file =
        held.find(|path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with(&link)))?;
    Some(fs::metadata(file).ok()?.blocks() * BLOCK_BYTES)
}
