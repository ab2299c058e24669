//! Where the other program is. Both are installed side by side.

use std::env;
use std::path::PathBuf;

/// In the environment of `farmem-bench`: the `farmem` that has called it. A build is measured by its own
/// name even where `farmem-bench` is another's.
pub const CALLER: &str = "FARMEM_PROGRAM";

/// The program of that name next to this one, else the one along `PATH`; `None` where neither is. What lies
/// in the folder of the caller's shell is no program of Farmem's, even where `PATH` names that folder.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let own = env::current_exe().ok();
    let next = own.as_deref().and_then(|own| own.parent()).map(|folder| folder.join(name));
    let path = env::var_os("PATH").unwrap_or_default();
    let along = env::split_paths(&path).filter(|folder| folder.is_absolute()).map(|folder| folder.join(name));
    next.into_iter().chain(along).find(|program| program.is_file())
}
