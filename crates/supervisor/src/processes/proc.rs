//! What the kernel says about any process, in `/proc`.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// One process, until its number may be another's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Identity {
    pub(crate) number: u32,
    /// In the kernel's ticks since it started.
    pub(crate) began: u64,
}

pub(crate) fn identity(number: u32) -> Option<Identity> {
    let [began] = figures(number, [22])?;
    Some(Identity { number, began })
}

/// The same of one that has not ended. Of one that has, and whose parent has not asked yet how, the kernel
/// tells as of one of which only the first thread has ended, but for the number of threads.
pub(crate) fn living(number: u32) -> Option<Identity> {
    let text = line(number)?;
    let [threads, began] = figures_in(&text, [20, 22])?;
    let has_ended = after_name(&text)?.starts_with(['Z', 'X']) && threads <= 1;
    (!has_ended).then_some(Identity { number, began })
}

/// Some of the numbers that the kernel gives for a process on one line, counted as its documentation does,
/// from 1.
pub(crate) fn figures<const COUNT: usize>(number: u32, places: [usize; COUNT]) -> Option<[u64; COUNT]> {
    figures_in(&line(number)?, places)
}

fn line(number: u32) -> Option<String> {
    short(&format!("/proc/{number}/stat"))
}

/// The same as [`text`], of a file that the kernel gives as a whole: `stat`, `statm`, `comm`. To ask for its
/// size before, and for more after, would take twice as long, which is felt where there are hundreds of
/// processes.
pub(crate) fn short(path: &str) -> Option<String> {
    /// More than any of them has.
    const MOST_BYTES: usize = 4096;
    let mut text = [0; MOST_BYTES];
    let length = File::open(path).and_then(|mut file| file.read(&mut text)).ok()?;
    Some(String::from_utf8_lossy(&text[..length]).into_owned())
}

/// One of the kernel's files about a process, whatever bytes are in it: names are a program's choice, and the
/// kernel cuts them off in the midst of a letter.
pub(crate) fn text(path: impl AsRef<Path>) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

/// What follows the name, which may hold anything: it begins with the third field.
fn after_name(line: &str) -> Option<&str> {
    line.rsplit_once(") ").map(|(_, rest)| rest)
}

fn figures_in<const COUNT: usize>(line: &str, places: [usize; COUNT]) -> Option<[u64; COUNT]> {
    let fields: Vec<&str> = after_name(line)?.split(' ').collect();
    let mut figures = [0; COUNT];
    for (figure, place) in figures.iter_mut().zip(places) {
        *figure = fields.get(place - 3)?.parse().ok()?;
    }
    Some(figures)
}

/// Those that any of its threads has made.
pub(crate) fn children(number: u32) -> Vec<u32> {
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
