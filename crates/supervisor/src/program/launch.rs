//! Starting the program with the runtime in it.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Error, Result, bail};
use farmem_sys::signals;
use nix::sys::signal::SigSet;
use rustix::process::{Pid, Rlimit};

use crate::options::Options;

/// The runtime's file name.
pub(crate) const LIBRARY: &str = "libfarmem.so";

/// Where the runtime is: beside this program, or where an installation puts it.
pub(crate) fn find_library() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where farmem is installed")?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let candidates = [
        folder.join(LIBRARY),
        folder.join("../lib/farmem").join(LIBRARY),
        folder.join("../lib").join(LIBRARY),
    ];
    match candidates.iter().find(|path| path.is_file()) {
        Some(path) => {
            let path = path.canonicalize()?;
            if !is_preloadable(&path) {
                bail!(
                    "{} can't be loaded into programs: the loader takes blanks and colons for ends of paths; install Farmem where there are none",
                    path.display()
                );
            }
            Ok(path)
        }
        None => bail!("{LIBRARY} is missing beside {}; build or install Farmem again", own.display()),
    }
}

/// Whether `LD_PRELOAD` can name that file.
fn is_preloadable(path: &Path) -> bool {
    !path.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b' ' | b':'))
}

/// Starts the program, with the runtime in it if there is a `library`. `file_size` is its limit of the size of files, where this process's is another one.
pub(crate) fn launch(
    options: &Options,
    library: Option<&Path>,
    supervisor: &str,
    file_size: Option<Rlimit>,
    mask: SigSet,
) -> Result<Pid> {
    let mut command = command(options);
    if let Some(library) = library {
        preload(&mut command, library, supervisor);
    }
    signals::hand_on(&mut command);
    if let Some(limit) = file_size {
        signals::hand_on_file_size(&mut command, limit);
    }
    start(command, mask).map(|child| Pid::from_child(&child)).map_err(|error| cannot_start(options, error))
}

/// The program with its arguments, and nothing else.
pub(crate) fn command(options: &Options) -> Command {
    let mut command = Command::new(&options.executable);
    command.arg0(&options.program).args(&options.arguments);
    command
}

pub(crate) fn cannot_start(options: &Options, error: Error) -> Error {
    error.context(format!("cannot start {}", options.executable.display()))
}

fn preload(command: &mut Command, library: &Path, supervisor: &str) {
    let mut preload = OsString::from(library);
    if let Some(other) = std::env::var_os("LD_PRELOAD").filter(|other| !other.is_empty()) {
        preload.push(":");
        preload.push(other);
    }
    command.env("LD_PRELOAD", preload).env("FARMEM_SUPERVISOR", OsStr::new(supervisor));
}

/// The program begins with the signals blocked that were blocked for the user who called, not those that wait to be
/// passed on.
fn start(mut command: Command, mask: SigSet) -> Result<Child> {
    // The mask of the calling thread is what a child begins with, so it is set for the length of the call.
    let own = mask.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_SETMASK)?;
    let child = command.spawn();
    own.thread_set_mask()?;
    Ok(child?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_the_loader_would_take_apart_is_known() {
        assert!(is_preloadable(Path::new("/usr/lib/farmem/libfarmem.so")));
        assert!(!is_preloadable(Path::new("/home/a b/libfarmem.so")));
        assert!(!is_preloadable(Path::new("/srv/a:b/libfarmem.so")));
    }
}
