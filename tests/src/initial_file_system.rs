//! A guest's initial file system, in the format that Linux unpacks at its start (`cpio`, "newc": the kernel's
//! `Documentation/driver-api/early-userspace/buffer-format.rst`).

use std::collections::BTreeSet;
use std::path::Path;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const END: &str = "TRAILER!!!";

/// Files and their directories, in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct InitialFileSystem {
    archive: Vec<u8>,
    directories: BTreeSet<String>,
    members: u32,
}

impl InitialFileSystem {
    /// Adds a copy of `source` at `path`, below the root, as a program, and the directories that lead there.
    ///
    /// # Panics
    /// When `source` can't be read.
    pub(crate) fn add(&mut self, path: &str, source: &Path) {
        let path = path.trim_start_matches('/');
        for (end, _) in path.match_indices('/') {
            if self.directories.insert(path[..end].to_owned()) {
                self.member(&path[..end], DIRECTORY, &[]);
            }
        }
        let bytes = std::fs::read(source).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
        self.member(path, PROGRAM, &bytes);
    }

    /// The whole archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.member(END, 0, &[]);
        self.archive
    }

    fn member(&mut self, path: &str, mode: u32, bytes: &[u8]) {
        self.members += 1;
        let length = |of: usize| u32::try_from(of).expect("a file of less than 4 GiB");
        // Number, mode, owner, group, links, time, length, four numbers of devices, length of the name,
        // checksum.
        let fields =
            [self.members, mode, 0, 0, 1, 0, length(bytes.len()), 0, 0, 0, 0, length(path.len() + 1), 0];
        self.archive.extend_from_slice(b"070701");
        for field in fields {
            self.archive.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.archive.extend_from_slice(path.as_bytes());
        self.archive.push(0);
        self.align();
        self.archive.extend_from_slice(bytes);
        self.align();
    }

    fn align(&mut self) {
        self.archive.resize(self.archive.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_once_and_before_what_is_in_them() {
        let scratch = crate::scratch::Scratch::new();
        std::fs::write(scratch.file("source"), "12345").expect("the test's own folder");
        let mut files = InitialFileSystem::default();
        files.add("/a/b/first", &scratch.file("source"));
        files.add("a/second", &scratch.file("source"));

        let archive = String::from_utf8(files.finish()).expect("nothing but text was added");

        let names: Vec<&str> = archive
            .split("070701")
            .skip(1)
            .map(|member| member[104..].split('\0').next().expect("a name"))
            .collect();
        assert_eq!(names, ["a", "a/b", "a/b/first", "a/second", END]);
        assert_eq!(archive.matches("12345").count(), 2);
        assert!(archive.len().is_multiple_of(4));
    }
}
