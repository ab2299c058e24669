//! Printing. The standard library's macros panic when nobody reads any more, or a disk is full, and a panic
//! leaves a core file; these take their place in this crate.

use std::fmt::Arguments;
use std::io::{self, Write};

use farmem::Failure;
use serde::Serialize;

macro_rules! print {
    ($($words:tt)*) => { $crate::print::print(format_args!($($words)*)) };
}

macro_rules! println {
    ($($words:tt)*) => { $crate::print::print(format_args!("{}\n", format_args!($($words)*))) };
}

macro_rules! eprintln {
    ($($words:tt)*) => { ::farmem::say(&format!($($words)*)) };
}

/// Prints a value as indented JSON, as programs read it.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    println!("{}", serde_json::to_string_pretty(value).map_err(anyhow::Error::from)?);
    Ok(())
}

/// Prints on standard output, or ends the command as one that has failed.
pub(crate) fn print(words: Arguments<'_>) {
    let mut output = io::stdout().lock();
    if let Err(error) = output.write_fmt(words).and_then(|()| output.flush()) {
        farmem::say(&format!("farmem: cannot print: {error}"));
        std::process::exit(1);
    }
}
