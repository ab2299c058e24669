//! The processes of a control group, and of those below it, in either version of the kernel's interface.

use std::fs;
use std::path::{Path, PathBuf};

/// Groups below each other that are looked at: the kernel has no bound, and a loop is impossible.
const DEEPEST: usize = 64;

/// A control group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    folder: PathBuf,
    /// This program's file: what runs it there is Farmem's own.
    own: Option<PathBuf>,
}

impl Group {
    pub(crate) fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), own: fs::read_link("/proc/self/exe").ok() }
    }

    /// The numbers of its processes, without those of the kernel's and Farmem's own.
    pub(crate) fn members(&self) -> Vec<u32> {
        let mut members = Vec::new();
        collect(&self.folder, DEEPEST, &mut members);
        members.retain(|number| {
            fs::read_link(format!("/proc/{number}/exe")).is_ok_and(|file| self.own.as_ref() != Some(&file))
        });
        members.sort_unstable();
        members.dedup();
        members
    }
}

/// The numbers of the processes in the control group of that folder and in those below it, without those of
/// the kernel's and Farmem's own.
pub fn members(folder: &Path) -> Vec<u32> {
    Group::at(folder).members()
}

fn collect(folder: &Path, left: usize, members: &mut Vec<u32>) {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    members.extend(text.lines().filter_map(|line| line.trim().parse::<u32>().ok()));
    let Some(left) = left.checked_sub(1) else { return };
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), left, members);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_below_count_and_this_program_does_not() {
        let mut child = std::process::Command::new("sleep").arg("20").spawn().expect("a program");
        let folder = std::env::temp_dir().join(format!("farmem-group-{}", std::process::id()));
        fs::create_dir_all(folder.join("below")).expect("a folder");
        fs::write(folder.join("cgroup.procs"), format!("{}\n", std::process::id())).expect("a file");
        fs::write(folder.join("below/cgroup.procs"), format!("0\n{}\n", child.id())).expect("a file");

        let group = Group::at(&folder);
        let began = std::time::Instant::now();
        // Until it runs its program the child is a copy of this one.
        while group.members() != [child.id()] {
            assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", group.members());
        }

        fs::remove_dir_all(&folder).expect("it is the test's own");
        child.kill().expect("it lives");
        child.wait().expect("it ends");
    }
}
