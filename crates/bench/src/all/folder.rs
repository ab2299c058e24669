//! A folder of results: what was measured, how far it came, and the report. Records of a step count once the
//! step is noted as done, so that a benchmark that was ended at any moment goes on where it stopped.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use farmem_machine::Description;
use serde::{Deserialize, Serialize};

use super::plan::StepName;
use crate::record::{self, LeftOut, Record};

/// How far it came.
const STATE: &str = "progress.json";
/// The report.
pub(super) const REPORT: &str = "report.html";

/// What must be the same for records to belong together.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Setup {
    pub(super) version: String,
    pub(super) commit: String,
    pub(super) quick: bool,
    pub(super) data_bytes: Option<u64>,
    pub(super) peers: Vec<String>,
    pub(super) machine: Description,
}

impl Setup {
    /// What is another one there, in words.
    fn difference(&self, other: &Self) -> Option<String> {
        let quick = |quick: bool| if quick { "with --quick" } else { "without --quick" };
        if (&self.version, &self.commit) != (&other.version, &other.commit) {
            Some(format!("of version {} ({})", self.version, self.commit))
        } else if self.quick != other.quick {
            Some(quick(self.quick).to_owned())
        } else if self.data_bytes != other.data_bytes {
            Some("with another --data".to_owned())
        } else if self.peers != other.peers {
            Some("with another --peer".to_owned())
        } else {
            (self.machine != other.machine).then(|| "of another machine".to_owned())
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct State {
    setup: Setup,
    done: Vec<Done>,
    left_out: Vec<LeftOut>,
}

/// A step that is done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Done {
    #[serde(flatten)]
    step: StepName,
    /// Lines that the file of records has with it.
    records: usize,
    seconds: f64,
}

/// The steps that are done in a folder, whichever version fills it; none where there is none.
pub(super) fn done_in(folder: &Path) -> BTreeSet<StepName> {
    #[derive(Deserialize)]
    struct Steps {
        done: Vec<StepName>,
    }
    let text = fs::read_to_string(folder.join(STATE)).unwrap_or_default();
    serde_json::from_str(&text)
        .map_or_else(|_| BTreeSet::new(), |steps: Steps| steps.done.into_iter().collect())
}

/// A folder of results that is being filled.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    state: State,
    records: Vec<Record>,
}

impl Folder {
    /// Opens the folder, or makes it. What lies there of steps that were not finished is dropped.
    ///
    /// # Errors
    /// A sentence: when it holds something else, or can't be written.
    pub(super) fn open(path: &Path, setup: Setup) -> Result<Self, String> {
        let shown = path.display();
        fs::create_dir_all(path).map_err(|error| format!("cannot make the folder {shown}: {error}"))?;
        let state = match fs::read_to_string(path.join(STATE)) {
            Ok(text) => {
                let state: State = serde_json::from_str(&text).map_err(|_| {
                    format!("{shown} holds a {STATE} that this version can't read; choose another folder")
                })?;
                if let Some(other) = state.setup.difference(&setup) {
                    return Err(format!(
                        "{shown} holds results {other}; choose another folder, or remove it"
                    ));
                }
                state
            }
            Err(_) => {
                let mut files =
                    fs::read_dir(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
                if files.next().is_some() {
                    return Err(format!(
                        "{shown} holds other files; choose a folder that is empty or not there"
                    ));
                }
                State { setup, done: Vec::new(), left_out: Vec::new() }
            }
        };
        let whole = state.done.last().map_or(0, |done| done.records);
        let records = if whole == 0 {
            Vec::new()
        } else {
            record::read_first(&path.join(record::FILE), whole).ok_or_else(|| {
                format!("{shown} lacks records that its {STATE} counts; choose another folder")
            })?
        };
        let folder = Self { path: path.to_owned(), state, records };
        folder.rewrite().map_err(|error| format!("cannot write in {shown}: {error:#}"))?;
        Ok(folder)
    }

    pub(super) fn is_done(&self, step: &StepName) -> bool {
        self.time_of(step).is_some()
    }

    /// What a step took that is done.
    pub(super) fn time_of(&self, step: &StepName) -> Option<Duration> {
        let done = self.state.done.iter().find(|done| done.step == *step)?;
        // The file may say anything.
        Some(Duration::try_from_secs_f64(done.seconds).unwrap_or_default())
    }

    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    pub(super) fn left_out(&self) -> &[LeftOut] {
        &self.state.left_out
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Notes what was left out; of reasons for the same, the last: words of the kernel may name a process.
    pub(super) fn leave_out(&mut self, left_out: impl IntoIterator<Item = LeftOut>) {
        for new in left_out {
            self.state.left_out.retain(|one| (&one.bench, &one.what) != (&new.bench, &new.what));
            self.state.left_out.push(new);
        }
        self.state.left_out.sort();
    }

    /// Keeps what a step found.
    ///
    /// # Errors
    /// When it can't be written.
    pub(super) fn keep(&mut self, step: StepName, found: Vec<Record>, seconds: f64) -> anyhow::Result<()> {
        let mut text = Vec::new();
        for record in &found {
            serde_json::to_writer(&mut text, record).context("cannot write a record")?;
            text.push(b'\n');
        }
        let mut file = OpenOptions::new().append(true).open(self.path.join(record::FILE))?;
        file.write_all(&text)?;
        file.sync_all()?;
        self.records.extend(found);
        self.state.done.push(Done { step, records: self.records.len(), seconds });
        self.note()
    }

    /// Writes a file of the folder whole, or not at all.
    ///
    /// # Errors
    /// When it can't be written.
    pub(super) fn replace(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let unfinished = self.path.join(format!("{name}.unfinished"));
        let mut file = File::create(&unfinished)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&unfinished, self.path.join(name))?;
        Ok(())
    }

    /// Notes how far it came.
    pub(super) fn note(&self) -> anyhow::Result<()> {
        self.replace(STATE, &serde_json::to_vec_pretty(&self.state)?)
    }

    fn rewrite(&self) -> anyhow::Result<()> {
        let lines = self.records.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        let text: String = lines.into_iter().map(|line| line + "\n").collect();
        self.replace(record::FILE, text.as_bytes())?;
        self.note()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    fn setup(quick: bool) -> Setup {
        Setup {
            version: "1.2.3".to_owned(),
            commit: "unknown".to_owned(),
            quick,
            data_bytes: None,
            peers: Vec::new(),
            machine: Description::current(),
        }
    }

    fn step(repetition: u32) -> StepName {
        StepName { name: "faults/zipf".to_owned(), repetition }
    }

    #[test]
    fn what_was_kept_is_there_again_and_what_was_not_finished_is_dropped() {
        let scratch = tempfile::tempdir().unwrap();
        let mut folder = Folder::open(scratch.path(), setup(true)).unwrap();
        folder.keep(step(1), vec![record("zipf", "farmem", 1, 3.0)], 1.0).unwrap();
        let mut file = OpenOptions::new().append(true).open(scratch.path().join(record::FILE)).unwrap();
        let unfinished = serde_json::to_string(&record("zipf", "farmem", 2, 4.0)).unwrap();
        writeln!(file, "{unfinished}").unwrap();

        let folder = Folder::open(scratch.path(), setup(true)).unwrap();

        assert!(folder.is_done(&step(1)) && !folder.is_done(&step(2)));
        assert_eq!(folder.time_of(&step(1)), Some(Duration::from_secs(1)));
        assert_eq!(done_in(scratch.path()), BTreeSet::from([step(1)]));
        assert_eq!(folder.records(), [record("zipf", "farmem", 1, 3.0)]);
        assert_eq!(record::read(scratch.path()).unwrap().len(), 1);
    }

    #[test]
    fn a_line_that_was_cut_off_is_dropped() {
        let scratch = tempfile::tempdir().unwrap();
        let mut folder = Folder::open(scratch.path(), setup(true)).unwrap();
        folder.keep(step(1), vec![record("zipf", "farmem", 1, 3.0)], 1.0).unwrap();
        let mut file = OpenOptions::new().append(true).open(scratch.path().join(record::FILE)).unwrap();
        write!(file, "{{\"bench\":").unwrap();

        let folder = Folder::open(scratch.path(), setup(true)).unwrap();

        assert_eq!(folder.records().len(), 1);
    }

    #[test]
    fn what_is_left_out_again_and_again_is_named_once() {
        let scratch = tempfile::tempdir().unwrap();
        let mut folder = Folder::open(scratch.path(), setup(true)).unwrap();
        let one =
            |reason: &str| LeftOut { bench: "faults".into(), what: "zswap".into(), reason: reason.into() };
        folder.leave_out([one("process 1"), one("process 2")]);
        assert_eq!(folder.left_out(), [one("process 2")]);
    }

    #[test]
    fn results_of_another_kind_are_not_mixed() {
        let scratch = tempfile::tempdir().unwrap();
        Folder::open(scratch.path(), setup(true)).unwrap();
        let refused = Folder::open(scratch.path(), setup(false)).unwrap_err();
        assert!(refused.contains("with --quick"), "{refused}");
    }

    #[test]
    fn a_folder_with_other_files_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("letter"), "").unwrap();
        assert!(Folder::open(scratch.path(), setup(true)).unwrap_err().contains("other files"));
    }
}
