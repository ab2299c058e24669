//! The programs that pagers come to, in C: what they show must be the program's own doing, and no runtime's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sources::works;

const MEMORY: &str = include_str!("c/memory.h");

/// A program of this benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Program {
    Nothing,
    NothingStatic,
    Starts,
    Sleepers,
    Busy,
    Waiting,
    Fill,
}

impl Program {
    fn source(self) -> (&'static str, &'static str) {
        match self {
            Self::Nothing => ("nothing", include_str!("c/nothing.c")),
            Self::NothingStatic => ("nothing-static", include_str!("c/nothing.c")),
            Self::Starts => ("starts", include_str!("c/starts.c")),
            Self::Sleepers => ("sleepers", include_str!("c/sleepers.c")),
            Self::Busy => ("busy", include_str!("c/busy.c")),
            Self::Waiting => ("waiting", include_str!("c/waiting.c")),
            Self::Fill => ("fill", include_str!("c/fill.c")),
        }
    }
}

/// Where they are compiled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workshop<'a> {
    pub(super) folder: &'a Path,
}

impl Workshop<'_> {
    /// The program, compiled if it hasn't been yet.
    ///
    /// # Errors
    /// When there is no compiler for it, or not the libraries.
    pub(super) fn make(self, program: Program) -> anyhow::Result<PathBuf> {
        let (name, source) = program.source();
        let path = self.folder.join(name);
        if path.exists() {
            return Ok(path);
        }
        let text = path.with_extension("c");
        fs::write(self.folder.join("memory.h"), MEMORY)?;
        fs::write(&text, source)?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-pthread"]);
        if program == Program::NothingStatic {
            compiler.arg("-static");
        }
        works(compiler.arg("-o").arg(&path).arg(&text))?;
        Ok(path)
    }
}
