//! Where it is said which nodes there are, and how changes of that are noticed.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use farmem_remote::Edit;

use crate::cluster::etcd::{EtcdFiles, EtcdKey};
use crate::cluster::file;

/// A description of a cluster is no longer: a machine takes a hundred bytes.
pub(crate) const MOST_BYTES: u64 = 4 << 20;

/// Where it is said.
#[derive(Clone, Debug)]
pub enum ClusterSource {
    /// In a file.
    File(PathBuf),
    /// Under a key of etcd.
    Etcd(EtcdKey),
}

const ETCD: &str = "etcd://";
const ETCD_BY_TLS: &str = "etcds://";

impl FromStr for ClusterSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rest, is_secure) = match (text.strip_prefix(ETCD), text.strip_prefix(ETCD_BY_TLS)) {
            (Some(rest), _) => (rest, false),
            (None, Some(rest)) => (rest, true),
            (None, None) if text.is_empty() => return Err("name a file".to_owned()),
            (None, None) => return Ok(Self::File(text.into())),
        };
        let wanted = || format!("write {ETCD}HOST:PORT[,…]/KEY, or {ETCD_BY_TLS} for TLS");
        let (endpoints, key) = rest.split_once('/').ok_or_else(wanted)?;
        let is_endpoint = |endpoint: &str| {
            endpoint
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        if key.is_empty() || !endpoints.split(',').all(is_endpoint) {
            return Err(wanted());
        }
        let endpoints = endpoints.split(',').map(str::to_owned).collect();
        Ok(Self::Etcd(EtcdKey::new(endpoints, key.to_owned(), is_secure)))
    }
}

impl fmt::Display for ClusterSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(formatter),
            Self::Etcd(EtcdKey { endpoints, key, is_secure, .. }) => {
                let scheme = if *is_secure { ETCD_BY_TLS } else { ETCD };
                write!(formatter, "{scheme}{}/{key}", endpoints.join(","))
            }
        }
    }
}

impl ClusterSource {
    /// Reached by what is in these files.
    ///
    /// # Errors
    /// One of them can't be used, is missing, or is not for such a source; a sentence.
    pub fn with_files(self, files: &EtcdFiles) -> Result<Self, String> {
        match self {
            Self::File(_) if !files.is_empty() => {
                Err("certificates and passwords are for etcd; a file needs none".to_owned())
            }
            Self::File(path) => Ok(Self::File(path)),
            Self::Etcd(key) => key.with_files(files).map(Self::Etcd),
        }
    }

    /// What it says now.
    ///
    /// # Errors
    /// Why it can't be read, in a few words.
    pub fn read(&self) -> Result<String, String> {
        match self {
            Self::File(path) => read_file(path),
            Self::Etcd(key) => key.read(),
        }
    }

    /// Makes a change of what it says by then. What others write meanwhile is not lost. Whether it says
    /// something else now.
    ///
    /// # Errors
    /// The change can't be made; a sentence.
    pub fn edit(&self, edit: &Edit) -> Result<bool, String> {
        let change = |text: &str| edit.apply(text).map_err(|error| error.to_string());
        match self {
            Self::File(path) => file::edit(path, &change),
            Self::Etcd(key) => key.edit(&change),
        }
    }

    /// Begins to follow it.
    pub(crate) fn open(&self) -> Box<dyn Source> {
        match self {
            Self::File(_) => Box::new(Steady::new(self.clone())),
            Self::Etcd(key) => Box::new(key.clone().follow()),
        }
    }
}

pub(crate) fn read_file(path: &Path) -> Result<String, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    // Not more, whatever it is: some files have no end.
    file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MOST_BYTES {
        return Err(format!("it is larger than {} MiB", MOST_BYTES >> 20));
    }
    Ok(text)
}

/// What can be looked at for changes.
pub(crate) trait Source: Send {
    /// What it says by now, or why it can't be read; `None` when nothing has changed. Doesn't wait.
    fn look(&mut self) -> Option<Result<String, String>>;
}

/// A source that is read at each look. A change counts when it is seen twice: an editor may be in the middle
/// of writing.
///
/// Not by inotify: what a file is replaced by, renamed to, or linked to (as in mounted configurations) then
/// needs a watch each, and network file systems have none at all. Reading a few kilobytes twice a second
/// costs nothing.
struct Steady {
    source: ClusterSource,
    seen: Option<Result<String, String>>,
    told: Option<Result<String, String>>,
}

impl Steady {
    const fn new(source: ClusterSource) -> Self {
        Self { source, seen: None, told: None }
    }
}

impl Source for Steady {
    fn look(&mut self) -> Option<Result<String, String>> {
        let now = Some(self.source.read());
        if now != self.seen {
            self.seen = now;
            return None;
        }
        if now == self.told {
            return None;
        }
        self.told.clone_from(&now);
        now
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_source_is_written_as_it_is_read() {
        for text in ["cluster.toml", "etcd://one:2379,[::1]:2379/farmem/cluster", "etcds://one:2379/key"] {
            assert_eq!(text.parse::<ClusterSource>().map(|source| source.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "etcd://", "etcd://one:2379", "etcd://one:2379/", "etcd://one/key", "etcd://:1/key"]
        {
            assert!(text.parse::<ClusterSource>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_has_no_end_is_not_read_to_it() {
        let read = |path: &str| ClusterSource::File(path.into()).read();
        assert!(read("/dev/zero").unwrap_err().contains("larger than"));
    }

    #[test]
    fn a_change_of_a_file_is_told_once_when_it_has_been_seen_twice() {
        let path = std::env::temp_dir().join(format!("farmem-cluster-{}", std::process::id()));
        let mut source = Steady::new(ClusterSource::File(path.clone()));
        assert_eq!(source.look(), None);
        assert!(matches!(source.look(), Some(Err(_))), "there is no file yet");
        assert_eq!(source.look(), None, "that is known");
        for text in ["one", "two", "one"] {
            // As editors do it: another file takes its name.
            let other = path.with_extension("new");
            fs::write(&other, text).unwrap();
            fs::rename(&other, &path).unwrap();
            assert_eq!(source.look(), None, "{text} may not be whole yet");
            assert_eq!(source.look(), Some(Ok(text.to_owned())));
            assert_eq!(source.look(), None);
        }
        fs::write(&path, "half").unwrap();
        assert_eq!(source.look(), None);
        fs::write(&path, "one").unwrap();
        assert_eq!((source.look(), source.look()), (None, None), "it is what it was");
        fs::remove_file(&path).unwrap();
    }
}
