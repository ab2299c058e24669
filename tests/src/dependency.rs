//! What `scripts/setup` puts next to the sources.

use std::path::{Path, PathBuf};

/// The path of something that `scripts/setup` has made or fetched.
pub fn dependency(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../.deps").join(path)
}
