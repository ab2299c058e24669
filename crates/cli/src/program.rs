//! Finds the program to run and tells, before anything starts, whether Farmem can come to it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use farmem::Failure;
use object::read::elf::FileHeader;
use object::{Endianness, ReadCache, elf};
use rustix::fs::access;

/// How many interpreters in a row the kernel follows.
const INTERPRETERS_MAXIMUM: usize = 5;
/// How much of a script's first line the kernel reads.
const SCRIPT_LINE_BYTES: u64 = 256;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = elf::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = elf::EM_AARCH64;

/// Finds the file that a shell would execute for `name`.
///
/// # Errors
/// [`Failure::NotFound`] and [`Failure::NotExecutable`], as a shell tells them apart.
pub(crate) fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        executable(&path)?;
        return Ok(path);
    }
    let path = env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
    let mut refusal = None;
    for candidate in env::split_paths(&path).map(|folder| folder.join(name)) {
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(failure @ Failure::NotExecutable(_)) => refusal = refusal.or(Some(failure)),
            Err(_) => {}
        }
    }
    Err(refusal.unwrap_or_else(|| {
        let name = name.to_string_lossy();
        Failure::NotFound(format!("there is no program `{name}` on PATH; install it or give its path"))
    }))
}

/// Whether the file may be executed at all.
fn executable(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            Failure::NotExecutable(format!("you may not look at {shown}; its folders must let you pass"))
        }
        _ => Failure::NotFound(format!("there is no program {shown}; check its path")),
    })?;
    if metadata.is_dir() {
        return Err(Failure::NotExecutable(format!("{shown} is a folder; name a program in it")));
    }
    if access(path, rustix::fs::Access::EXEC_OK).is_err() {
        return Err(Failure::NotExecutable(format!("{shown} is not executable; try `chmod +x {shown}`")));
    }
    Ok(())
}

/// Whether Farmem can come to the program: follows scripts to their interpreters, then looks at the file.
///
/// # Errors
/// [`Failure::Unusable`] with what to do, for programs for other processors; [`Failure::NotFound`] when an
/// interpreter is missing; [`Failure::NotExecutable`] when the file is neither a program nor a script.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    let mut path = path.to_owned();
    for _ in 0..INTERPRETERS_MAXIMUM {
        let mut file = File::open(&path).map_err(|_| {
            // The kernel executes files that can't be read, but what they are can't be known then.
            Failure::Unusable(format!(
                "cannot read {0} to see whether it can be managed; try `chmod +r {0}`",
                path.display()
            ))
        })?;
        let Some(interpreter) = interpreter(&mut file) else { return check_binary(&path, file) };
        executable(&interpreter).map_err(|_| {
            Failure::NotFound(format!(
                "the script {} asks for {}, which can't be executed; correct its first line",
                path.display(),
                interpreter.display()
            ))
        })?;
        path = interpreter;
    }
    Err(Failure::NotExecutable(format!("too many scripts in a row, the last {}", path.display())))
}

/// The interpreter that a script names on its first line; `None` for what is no script.
fn interpreter(file: &mut File) -> Option<PathBuf> {
    let mut start = Vec::new();
    file.take(SCRIPT_LINE_BYTES).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let word = line.split(|byte| matches!(byte, b' ' | b'\t')).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsString::from_vec(word.to_vec())))
}

/// What matters of a program's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Binary {
    /// For this machine.
    Native,
    /// For another processor, or for a smaller word.
    Foreign,
    /// Not a program.
    Other,
}

fn check_binary(path: &Path, file: File) -> Result<(), Failure> {
    let shown = path.display();
    match classify(&ReadCache::new(file)) {
        Binary::Native => Ok(()),
        Binary::Foreign => Err(Failure::Unusable(format!(
            "{shown} is not built for {} with 64 bits; use a build for this machine",
            env::consts::ARCH
        ))),
        Binary::Other => Err(Failure::NotExecutable(format!(
            "{shown} is neither a program nor a script with a `#!` line; name its interpreter, as in `sh {shown}`"
        ))),
    }
}

/// Reads headers only, so a large program costs no more than a small one.
fn classify(file: &ReadCache<File>) -> Binary {
    let header = match elf::FileHeader64::<Endianness>::parse(file) {
        Ok(header) => header,
        Err(_) if elf::FileHeader32::<Endianness>::parse(file).is_ok() => return Binary::Foreign,
        Err(_) => return Binary::Other,
    };
    let Ok(endian) = header.endian() else { return Binary::Other };
    if header.e_machine(endian) != MACHINE {
        return Binary::Foreign;
    }
    if !matches!(header.e_type(endian), elf::ET_EXEC | elf::ET_DYN) {
        return Binary::Other;
    }
    Binary::Native
}
