//! Processes that have no pager yet, each looked at by itself while memory may soon be short.
//!
//! A look at the whole family walks through `/proc`. One at a process that is known costs a few microseconds,
//! so it can come every millisecond.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use farmem_page::PageCount;

/// Files that are kept open, one for each: whoever has more processes than that is looked at as a whole only.
const MOST: usize = 256;
/// How long a process that has begun another program is taken for one without a pager: by then the pager of
/// the program before has left.
const BEGINNING: Duration = Duration::from_millis(100);

/// One of them.
#[derive(Debug)]
struct Newcomer {
    /// The kernel's figures of its memory.
    file: File,
    resident: PageCount,
    /// Until then the pager that is known is that of the program before.
    begins_until: Option<Instant>,
}

/// Those that are known.
#[derive(Debug, Default)]
pub(crate) struct Newcomers {
    known: HashMap<u32, Newcomer>,
}

impl Newcomers {
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// These have no pager, as far as a look at the family has found.
    pub(crate) fn replace(&mut self, numbers: impl Iterator<Item = u32>) {
        let numbers: Vec<u32> = numbers.collect();
        let now = Instant::now();
        self.known.retain(|number, newcomer| {
            numbers.contains(number) || newcomer.begins_until.is_some_and(|until| now < until)
        });
        numbers.into_iter().for_each(|number| self.insert(number, None));
    }

    /// That process has just begun another program.
    pub(crate) fn begins(&mut self, number: u32) {
        self.known.remove(&number);
        self.insert(number, Some(Instant::now() + BEGINNING));
    }

    fn insert(&mut self, number: u32, begins_until: Option<Instant>) {
        if self.known.len() < MOST
            && !self.known.contains_key(&number)
            && let Ok(file) = File::open(format!("/proc/{number}/statm"))
        {
            self.known.insert(number, Newcomer { file, resident: PageCount::ZERO, begins_until });
        }
    }

    /// What each of them has now; those that have ended are forgotten, and those that `has_pager` says,
    /// unless they have just begun another program.
    pub(crate) fn look(&mut self, has_pager: impl Fn(u32) -> bool) -> Vec<(u32, PageCount)> {
        let now = Instant::now();
        self.known.retain(|&number, newcomer| {
            let begins = newcomer.begins_until.is_some_and(|until| now < until);
            let resident = anonymous(&newcomer.file);
            newcomer.resident = resident.unwrap_or(PageCount::ZERO);
            resident.is_some() && (begins || !has_pager(number))
        });
        self.known.iter().map(|(&number, newcomer)| (number, newcomer.resident)).collect()
    }

    /// What those have that have begun another program, beyond what `told` says of each: of a forked child
    /// nobody knows how much it shares with a process that has a pager.
    pub(crate) fn own(&self, told: impl Fn(u32) -> PageCount) -> PageCount {
        let begun = self.known.iter().filter(|(_, newcomer)| newcomer.begins_until.is_some());
        let beyond = begun.map(|(&number, newcomer)| newcomer.resident.saturating_sub(told(number)).get());
        PageCount::new(beyond.sum())
    }
}

/// Resident pages that belong to no file; `None` of a process that has ended.
fn anonymous(file: &File) -> Option<PageCount> {
    let mut text = [0; 128];
    let length = file.read_at(&mut text, 0).ok()?;
    anonymous_in(std::str::from_utf8(&text[..length]).ok()?)
}

/// The same, of what the kernel writes there.
pub(super) fn anonymous_in(text: &str) -> Option<PageCount> {
    let mut fields = text.split(' ').skip(1).map_while(|field| field.parse::<u64>().ok());
    Some(PageCount::new(fields.next()?.saturating_sub(fields.next()?)))
}

/// The others: of files, and of what may be shared.
pub(super) fn others_in(text: &str) -> Option<PageCount> {
    Some(PageCount::new(text.split(' ').nth(2)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(newcomers: &mut Newcomers, has_pager: impl Fn(u32) -> bool) -> Vec<u32> {
        newcomers.look(has_pager).into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn who_gets_a_pager_or_ends_is_no_newcomer_any_more() {
        let mut child = std::process::Command::new("sleep").arg("20").spawn().expect("a program");
        let own = std::process::id();
        let mut newcomers = Newcomers::default();
        newcomers.replace([own, child.id(), u32::MAX].into_iter());

        let found = newcomers.look(|_| false);
        assert_eq!(found.len(), 2);
        assert!(found.iter().any(|&(number, resident)| number == own && resident > PageCount::ZERO));

        child.kill().expect("it lives");
        child.wait().expect("it ends");
        assert_eq!(numbers(&mut newcomers, |_| false), [own]);
        assert_eq!(numbers(&mut newcomers, |number| number == own), Vec::<u32>::new());
    }

    #[test]
    fn the_pager_of_the_program_before_counts_for_none() {
        let own = std::process::id();
        let mut newcomers = Newcomers::default();
        newcomers.begins(own);
        assert_eq!(numbers(&mut newcomers, |_| true), [own]);
        newcomers.replace(std::iter::empty());
        assert_eq!(numbers(&mut newcomers, |_| true), [own]);
    }

    #[test]
    fn what_the_pager_of_a_new_program_tells_counts_once() {
        let own = std::process::id();
        let mut newcomers = Newcomers::default();
        newcomers.begins(own);
        let [(_, resident)] = newcomers.look(|_| true)[..] else { panic!("there is one") };
        assert_eq!(newcomers.own(|_| PageCount::ZERO), resident);
        assert_eq!(
            newcomers.own(|number| PageCount::new(u64::from(number == own))).get(),
            resident.get() - 1
        );
        // The pager of the program before.
        assert_eq!(newcomers.own(|_| PageCount::new(u64::MAX)), PageCount::ZERO);
    }

    #[test]
    fn pages_of_files_do_not_count() {
        assert_eq!(anonymous_in("9000 700 200 5 0 600 0\n"), Some(PageCount::new(500)));
        assert_eq!(others_in("9000 700 200 5 0 600 0\n"), Some(PageCount::new(200)));
        assert_eq!(anonymous_in("9000"), None);
    }
}
