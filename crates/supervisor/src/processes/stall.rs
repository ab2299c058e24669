//! Pagers that have stopped. Seen from outside, work lies there and nothing becomes of it: a message that
//! nobody reads, or a fault that a handler has taken and doesn't answer. A program that somebody else has
//! stopped looks the same, and so does a pager that gets no processor. So who suspects a pager asks the
//! kernel again and again whether its process may run, and does.

use std::fs;
use std::time::{Duration, Instant};

use farmem_machine::process;
use farmem_telemetry::MAX_HANDLERS;

/// A pager with work that doesn't come along for so long will never do anything.
const STALL: Duration = Duration::from_secs(20);
/// From so long on, and after each further such time, it is checked whether the process may run.
const DOUBT: Duration = Duration::from_millis(500);
/// Threads that are ready to run and get less than one part of a processor in so many get none to speak of.
const STARVED_SHARE: u32 = 50;

/// What there is to do for a pager: each place holds a number that changes as the work comes along, 0 where
/// there is none. The handlers' places come first, that of unread messages last.
pub(crate) type Signs = [u64; MAX_HANDLERS + 1];

/// How one pager comes along.
#[derive(Debug)]
pub(crate) struct Patience {
    signs: Signs,
    since: [Instant; MAX_HANDLERS + 1],
    asked: Instant,
    /// What the pager's threads had had of the processors at that time, if that was asked.
    had: Option<(Instant, ProcessorTime)>,
}

/// What to do about a pager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Judgement {
    /// Nothing.
    Fine,
    /// Check whether its process may run, and [`Patience::renew`] if not.
    Doubtful,
    /// Check the same; if it may run, end it.
    Stalled,
}

impl Patience {
    pub(crate) fn new(now: Instant) -> Self {
        Self { signs: [0; _], since: [now; _], asked: now, had: None }
    }

    /// One look, at that time.
    pub(crate) fn judge(&mut self, now: Instant, signs: Signs) -> Judgement {
        for ((last, since), sign) in self.signs.iter_mut().zip(&mut self.since).zip(signs) {
            if sign == 0 || *last != sign {
                *last = sign;
                *since = now;
            }
        }
        let still = self.since.iter().map(|&since| now - since).max().unwrap_or_default();
        if still < DOUBT || now - self.asked < DOUBT {
            return Judgement::Fine;
        }
        self.asked = now;
        if still > STALL { Judgement::Stalled } else { Judgement::Doubtful }
    }

    /// Whether the pager gets no processor to speak of, whose threads have had so much of them by now: since
    /// this was asked before, they have waited for one all the time, or have hardly run although one of them
    /// is ready to.
    pub(crate) fn is_starved(&mut self, now: Instant, had: ProcessorTime) -> bool {
        let Some((at, before)) = self.had.replace((now, had)) else { return false };
        let passed = now - at;
        let waited = had.waited.saturating_sub(before.waited);
        let ran = had.ran.saturating_sub(before.ran);
        waited > passed / 10 * 9 || before.is_any_ready && had.is_any_ready && ran < passed / STARVED_SHARE
    }

    /// What has passed doesn't count.
    pub(crate) fn renew(&mut self, now: Instant) {
        self.since = [now; _];
    }
}

/// Whether somebody keeps the process or a thread of it from running (a debugger, job control, the user, the
/// freezer of its control group), or the pager waits for the kernel alone, as it does for a disk, or for a
/// file system that doesn't answer.
pub(crate) fn is_held(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return false };
    threads.flatten().any(|thread| {
        let read = |name: &str| process::text(thread.path().join(name)).unwrap_or_default();
        let stat = read("stat");
        is_held_state(&stat)
            || is_frozen_place(&read("wchan"))
            || is_pagers(&stat) && is_in_file_call(&read("syscall"))
    })
}

