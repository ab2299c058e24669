//! Changes of a cluster file: a new file takes the name of the old one, so that whoever reads it finds one of
//! the two whole.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::cluster::source::read_file;

/// How long others may hold the file.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// Makes a change of a file. Whether it is another text now. Two of these at once take turns; an editor that
/// writes at the same moment is seen, unless it does so between the last look and the new name.
///
/// # Errors
/// The file can't be read or replaced, or the change not be made; a sentence.
pub(crate) fn edit(path: &Path, change: &dyn Fn(&str) -> Result<String, String>) -> Result<bool, String> {
    // A link stays one: what it leads to is replaced.
    let path = fs::canonicalize(path).map_err(|error| error.to_string())?;
    if !fs::metadata(&path).is_ok_and(|kind| kind.is_file()) {
        return Err("it is not a file".to_owned());
    }
    let end = Instant::now() + PATIENCE;
    loop {
        let file = locked(&path, end)?;
        let text = read_file(&path)?;
        let changed = change(&text)?;
        if changed == text {
            return Ok(false);
        }
        let new = write_beside(&path, &file, &changed)
            .map_err(|error| format!("a new file can't be written next to it: {error}; it is as it was"))?;
        if read_file(&path).as_ref() == Ok(&text) {
            return replace(&new, &path).map(|()| true);
        }
        let _ = fs::remove_file(&new);
        if Instant::now() > end {
            return Err("others change it all the time; try again".to_owned());
        }
    }
}

/// The file that has the name, when nobody else changes it.
fn locked(path: &Path, end: Instant) -> Result<File, String> {
    let in_words = |error: io::Error| error.to_string();
    loop {
        let file = File::open(path).map_err(in_words)?;
        let is_locked = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        // A process that waited may hold a file that has lost its name meanwhile.
        let (held, named) = (file.metadata().map_err(in_words)?, fs::metadata(path).map_err(in_words)?);
        if is_locked && (held.dev(), held.ino()) == (named.dev(), named.ino()) {
            return Ok(file);
        }
        if Instant::now() > end {
            return Err("somebody else holds a lock on it; try again".to_owned());
        }
        thread::sleep(PAUSE);
    }
}

/// A new file with that text, which belongs to whom the old one belongs.
fn write_beside(path: &Path, old: &File, text: &str) -> io::Result<PathBuf> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let write = || {
        let old = old.metadata()?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        if (old.uid(), old.gid()) != (file.metadata()?.uid(), file.metadata()?.gid()) {
            std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map(|()| new.clone()).inspect_err(|error| {
        if error.kind() != io::ErrorKind::AlreadyExists {
            let _ = fs::remove_file(&new);
        }
    })
}

fn replace(new: &Path, path: &Path) -> Result<(), String> {
    fs::rename(new, path).map_err(|error| {
        let _ = fs::remove_file(new);
        format!("a new file can't take its name: {error}; it is as it was")
    })?;
    // The name is there; whether it survives a crash of the machine as well is all that this is for.
    if let Some(Ok(folder)) = path.parent().map(File::open) {
        let _ = folder.sync_all();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("farmem-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_replaced_with_its_mode_through_a_link_and_nothing_is_left_beside_it() {
        let folder = Folder::new("replaced");
        let (file, link) = (folder.0.join("cluster.toml"), folder.0.join("link"));
        fs::write(&file, "one").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink("cluster.toml", &link).unwrap();
        assert_eq!(edit(&link, &|text| Ok(format!("{text} and two"))), Ok(true));
        assert_eq!(edit(&link, &|text| Ok(text.to_owned())), Ok(false));
        assert_eq!(edit(&link, &|_| Err("no".to_owned())), Err("no".to_owned()));
        assert_eq!(fs::read_to_string(&file).unwrap(), "one and two");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 2);
    }

    #[test]
    fn of_many_changes_at_once_none_is_lost() {
        let folder = Folder::new("at-once");
        let file = folder.0.join("cluster.toml");
        fs::write(&file, "").unwrap();
        thread::scope(|scope| {
            for letter in "abcdefgh".chars() {
                let file = &file;
                scope.spawn(move || edit(file, &|text| Ok(format!("{text}{letter}"))).unwrap());
            }
        });
        let mut letters: Vec<char> = fs::read_to_string(&file).unwrap().chars().collect();
        letters.sort_unstable();
        assert_eq!(letters.into_iter().collect::<String>(), "abcdefgh");
    }

    #[test]
    fn what_is_written_by_others_between_two_looks_is_kept() {
        let folder = Folder::new("between");
        let file = folder.0.join("cluster.toml");
        fs::write(&file, "one").unwrap();
        let change = |text: &str| {
            if text == "one" {
                fs::write(&file, "another").unwrap();
            }
            Ok(format!("{text} and more"))
        };
        assert_eq!(edit(&file, &change), Ok(true));
        assert_eq!(fs::read_to_string(&file).unwrap(), "another and more");
    }

    #[test]
    fn what_is_no_file_is_refused() {
        assert!(
            edit(Path::new("/dev/null"), &|text| Ok(text.to_owned())).unwrap_err().contains("not a file")
        );
        assert!(edit(Path::new("/nowhere"), &|text| Ok(text.to_owned())).is_err());
    }
}
