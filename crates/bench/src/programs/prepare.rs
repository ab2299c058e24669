//! Makes programs ready: writes them down, compiles them, and looks whether what runs them is installed.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use farmem_page::ByteCount;

use super::name::ProgramName;
use crate::sources::{ARRAYS, TREES, works};

/// What programs are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workshop<'a> {
    pub(super) python: &'a Path,
    /// Where programs are written to and compiled.
    pub(super) folder: &'a Path,
    pub(super) quick: bool,
}

/// How many times less data a program has when it is to be quick.
const QUICK_PART: u64 = 4;
/// What the Java VM may have for each entry of its table: the entry's objects, and as much again for its
/// collector.
const JAVA_ENTRY_BYTES: u64 = 256;
const JAVA_LEAST_BYTES: u64 = 64 << 20;
/// Transactions of PostgreSQL, mebibytes of its shared buffers, and of tables for each unit of pgbench's
/// scale.
const TRANSACTIONS: u64 = 16_000;
const BUFFERS_MIB: u64 = 256;
const SCALE_MIB: u64 = 16;
const TABLE_JAVA: &str = include_str!("sources/Table.java");

/// A program that is ready.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The words that start it.
    pub(super) command: Vec<OsString>,
    /// Memory that it has in addition to what is seen of its first process.
    pub(super) shared: ByteCount,
}

impl Workshop<'_> {
    /// A program with all that it needs.
    ///
    /// # Errors
    /// When something that it needs isn't installed.
    pub(super) fn prepare(self, name: ProgramName) -> Result<Prepared> {
        let python = |modules, file, source, words: &[&str], count| {
            self.python(modules, file, source, words, self.count(count))
        };
        let command = match name {
            ProgramName::PythonDict => {
                python("sys", "dict.py", include_str!("sources/dict.py"), &[], 400_000)
            }
            ProgramName::PerlHash => {
                self.script(&["perl"], "hash.pl", include_str!("sources/hash.pl"), 250_000)
            }
            ProgramName::RubyHash => {
                self.script(&["ruby"], "hash.rb", include_str!("sources/hash.rb"), 400_000)
            }
            // Its own limit is for web pages.
            ProgramName::PhpArray => self.script(
                &["php", "-d", "memory_limit=-1"],
                "array.php",
                include_str!("sources/array.php"),
                600_000,
            ),
            // By itself it would take a smaller heap in a control group: two thirds, even where the limit is
            // far above the need.
            ProgramName::NodeMap => self.script(
                &["node", "--max-old-space-size=2048", "--max-semi-space-size=16"],
                "map.js",
                include_str!("sources/map.js"),
                600_000,
            ),
            ProgramName::JavaHashMap => self.java(2_000_000),
            ProgramName::Polars => {
                let source = include_str!("sources/polars_frame.py");
                python("polars", "polars_frame.py", source, &[], 4_000_000)
            }
            ProgramName::NumpySort => python("numpy", "arrays.py", ARRAYS, &["sort"], 16 << 20),
            ProgramName::Kmeans => {
                python("sklearn", "clusters.py", include_str!("sources/clusters.py"), &[], 500_000)
            }
            ProgramName::Sqlite => {
                python("sqlite3", "sqlite.py", include_str!("sources/sqlite.py"), &[], 1_000_000)
            }
            ProgramName::Duckdb => {
                let source = include_str!("sources/duckdb_tables.py");
                python("duckdb", "duckdb_tables.py", source, &[], 3_000_000)
            }
            ProgramName::Pgbench => return self.pgbench(),
            ProgramName::Xgboost => python("numpy, xgboost", "train_trees.py", TREES, &[], 400_000),
        };
        Ok(Prepared { command: command?, shared: ByteCount::new(0) })
    }

    fn count(self, count: u64) -> u64 {
        if self.quick { count / QUICK_PART } else { count }
    }

    fn write(self, file: &str, source: &str) -> Result<PathBuf> {
        let path = self.folder.join(file);
        fs::write(&path, source).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    fn python(
        self,
        modules: &str,
        file: &str,
        source: &str,
        words: &[&str],
        count: u64,
    ) -> Result<Vec<OsString>> {
        works(Command::new(self.python).args(["-c", &format!("import {modules}")]))
            .with_context(|| format!("name a Python that has {modules} with --python"))?;
        let start = [self.python.into(), self.write(file, source)?.into()].into_iter();
        let words = words.iter().map(OsString::from);
        Ok(start.chain(words).chain([count.to_string().into()]).collect())
    }

    /// Of an interpreter that comes with all that is needed, and its options.
    fn script(self, interpreter: &[&str], file: &str, source: &str, count: u64) -> Result<Vec<OsString>> {
        let (name, options) = interpreter.split_first().context("a script has an interpreter")?;
        works(Command::new(name).arg("--version"))?;
        let start = [name].into_iter().chain(options).map(OsString::from);
        let count = self.count(count).to_string();
        Ok(start.chain([self.write(file, source)?.into(), count.into()]).collect())
    }

    /// Its tables are made here: they are no part of what is measured.
    fn pgbench(self) -> Result<Prepared> {
        let binaries = postgresql().context("PostgreSQL isn't installed")?;
        let script = self.write("pgbench.sh", include_str!("sources/pgbench.sh"))?;
        let folder = self.folder.join("postgresql");
        // The server's user gets through, and sees nothing else.
        let made = fs::create_dir_all(&folder);
        made.and_then(|()| fs::set_permissions(self.folder, fs::Permissions::from_mode(0o711)))
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let buffers_mib = self.count(BUFFERS_MIB);
        let words = |verb: &str| {
            let start = ["sh".into(), script.clone().into(), verb.into()].into_iter();
            let numbers = [buffers_mib / SCALE_MIB, buffers_mib, self.count(TRANSACTIONS)];
            let folders = [binaries.clone().into(), folder.clone().into()].into_iter();
            start.chain(folders).chain(numbers.map(|number| number.to_string().into()))
        };
        let words: [Vec<OsString>; 2] = ["prepare", "run"].map(|verb| words(verb).collect());
        let [prepare, command] = words;
        works(Command::new("sh").args(&prepare[1..]))?;
        Ok(Prepared { command, shared: ByteCount::new(buffers_mib << 20) })
    }

    fn java(self, count: u64) -> Result<Vec<OsString>> {
        let source = self.write("Table.java", TABLE_JAVA)?;
        works(Command::new("javac").arg("-d").arg(self.folder).arg(source))?;
        let count = self.count(count);
        let heap = format!("-Xmx{}", JAVA_LEAST_BYTES + count * JAVA_ENTRY_BYTES);
        // Without the third option it would look at the limit of its control group.
        let words = ["java", "-XX:+UseG1GC", "-XX:-UseContainerSupport", &heap, "-cp"];
        let words = words.map(OsString::from).into_iter().chain([self.folder.into()]);
        Ok(words.chain(["Table".into(), count.to_string().into()]).collect())
    }
}

/// Where the newest PostgreSQL has its programs, which distributions keep off the path.
fn postgresql() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql")?;
    let folders = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    let newest = folders.filter(|folder| folder.join("postgres").exists()).max();
    newest.context("it has no server")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let workshop = Workshop { python: Path::new("/nowhere/python"), folder: folder.path(), quick: true };

        let error = format!("{:#}", workshop.prepare(ProgramName::Polars).unwrap_err());

        assert!(error.contains("polars") && error.contains("/nowhere/python"), "{error}");
    }
}
