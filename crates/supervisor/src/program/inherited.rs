//! Descriptors that whoever called has left open for the program. A pipe that the supervisor has open as well
//! doesn't end with the program, nor does one that a pager was started with.

use std::path::Path;

use farmem_sys::descriptors;

const STANDARD_ERROR: i32 = 2;

/// Their numbers.
#[derive(Debug)]
pub(crate) struct Inherited(Vec<i32>);

impl Inherited {
    /// Those that this process has now. What it has opened itself is marked to be closed when it runs another
    /// program, and what it has been given is not.
    pub(crate) fn now() -> Self {
        let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Self(numbers.filter(|&it| it > STANDARD_ERROR && descriptors::outlives_exec(it)).collect())
    }

    /// Closes them, in the supervisor, once the program has its own. One that `kept` names, as shells do for
    /// `>(COMMAND)`, stays open here, and in no other process.
    pub(crate) fn close(self, kept: Option<&Path>) {
        let kept = kept.and_then(named);
        for number in self.0 {
            if Some(number) == kept {
                descriptors::close_on_exec(number);
            } else {
                descriptors::close_given(number);
            }
        }
    }
}

/// The descriptor that is meant by such a path.
fn named(path: &Path) -> Option<i32> {
    let folders = ["/dev/fd", "/proc/self/fd"];
    folders.iter().find_map(|folder| path.strip_prefix(folder).ok()?.to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_descriptors_name_them() {
        assert_eq!(named(Path::new("/dev/fd/63")), Some(63));
        assert_eq!(named(Path::new("/proc/self/fd/4")), Some(4));
        for other in ["/dev/fd", "/dev/fd/63/64", "/dev/null", "fd/63"] {
            assert_eq!(named(Path::new(other)), None);
        }
    }
}
