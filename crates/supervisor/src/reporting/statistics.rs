//! The file that `--stats` names. It is written when the program has ended, and once more when the last
//! process that the program has left behind has gone.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};

use farmem_client::Report;

/// The file.
pub(super) struct StatisticsFile {
    path: PathBuf,
    written: Option<Written>,
}

/// What tells a file that was written here from one that somebody has written since.
#[derive(PartialEq, Eq)]
struct Written {
    device: u64,
    inode: u64,
    modified: Option<SystemTime>,
    length_bytes: u64,
}

impl Written {
    fn of(file: &Metadata) -> Option<Self> {
        file.is_file().then(|| Self {
            device: file.dev(),
            inode: file.ino(),
            modified: file.modified().ok(),
            length_bytes: file.len(),
        })
    }
}

impl StatisticsFile {
    /// That of this path, which holds whatever becomes the working directory.
    pub(super) fn at(path: &Path) -> Self {
        Self { path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()), written: None }
    }

    /// Writes the report.
    ///
    /// # Errors
    /// It can't be written there.
    pub(super) fn write(&mut self, report: &Report) -> Result<()> {
        let text = serde_json::to_string_pretty(report)? + "\n";
        fs::write(&self.path, text)
            .with_context(|| format!("cannot write --stats {}", self.path.display()))?;
        self.written = fs::metadata(&self.path).ok().as_ref().and_then(Written::of);
        Ok(())
    }

    /// Writes a later report, unless somebody else has written there or taken the file away.
    ///
    /// # Errors
    /// It can't be written any more.
    pub(super) fn write_anew(&mut self, report: &Report) -> Result<()> {
        let now = fs::metadata(&self.path).ok().as_ref().and_then(Written::of);
        if now.is_some() && now == self.written { self.write(report) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &str) -> Report {
        Report { name: name.to_owned(), ..Report::default() }
    }

    fn in_file(path: &Path) -> String {
        serde_json::from_slice::<Report>(&fs::read(path).unwrap()).unwrap().name
    }

    #[test]
    fn a_later_report_replaces_the_own_one_and_no_other() {
        let folder = std::env::temp_dir().join(format!("farmem-statistics-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("file");
        let mut file = StatisticsFile::at(&path);

        file.write(&report("first")).unwrap();
        file.write_anew(&report("second")).unwrap();
        assert_eq!(in_file(&path), "second");

        fs::write(&path, serde_json::to_string(&report("another run's")).unwrap()).unwrap();
        file.write_anew(&report("third")).unwrap();
        assert_eq!(in_file(&path), "another run's");

        fs::remove_file(&path).unwrap();
        file.write_anew(&report("fourth")).unwrap();
        assert!(!path.exists());
        fs::remove_dir(&folder).unwrap();
    }
}
