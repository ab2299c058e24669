//! Why an application is slow, as far as paging is to blame: its waiting time by cause, and what would help.

use farmem_page::mebibytes_up;
use serde::Serialize;

use crate::report::run::Report;

/// What threads wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Pages in the pool: the way of a fault through kernel and pager.
    Pool,
    /// Pages in the pool: copying, unpacking and checking them. From a sample.
    Unpacking,
    /// Pages on memory nodes.
    Node,
    /// Pages on memory nodes: their turn at a link, which is shared with other transfers of the application
    /// and of others, or limited.
    Turn,
    /// Pages on disk.
    Disk,
    /// Other pages must leave first.
    Room,
    /// Pages that hold only zeros, most of them touched for the first time.
    NewMemory,
    /// Pages on their way out, writes to memory that a fork has left shared, and what could not be served at
    /// once.
    Other,
}

impl Cause {
    /// What it is, for a person.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Pool => "fetching pages from the pool",
            Self::Unpacking => "unpacking them",
            Self::Node => "fetching pages from memory nodes",
            Self::Turn => "waiting for a turn at the link to a memory node",
            Self::Disk => "fetching pages from disk",
            Self::Room => "waiting until other pages had left",
            Self::NewMemory => "touching memory for the first time",
            Self::Other => "anything else",
        }
    }
}

/// A cause's part.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Part {
    /// What was waited for.
    pub cause: Cause,
    /// How long, summed over threads.
    pub seconds: f64,
    /// How many pages were waited for, where that is counted.
    pub pages: Option<u64>,
}

/// The waiting time of an application.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Explanation {
    /// The application's name.
    pub name: String,
    /// The program's process.
    pub process: u32,
    /// The time that was looked at.
    pub seconds: f64,
    /// The time that threads waited for pages in it, summed over them.
    pub stall_seconds: f64,
    /// Of it, the time for pages that processes share.
    pub shared_stall_seconds: f64,
    /// That, by cause, longest first; causes that took no time are left out.
    pub causes: Vec<Part>,
    /// The local budget.
    pub budget_bytes: u64,
    /// The local memory with which half of the pages that came back would have stayed, as an estimate; 0 when
    /// nothing can be said.
    pub local_for_half_bytes: u64,
    /// The same for nine tenths of them.
    pub local_for_most_bytes: u64,
    /// What would help, in a sentence or two.
    pub advice: String,
}

/// A smaller part of the time is not worth a thought.
const NEGLIGIBLE: f64 = 0.01;
/// A cause with so large a part of the waiting is the one to do something about.
const DOMINANT: f64 = 0.4;
/// A pool that is used for more than this part moves slabs out of memory, or soon refuses pages.
const FULL: f64 = 0.8;

impl Explanation {
    /// From the application's start.
    pub fn since_start(now: &Report) -> Self {
        Self::between(&Report { process: now.process, ..Report::default() }, now)
    }

    /// From `before` to `now`; from the start, where these are not of the same run.
    pub fn between(before: &Report, now: &Report) -> Self {
        let before = if before.process == now.process {
            before
        } else {
            &Report { process: now.process, ..Report::default() }
        };
        let happened = Happened { before, now };
        let seconds = now.wall_seconds - before.wall_seconds;
        let stall_seconds = happened.seconds("stall_ns");
        let mut causes = happened.causes(stall_seconds);
        causes.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
        let mut explanation = Self {
            name: now.name.clone(),
            process: now.process,
            seconds,
            stall_seconds,
            // Another pager counts from nothing.
            shared_stall_seconds: (now.shared_stall_seconds - before.shared_stall_seconds).max(0.0),
            causes,
            budget_bytes: now.budget_bytes,
            local_for_half_bytes: now.local_for_half_bytes,
            local_for_most_bytes: now.local_for_most_bytes,
            advice: String::new(),
        };
        explanation.advice = explanation.advise(&happened);
        explanation
    }

    /// The part of the time that was waited, summed over threads: 1 is one thread that always waits.
    pub fn share(&self) -> f64 {
        if self.seconds > 0.0 { self.stall_seconds / self.seconds } else { 0.0 }
    }