/// What the threads of a process have had of the processors since they began, together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ProcessorTime {
    ran: Duration,
    /// Ready to run, without a processor. What still waits counts only when it has got one.
    waited: Duration,
    is_any_ready: bool,
}

impl ProcessorTime {
    /// Of those of a pager. A kernel that doesn't count that says zero.
    pub(crate) fn of(pager: u32) -> Self {
        let mut sum = Self::default();
        let threads = fs::read_dir(format!("/proc/{pager}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let read = |name: &str| process::text(thread.path().join(name)).unwrap_or_default();
            let counted = read("schedstat");
            let mut numbers = counted.split_whitespace().map_while(|word| word.parse().ok());
            sum.ran += Duration::from_nanos(numbers.next().unwrap_or_default());
            sum.waited += Duration::from_nanos(numbers.next().unwrap_or_default());
            sum.is_any_ready |= is_in_state(&read("stat"), &['R']);
        }
        sum
    }
}

fn is_pagers(stat: &str) -> bool {
    stat.split_once(" (").is_some_and(|(_, name)| name.starts_with("farmem-"))
}

/// Whether the thread waits inside a call that reads or writes a file at a position, of which pagers make no
/// others that last: a file system in user space (FUSE) lets its callers sleep as those do who could be
/// woken.
fn is_in_file_call(call: &str) -> bool {
    use nix::libc;
    const FILE_CALLS: [libc::c_long; 8] = [
        libc::SYS_pread64,
        libc::SYS_pwrite64,
        libc::SYS_preadv,
        libc::SYS_pwritev,
        libc::SYS_preadv2,
        libc::SYS_pwritev2,
        libc::SYS_fallocate,
        libc::SYS_fdatasync,
    ];
    let number = call.split_whitespace().next().and_then(|number| number.parse().ok());
    number.is_some_and(|number| FILE_CALLS.contains(&number))
}

fn is_held_state(stat: &str) -> bool {
    is_in_state(stat, &['T', 't']) || is_pagers(stat) && is_in_state(stat, &['D'])
}

fn is_in_state(stat: &str, states: &[char]) -> bool {
    process::after_name(stat).is_some_and(|rest| rest.starts_with(states))
}

/// Where in the kernel threads wait that a freezer stops: the function itself, or the one that it was
/// compiled into, where nobody else sleeps. The freezer of the first version also stops threads where they
/// sleep; those show as waiting for the kernel.
fn is_frozen_place(place: &str) -> bool {
    matches!(place.trim_end(), "do_freezer_trap" | "get_signal" | "__refrigerator")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(10);

    /// Judgements of a pager that shows `signs` for so long, one every 10 ms.
    fn judge_for(
        patience: &mut Patience,
        from: Instant,
        long: Duration,
        signs: impl Fn(u64) -> Signs,
    ) -> Vec<Judgement> {
        let looks = long.as_millis() / STEP.as_millis();
        (0..looks as u32).map(|look| patience.judge(from + STEP * look, signs(look.into()))).collect()
    }

    fn only(place: usize, number: u64) -> Signs {
        let mut signs = [0; _];
        signs[place] = number;
        signs
    }

    #[test]
    fn work_in_any_place_that_stays_is_a_stall() {
        let start = Instant::now();
        for place in 0..=MAX_HANDLERS {
            let mut patience = Patience::new(start);
            let early = judge_for(&mut patience, start, STALL, |look| {
                let mut signs = only(place, 7);
                signs[(place + 1) % signs.len()] = look;
                signs
            });
            assert!(early.contains(&Judgement::Doubtful) && !early.contains(&Judgement::Stalled));

            let late = judge_for(&mut patience, start + STALL, 2 * DOUBT, |_| only(place, 7));

            assert!(late.contains(&Judgement::Stalled));
        }
    }

    #[test]
    fn work_that_comes_along_and_no_work_are_fine() {
        let start = Instant::now();
        let mut patience = Patience::new(start);
        for signs in [|look| only(0, look + 1), |look| only(0, look % 2), |_| only(0, 0)] {
            assert!(
                judge_for(&mut patience, start, 2 * STALL, signs)
                    .iter()
                    .all(|judgement| *judgement == Judgement::Fine)
            );
        }
    }

    #[test]
    fn time_in_which_a_process_is_held_does_not_count() {
        let start = Instant::now();
        let mut patience = Patience::new(start);
        let mut now = start;
        while now < start + 3 * STALL {
            if patience.judge(now, only(0, 7)) != Judgement::Fine {
                patience.renew(now);
            }
            now += STEP;
        }

        let after = judge_for(&mut patience, now, STALL - DOUBT, |_| only(0, 7));

        assert!(!after.contains(&Judgement::Stalled));
    }

    #[test]
    fn stopped_and_traced_threads_are_held_whatever_their_names() {
        assert!(is_held_state("7 (sh) T 1 7 7 0"));
        assert!(is_held_state("7 (a) S (b) t 1 7 7 0"));
        assert!(!is_held_state("7 (a) T b) S 1 7 7 0"));
        assert!(!is_held_state(""));
    }

    /// So many milliseconds.
    fn had(ran: u64, waited: u64, is_any_ready: bool) -> ProcessorTime {
        let [ran, waited] = [ran, waited].map(Duration::from_millis);
        ProcessorTime { ran, waited, is_any_ready }
    }

    #[test]
    fn a_pager_is_starved_whose_threads_wait_for_a_processor_and_not_one_that_sleeps_or_runs() {
        let starts = Instant::now();
        let is_starved = |before, after| {
            let mut patience = Patience::new(starts);
            assert!(!patience.is_starved(starts, before));
            patience.is_starved(starts + DOUBT, after)
        };
        assert!(is_starved(had(7, 100, false), had(8, 590, false)), "it has waited");
        assert!(is_starved(had(7, 0, true), had(7, 0, true)), "it still waits");
        assert!(!is_starved(had(7, 0, false), had(7, 0, false)), "it sleeps");
        assert!(!is_starved(had(7, 0, false), had(7, 0, true)), "it is about to run");
        assert!(!is_starved(had(7, 0, true), had(400, 0, true)), "it runs");
    }

    #[test]
    fn what_a_process_has_had_of_the_processors_is_counted() {
        let all = ProcessorTime::of(std::process::id());
        assert!(all.ran > Duration::ZERO && all.is_any_ready);
        assert_eq!(ProcessorTime::of(u32::MAX), ProcessorTime::default());
    }

    #[test]
    fn the_pagers_threads_are_held_while_they_wait_for_the_kernel() {
        assert!(is_held_state("7 (farmem-fault) D 1 7 7 0"));
        assert!(!is_held_state("7 (farmem-fault) S 1 7 7 0"));
        assert!(!is_held_state("7 (sh) D 1 7 7 0"));
    }

    #[test]
    fn the_pagers_threads_are_held_while_they_are_in_a_call_for_a_file() {
        assert!(is_in_file_call("17 0x8 0x7f01 0x1000 0x2000 0x0 0x0 0x7ffc 0x7f02\n"));
        assert!(is_in_file_call("18 0x8 0x7f01 0x1000 0x2000 0x0 0x0 0x7ffc 0x7f02\n"));
        assert!(!is_in_file_call("202 0x7f01 0x0 0x0 0x0 0x0 0x0 0x7ffc 0x7f02\n"));
        assert!(!is_in_file_call("running\n") && !is_in_file_call(""));
        assert!(is_pagers("7 (farmem-fault) S 1 7 7 0") && !is_pagers("7 (sh) S 1 7 7 0"));
    }

    #[test]
    fn the_freezers_places_are_known() {
        assert!(is_frozen_place("do_freezer_trap") && is_frozen_place("__refrigerator\n"));
        assert!(!is_frozen_place("0") && !is_frozen_place("do_nanosleep"));
    }
}
