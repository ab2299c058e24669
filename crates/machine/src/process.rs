//! What the kernel says about any process, in `/proc`, whatever bytes are in it: a program names itself, its
//! threads and its files as it likes, and not always in UTF-8.
//!
//! `None` stands for a process that has ended, or of which this user may not know.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// One process, until its number may be another's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// Its number.
    pub number: u32,
    /// When it began, in the kernel's ticks since it started.
    pub began: u64,
}

/// Which process has that number now.
pub fn identity(number: u32) -> Option<Identity> {
    let [began] = figures(number, [22])?;
    Some(Identity { number, began })
}

/// The same of one that has not ended. Of one that has, and whose parent has not asked yet how, the kernel
/// tells as of one of which only the first thread has ended, but for the number of threads.
pub fn living(number: u32) -> Option<Identity> {
    let text = line(number)?;
    let [threads, began] = figures_in(&text, [20, 22])?;
    let has_ended = after_name(&text)?.starts_with(['Z', 'X']) && threads <= 1;
    (!has_ended).then_some(Identity { number, began })
}

/// Some of the numbers that the kernel gives for a process on one line (`stat`), counted as its documentation
/// does, from 1. `None` where one of them is no number.
pub fn figures<const COUNT: usize>(number: u32, places: [usize; COUNT]) -> Option<[u64; COUNT]> {
    figures_in(&line(number)?, places)
}

fn line(number: u32) -> Option<String> {
    short(&format!("/proc/{number}/stat"))
}

/// The same as [`text`], of a file that the kernel gives as a whole: `stat`, `statm`, `comm`. To ask for its
/// size before, and for more after, would take twice as long, which is felt where there are hundreds of
/// processes.
pub fn short(path: &str) -> Option<String> {
    /// More than any of them has.
    const MOST_BYTES: usize = 4096;
    let mut text = [0; MOST_BYTES];
    let length = File::open(path).and_then(|mut file| file.read(&mut text)).ok()?;
    Some(String::from_utf8_lossy(&text[..length]).into_owned())
}

/// One of the kernel's files about a process. It cuts names off in the midst of a letter.
pub fn text(path: impl AsRef<Path>) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

/// The name of pagers' first threads.
pub const PAGER_NAME: &str = "farmem-pager";
/// The name of puppets.
pub const PUPPET_NAME: &str = "farmem-puppet";
/// The names of Farmem's own processes, which may run another program's file: pagers and puppets.
pub const OWN_NAMES: [&str; 2] = [PAGER_NAME, PUPPET_NAME];

/// Whether the kernel knows that process by one of these names.
pub fn is_named(number: u32, names: &[&str]) -> bool {
    short(&format!("/proc/{number}/comm")).is_some_and(|name| names.contains(&name.trim_end()))
}

/// What follows the name, which may hold anything: it begins with the third field.
pub fn after_name(line: &str) -> Option<&str> {
    line.rsplit_once(") ").map(|(_, rest)| rest)
}

fn figures_in<const COUNT: usize>(line: &str, places: [usize; COUNT]) -> Option<[u64; COUNT]> {
    let fields: Vec<&str> = after_name(line)?.split(' ').collect();
    let mut figures = [0; COUNT];
    for (figure, place) in figures.iter_mut().zip(places) {
        *figure = fields.get(place.checked_sub(3)?)?.parse().ok()?;
    }
    Some(figures)
}

/// The children of a process, in the order in which each of its threads has made them. Nothing where the
/// kernel doesn't say.
pub fn children(number: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{number}/task")) else { return Vec::new() };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_file_is_read_whole_and_one_that_is_not_there_is_none() {
        let own = std::process::id();
        let text = short(&format!("/proc/{own}/stat")).expect("it runs");
        assert!(text.starts_with(&own.to_string()) && text.ends_with('\n'), "{text}");
        assert_eq!(short("/proc/0/stat"), None);
    }
}