    /// Some lines for a person.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} ({}) waited {:.2} s for pages in {:.2} s, {:.1}% of a thread's time\n",
            self.name,
            self.process,
            self.stall_seconds,
            self.seconds,
            self.share() * 100.0
        );
        for part in &self.causes {
            let pages = part.pages.map_or_else(String::new, |pages| format!(", {pages} pages"));
            text += &format!(
                "{:>5.1}%  {:>9.3} s  {}{pages}\n",
                part.seconds / self.stall_seconds * 100.0,
                part.seconds,
                part.cause.meaning()
            );
        }
        if self.shared_stall_seconds > 0.0 {
            let share = self.shared_stall_seconds / self.stall_seconds * 100.0;
            text += &format!(
                "{share:>5.1}%  {:>9.3} s  of all that, for memory that processes share\n",
                self.shared_stall_seconds
            );
        }
        text + &self.advice + "\n"
    }

    fn part(&self, causes: &[Cause]) -> f64 {
        let seconds: f64 =
            self.causes.iter().filter(|part| causes.contains(&part.cause)).map(|part| part.seconds).sum();
        if self.stall_seconds > 0.0 { seconds / self.stall_seconds } else { 0.0 }
    }

    fn advise(&self, happened: &Happened<'_>) -> String {
        if self.share() < NEGLIGIBLE {
            return "Paging costs it next to nothing: it has the local memory that it needs.".to_owned();
        }
        if self.part(&[Cause::NewMemory]) > DOMINANT {
            return "It mostly touches memory for the first time; other limits would hardly change that."
                .to_owned();
        }
        let by_cause = if self.part(&[Cause::Room]) > DOMINANT {
            happened.advice_on_room()
        } else if self.part(&[Cause::Disk]) > DOMINANT {
            Some(format!(
                "The disk is slow ({} a page): a larger pool keeps more in memory.",
                self.each(Cause::Disk)
            ))
        } else if self.part(&[Cause::Turn]) > DOMINANT {
            Some(
                "Links to its memory nodes are busy: a larger weight or a higher --bandwidth-in gives it more of them."
                    .to_owned(),
            )
        } else if self.part(&[Cause::Node]) > DOMINANT {
            Some(format!(
                "Its memory nodes are far ({} a page): nearer ones or a larger pool would help.",
                self.each(Cause::Node)
            ))
        } else {
            None
        };
        let on_memory = self.advice_on_memory();
        by_cause.map_or_else(|| on_memory.clone(), |by_cause| format!("{by_cause} {on_memory}"))
    }

    /// How long a page of that cause took.
    fn each(&self, cause: Cause) -> String {
        let part = self.causes.iter().find(|part| part.cause == cause);
        let micros = part.map_or(0.0, |part| part.seconds / part.pages.unwrap_or(0).max(1) as f64 * 1e6);
        format!("{micros:.0} µs")
    }

    /// How much more local memory, from how long pages were away.
    pub(crate) fn advice_on_memory(&self) -> String {
        if self.local_for_half_bytes == 0 {
            return "More local memory would help; too few pages have come back to say how much.".to_owned();
        }
        let more = |bytes: u64| mebibytes_up(bytes.saturating_sub(self.budget_bytes));
        if more(self.local_for_half_bytes) == more(self.local_for_most_bytes) {
            return format!(
                "With {} MiB more local memory (local={}M) nearly all pages that came back would have stayed.",
                more(self.local_for_most_bytes),
                mebibytes_up(self.local_for_most_bytes)
            );
        }
        format!(
            "With {} MiB more local memory (local={}M) half of the pages that came back would have stayed, with {} MiB more nine tenths.",
            more(self.local_for_half_bytes),
            mebibytes_up(self.local_for_half_bytes),
            more(self.local_for_most_bytes)
        )
    }
}

/// Two looks at an application.
struct Happened<'a> {
    before: &'a Report,
    now: &'a Report,
}

