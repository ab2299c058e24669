//! Makes subjects ready: compiles, writes down, looks whether what they need is installed.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::bail;
use farmem_page::ByteCount;

use super::conversation::Conversation;
use super::name::{Family, SubjectName};
use super::subject::{Clock, Subject};
use crate::sources::{ARRAYS, TREES, TREES_ROW_BYTES, works};
use crate::{option, own, redis};

/// What subjects are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workshop<'a> {
    pub(super) python: &'a Path,
    /// Where programs are compiled and written to.
    pub(super) folder: &'a Path,
    /// About how much memory each takes.
    pub(super) data: ByteCount,
}

/// Rounds of a pattern: enough that filling the data is a small part.
const ROUNDS: u32 = 6;
const C_HEADER: &str = include_str!("c/measured.h");
const BTREE: &str = include_str!("c/btree.c");
const ARRAYS_C: &str = include_str!("c/arrays.c");
const REGRESSION: &str = include_str!("java/Regression.java");
const KMEANS: &str = include_str!("java/KMeans.java");
const BREADTH: &str = include_str!("java/Breadth.java");
/// Why programs in Spark aren't measured.
const SPARK_LEFT_OUT: &str = "Spark isn't run: it is no part of scripts/setup, being 300 MB to download";
/// How often the Java programs go over their data.
const PASSES: u32 = 20;
/// What numpy takes to sort an element: it, its place, and room to work.
const SORTED_BYTES: u64 = 32;
/// Matrices that are there at a time while two are multiplied.
const MATRICES: u64 = 5;

impl Workshop<'_> {
    /// A subject, ready to run.
    ///
    /// # Errors
    /// When something that it needs isn't installed.
    pub(super) fn prepare(self, name: SubjectName) -> anyhow::Result<Subject> {
        let data = self.data.get();
        let title = option::name(&name);
        match name {
            SubjectName::CList => self.compiled_c(title, "list", include_str!("c/list.c"), &[]),
            SubjectName::CBTreeScan => self.compiled_c(title, "btree", BTREE, &["scan"]),
            SubjectName::CBTreeSearch => self.compiled_c(title, "btree", BTREE, &["search"]),
            SubjectName::CHashJoin => self.compiled_c(title, "hash_join", include_str!("c/hash_join.c"), &[]),
            SubjectName::CPagerank => self.compiled_c(title, "pagerank", include_str!("c/pagerank.c"), &[]),
            SubjectName::CArrayParts => self.compiled_c(title, "arrays", ARRAYS_C, &["parts"]),
            SubjectName::CArrayColumns => self.compiled_c(title, "arrays", ARRAYS_C, &["columns"]),
            SubjectName::CArrayReferences => self.compiled_c(title, "arrays", ARRAYS_C, &["references"]),
            SubjectName::NumpySort => {
                self.python(title, "arrays.py", ARRAYS, &["sort", &(data / SORTED_BYTES).to_string()])
            }
            SubjectName::NumpyMultiply => {
                let elements = data / (MATRICES * size_of::<f64>() as u64);
                self.python(title, "arrays.py", ARRAYS, &["multiply", &elements.to_string()])
            }
            SubjectName::Xgboost => {
                self.python(title, "train_trees.py", TREES, &[&(data / TREES_ROW_BYTES).to_string()])
            }
            SubjectName::JavaRegression => self.compiled_java(title, "Regression", REGRESSION, PASSES),
            SubjectName::JavaKmeans => self.compiled_java(title, "KMeans", KMEANS, PASSES),
            SubjectName::JavaBreadth => self.compiled_java(title, "Breadth", BREADTH, 1),
            SubjectName::SparkRegression => bail!("{SPARK_LEFT_OUT}; java-regression stands for it"),
            SubjectName::SparkKmeans => bail!("{SPARK_LEFT_OUT}; java-kmeans stands for it"),
            SubjectName::RedisZipf | SubjectName::RedisScan => {
                redis::available()?;
                let socket = self.folder.join(&title);
                let is_scan = name == SubjectName::RedisScan;
                let conversation = Conversation { socket: socket.clone(), data: self.data, is_scan };
                Ok(Subject::new(title, redis::command(&socket), Clock::Client(conversation)))
            }
            pattern => self.pattern(title, pattern),
        }
    }

    fn pattern(self, title: String, name: SubjectName) -> anyhow::Result<Subject> {
        let words = ["workload", "--data", &self.data.get().to_string(), "--rounds", &ROUNDS.to_string()];
        let command = [own::program()?.into()].into_iter().chain(words.map(OsString::from));
        let pattern = match name.family() {
            Family::Pattern(pattern) => option::name(&pattern),
            _ => title.clone(),
        };
        let command = command.chain(["--pattern".into(), pattern.into()]).collect();
        Ok(Subject::new(title, command, Clock::Rounds))
    }

    fn compiled_c(self, title: String, name: &str, source: &str, words: &[&str]) -> anyhow::Result<Subject> {
        let (text, program) = (self.folder.join(name).with_extension("c"), self.folder.join(name));
        fs::write(self.folder.join("measured.h"), C_HEADER)?;
        fs::write(&text, source)?;
        works(Command::new("cc").args(["-O2", "-pthread", "-o"]).arg(&program).arg(&text))?;
        let data = self.data.get().to_string();
        let command = [program.into()].into_iter().chain(words.iter().map(OsString::from));
        Ok(Subject::new(title, command.chain([data.into()]).collect(), Clock::Own).with_data(self.data))
    }

    fn python(self, title: String, name: &str, source: &str, words: &[&str]) -> anyhow::Result<Subject> {
        works(Command::new(self.python).args(["-c", "import numpy, xgboost"]))
            .map_err(|error| error.context("name a Python that has numpy and XGBoost with --python"))?;
        let program = self.folder.join(name);
        fs::write(&program, source)?;
        let command = [self.python.into(), program.into()].into_iter();
        Ok(Subject::new(title, command.chain(words.iter().map(OsString::from)).collect(), Clock::Whole))
    }

    /// Its heap may grow to three times its data.
    fn compiled_java(self, title: String, class: &str, source: &str, passes: u32) -> anyhow::Result<Subject> {
        let text: PathBuf = self.folder.join(class).with_extension("java");
        fs::write(&text, source)?;
        works(Command::new("javac").arg("-d").arg(self.folder).arg(&text))?;
        let heap = format!("-Xmx{}", self.data.get() * 3 + (32 << 20));
        let words = ["java", "-XX:+UseG1GC", &heap, "-cp"].map(OsString::from).into_iter();
        let arguments = [class.to_owned(), self.data.get().to_string(), passes.to_string()];
        let folder: &OsStr = self.folder.as_os_str();
        let command = words.chain([folder.to_owned()]).chain(arguments.map(OsString::from));
        Ok(Subject::new(title, command.collect(), Clock::Whole))
    }
}
