//! Which build this is.
//!
//! The Makefile names the commit. It is read in this package alone, so that another commit compiles only this
//! package again.

use std::sync::LazyLock;

/// The commit that this program was built from; `None` where the build did not say, as without a repository.
#[must_use]
pub fn commit() -> Option<&'static str> {
    option_env!("FARMEM_COMMIT").filter(|commit| !commit.is_empty())
}

/// What `--version` prints behind the name.
#[must_use]
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let commit = commit().map_or_else(String::new, |commit| format!(" ({commit})"));
        format!("{}{commit}", env!("CARGO_PKG_VERSION"))
    });
    &VERSION
}