impl Happened<'_> {
    fn count(&self, name: &str) -> u64 {
        self.now.counter(name).saturating_sub(self.before.counter(name))
    }

    fn seconds(&self, name: &str) -> f64 {
        self.count(name) as f64 / 1e9
    }

    fn causes(&self, stall_seconds: f64) -> Vec<Part> {
        let from_pool = self.seconds("stall_pool_ns");
        // What comes from a sample may be too much.
        let unpacking = self.seconds("unpack_ns").min(from_pool);
        let from_nodes = self.seconds("stall_node_ns");
        // Several pages may come by one read, for which several threads wait.
        let turns = (self.now.link_wait_seconds - self.before.link_wait_seconds).clamp(0.0, from_nodes);
        let (nodes, disk) = (self.count("fetches_from_nodes"), self.count("fetches_from_disk"));
        let in_pool = self.count("fetches").saturating_sub(nodes + disk);
        let told = [
            (Cause::Pool, from_pool - unpacking, Some(in_pool)),
            (Cause::Unpacking, unpacking, None),
            (Cause::Node, from_nodes - turns, Some(nodes)),
            (Cause::Turn, turns, None),
            (Cause::Disk, self.seconds("stall_disk_ns"), Some(disk)),
            (Cause::Room, self.seconds("stall_room_ns"), None),
            (Cause::NewMemory, self.seconds("stall_zeros_ns"), None),
        ];
        let other = (stall_seconds - told.iter().map(|(_, seconds, _)| seconds).sum::<f64>()).max(0.0);
        told.into_iter()
            .chain([(Cause::Other, other, None)])
            .filter(|&(_, seconds, _)| seconds > 0.0)
            .map(|(cause, seconds, pages)| Part { cause, seconds, pages })
            .collect()
    }

    /// Why pages leave late.
    fn advice_on_room(&self) -> Option<String> {
        let is_full = self.count("pool_full") > 0
            || self.now.pool_bytes as f64
                > FULL * self.now.partition_bytes.min(self.now.pool_leased_bytes) as f64;
        Some(match is_full {
            true => "Its far memory is full: raise its pool, or give it a disk or memory nodes below that."
                .to_owned(),
            false => {
                "It wants memory faster than pages can leave: an idle processor for the pager would help."
                    .to_owned()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: u64 = 1 << 20;

    fn report(counters: &[(&str, u64)]) -> Report {
        Report {
            name: "sort".to_owned(),
            process: 7,
            wall_seconds: 10.0,
            budget_bytes: 64 * MEBIBYTE,
            pool_leased_bytes: 64 * MEBIBYTE,
            partition_bytes: 64 * MEBIBYTE,
            local_for_half_bytes: 80 * MEBIBYTE,
            local_for_most_bytes: 128 * MEBIBYTE,
            counters: counters.iter().map(|&(name, value)| (name.to_owned(), value.into())).collect(),
            ..Report::default()
        }
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_parts_make_up_the_whole() {
        let explanation = Explanation::since_start(&report(&[
            ("stall_ns", 9 * SECOND),
            ("stall_pool_ns", 4 * SECOND),
            ("unpack_ns", SECOND),
            ("stall_zeros_ns", 3 * SECOND),
            ("stall_room_ns", SECOND / 2),
            ("fetches", 1000),
        ]));

        let sum: f64 = explanation.causes.iter().map(|part| part.seconds).sum();
        assert!((sum - 9.0).abs() < 1e-9, "{explanation:?}");
        assert_eq!(explanation.causes[0], Part { cause: Cause::Pool, seconds: 3.0, pages: Some(1000) });
        assert!(explanation.text().contains("33.3%      3.000 s  fetching pages from the pool, 1000 pages"));
    }

    #[test]
    fn waiting_for_a_turn_is_told_apart_from_reading() {
        let nodes =
            report(&[("stall_ns", 4 * SECOND), ("stall_node_ns", 4 * SECOND), ("fetches_from_nodes", 9)]);
        let explanation = Explanation::since_start(&Report { link_wait_seconds: 3.0, ..nodes });
        assert_eq!(explanation.causes[0], Part { cause: Cause::Turn, seconds: 3.0, pages: None });
        assert_eq!(explanation.causes[1], Part { cause: Cause::Node, seconds: 1.0, pages: Some(9) });
        assert!(explanation.advice.contains("a larger weight"), "{explanation:?}");
    }

    #[test]
    fn more_local_memory_is_told_with_its_amount() {
        let explanation =
            Explanation::since_start(&report(&[("stall_ns", SECOND), ("stall_pool_ns", SECOND)]));
        assert!(
            explanation.advice.contains("With 16 MiB more local memory (local=80M) half"),
            "{explanation:?}"
        );
        assert!(explanation.advice.contains("with 64 MiB more nine tenths"), "{explanation:?}");
    }

    #[test]
    fn each_cause_has_its_own_advice() {
        for (cause, words) in [
            ("stall_disk_ns", "The disk is slow (1000 µs a page)"),
            ("stall_node_ns", "Its memory nodes are far (500 µs a page)"),
            ("stall_room_ns", "Its far memory is full"),
            ("stall_zeros_ns", "for the first time"),
        ] {
            let counters = [
                ("stall_ns", SECOND),
                (cause, SECOND),
                ("pool_full", 1),
                ("fetches_from_disk", 1000),
                ("fetches_from_nodes", 2000),
            ];
            let advice = Explanation::since_start(&report(&counters)).advice;
            assert!(advice.contains(words), "{cause}: {advice}");
        }
    }

    #[test]
    fn who_hardly_waits_is_told_so() {
        let explanation = Explanation::since_start(&report(&[("stall_ns", SECOND / 100)]));
        assert!(explanation.advice.starts_with("Paging costs it next to nothing"));
    }

    #[test]
    fn a_look_at_another_run_counts_from_the_start() {
        let now = report(&[("stall_ns", SECOND)]);
        let before = Report { process: 8, wall_seconds: 5.0, ..now.clone() };
        assert_eq!(Explanation::between(&before, &now), Explanation::since_start(&now));
        let before = Report { wall_seconds: 5.0, ..now.clone() };
        assert_eq!(Explanation::between(&before, &now).stall_seconds, 0.0);
    }
}
