//! A space's gate at one direction of a link: its threads' transfers by class, before it takes its turn among
//! the others.
//!
//! Demand goes first, then what is fetched ahead, then whole slabs (Canvas §5.3, the horizontal dimension).
//! Of what comes from nodes, what nobody waits for has only so much under way that it can't hold up what
//! somebody waits for by more than 50 µs while threads do wait, or half of the window for slabs. A thread's
//! page waits a second at most, all else five: after that a transfer goes whatever the schedule says, so that
//! a wrong schedule costs fairness and time, but never a page.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farmem_policy::links::{Class, Rate};
use farmem_sys::thread::now_ns;

use super::link_slot::{Denied, LinkSlot, Wish};
use super::{Direction, Lines, LinkSchedule, Memory};

/// So long a transfer waits at most, by class.
const PATIENCE_NS: [u64; Class::COUNT] = [1_000_000_000, 5_000_000_000, 5_000_000_000];
/// The space's own limit is not the schedule's, and counts for longer; but a page shall not be given up by
/// its reader because of it.
const LIMIT_PATIENCE_NS: u64 = 10_000_000_000;
/// A look is due after this time at the latest, though no bell rings.
const LONGEST_LOOK_NS: u64 = 1_000_000;
/// The shortest pause between two looks.
const SHORTEST_LOOK_NS: u64 = 20_000;
/// So long after a thread has waited, others may be about to: what is fetched ahead leaves the link to them.
const DEMAND_NS: u64 = 10_000_000;

/// What went through a gate, by class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Transfers that were let go.
    pub transfers: [u64; Class::COUNT],
    /// Their bytes.
    pub bytes: [u64; Class::COUNT],
    /// How long they had waited for their turn, nanoseconds.
    pub waited_ns: [u64; Class::COUNT],
}

/// What all gates of a space in one direction share: its own limit.
#[derive(Debug, Default)]
pub struct RateLimit(Mutex<(u64, u64)>);

impl RateLimit {
    /// Sets the limit in bytes per second; 0 for none.
    pub fn set(&self, bytes_per_second: u64) {
        lock(&self.0).0 = bytes_per_second;
    }

    fn early_ns(&self, now_ns: u64) -> u64 {
        let (rate, due_ns) = *lock(&self.0);
        Rate::new(rate).and_then(|rate| rate.take(due_ns, now_ns, 0).err()).unwrap_or(0)
    }

    /// Two at once may both have found it open; what they take is paid for by those that come later.
    fn pay(&self, now_ns: u64, bytes: u64) {
        let (rate, due_ns) = &mut *lock(&self.0);
        if let Some(rate) = Rate::new(*rate) {
            *due_ns = rate.after(*due_ns, now_ns, bytes);
        }
    }
}

struct State {
    schedule: Arc<LinkSchedule>,
    link_slot: LinkSlot,
    weight: u32,
    /// Transfers that wait for their turn, by class.
    waiting: [u32; Class::COUNT],
    /// When a thread last wanted something.
    demand_ns: u64,
    /// Bytes under way that nobody waits for.
    unwaited: u64,
    figures: Figures,
}

/// See the module's text.
pub struct Gate {
    direction: Direction,
    rate_limit: Arc<RateLimit>,
    state: Mutex<State>,
}

impl Gate {
    /// The gate of a space that has this link slot.
    pub fn new(
        schedule: Arc<LinkSchedule>,
        lines: Lines,
        link_slot: usize,
        rate_limit: Arc<RateLimit>,
        weight: u32,
    ) -> Arc<Self> {
        let link_slot = LinkSlot::take(&schedule, lines, link_slot);
        let state = State {
            schedule,
            link_slot,
            weight,
            waiting: [0; Class::COUNT],
            demand_ns: 0,
            unwaited: 0,
            figures: Figures::default(),
        };
        Arc::new(Self { direction: lines.direction, rate_limit, state: Mutex::new(state) })
    }

    /// Moves the space to a slot of another schedule, together with what is under way.
    pub fn move_to(&self, schedule: Arc<LinkSchedule>, lines: Lines, link_slot: usize) {
        let state = &mut *lock(&self.state);
        state.link_slot.move_to(&state.schedule, &schedule, lines, link_slot, now_ns());
        state.schedule = schedule;
    }

    /// Changes the space's part against others.
    pub fn set_weight(&self, weight: u32) {
        lock(&self.state).weight = weight;
    }

    /// What went through.
    pub fn figures(&self) -> Figures {
        lock(&self.state).figures
    }

    /// A transfer that wants to go: from now on it waits for its turn.
    pub fn turn(self: &Arc<Self>, class: Class, bytes: u64) -> Turn {
        let since_ns = now_ns();
        let state = &mut *lock(&self.state);
        state.waiting[class.nth()] += 1;
        if class == Class::Demand {
            state.demand_ns = since_ns;
        }
        Turn { gate: Arc::clone(self), class, bytes, since_ns, may_since_ns: None, is_waiting: true }
    }

    /// Waits until a transfer may go.
    pub fn pass(self: &Arc<Self>, class: Class, bytes: u64) -> Pass {
        let mut turn = self.turn(class, bytes);
        loop {
            let bell = self.bell();
            match turn.take() {
                Ok(pass) => return pass,
                Err(pause) => self.sleep(bell, pause),
            }
        }
    }

    /// What the bell says: to be asked before [`Turn::take`].
    pub fn bell(&self) -> u32 {
        let state = lock(&self.state);
        state.link_slot.bell(&state.schedule)
    }

    /// Sleeps until the bell says something else, but not for long.
    pub fn sleep(&self, bell: u32, at_most: Duration) {
        let (schedule, at) = {
            let state = lock(&self.state);
            (Arc::clone(&state.schedule), state.link_slot.bell_at())
        };
        let timeout_ns = u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX);
        schedule.memory().wait(at, bell, timeout_ns.min(LONGEST_LOOK_NS));
    }

    fn is_held_back(&self, state: &State, class: Class, bytes: u64, now_ns: u64) -> bool {
        let is_overtaken = state.waiting[..class.nth()].iter().any(|waiting| *waiting > 0);
        let most = match (self.direction, class) {
            (Direction::Out, _) | (_, Class::Demand) => u64::MAX,
            (Direction::In, Class::Ahead) => state.ahead_bytes(now_ns),
            (Direction::In, Class::Bulk) => state.link_slot.window().bytes() / 2,
        };
        is_overtaken || state.unwaited > 0 && state.unwaited + bytes > most
    }
}

impl State {
    /// Bytes of what is fetched ahead that may be under way with others of the kind.
    fn ahead_bytes(&self, now_ns: u64) -> u64 {
        let window = self.link_slot.window();
        match now_ns.saturating_sub(self.demand_ns) < DEMAND_NS {
            true => window.ahead_bytes(),
            false => window.bytes() / 2,
        }
    }

    /// Whether a transfer waits that nothing but its turn holds back.
    fn is_followed(&self, direction: Direction, rate_limit: &RateLimit, now_ns: u64) -> bool {
        let classes = if direction == Direction::Out { Class::COUNT } else { 1 };
        self.waiting[..classes].iter().any(|waiting| *waiting > 0) && rate_limit.early_ns(now_ns) == 0
    }
}

/// A transfer that wants to go. Withdrawn when dropped.
pub struct Turn {
    gate: Arc<Gate>,
    class: Class,
    bytes: u64,
    since_ns: u64,
    /// Since when it is not the space's own limit that it waits for.
    may_since_ns: Option<u64>,
    is_waiting: bool,
}

impl Turn {
    /// Takes its turn, if it has come.
    ///
    /// # Errors
    /// It has not; how long to wait, if the bell doesn't ring, before asking again.
    pub fn take(&mut self) -> Result<Pass, Duration> {
        let now_ns = now_ns();
        let (class, bytes) = (self.class, self.bytes);
        let state = &mut *lock(&self.gate.state);
        let waited_ns = now_ns.saturating_sub(self.since_ns);
        // What follows it is what waits besides.
        if self.is_waiting {
            state.waiting[class.nth()] -= 1;
        }
        let asked = match self.gate.rate_limit.early_ns(now_ns) {
            early_ns if early_ns > 0 && waited_ns < LIMIT_PATIENCE_NS => {
                // Others shall not wait for one that may not.
                state.link_slot.stand_back(&state.schedule, now_ns);
                Err(Denied { look_again_ns: early_ns })
            }
            _ if now_ns.saturating_sub(*self.may_since_ns.get_or_insert(now_ns))
                > PATIENCE_NS[class.nth()] =>
            {
                Ok(state.link_slot.force(&state.schedule, bytes, now_ns))
            }
            _ if self.gate.is_held_back(state, class, bytes, now_ns) => {
                Err(Denied { look_again_ns: LONGEST_LOOK_NS })
            }
            _ => {
                let is_followed = state.is_followed(self.gate.direction, &self.gate.rate_limit, now_ns);
                let wish = Wish { bytes, weight: state.weight, is_followed };
                state.link_slot.ask(&state.schedule, wish, now_ns)
            }
        };
        self.is_waiting = asked.is_err();
        match asked {
            Ok(under_way) => {
                self.gate.rate_limit.pay(now_ns, bytes);
                state.figures.transfers[class.nth()] += 1;
                state.figures.bytes[class.nth()] += bytes;
                state.figures.waited_ns[class.nth()] += waited_ns;
                if class != Class::Demand {
                    state.unwaited += bytes;
                }
                let gate = Arc::clone(&self.gate);
                Ok(Pass { gate, class, bytes, under_way, began_ns: now_ns, is_whole: false })
            }
            Err(Denied { look_again_ns }) => {
                state.waiting[class.nth()] += 1;
                Err(Duration::from_nanos(look_again_ns.clamp(SHORTEST_LOOK_NS, LONGEST_LOOK_NS)))
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_waiting {
            let state = &mut *lock(&self.gate.state);
            state.waiting[self.class.nth()] -= 1;
            state.link_slot.withdraw(&state.schedule, now_ns());
            if state.waiting.iter().any(|waiting| *waiting > 0) {
                state.link_slot.ring_own(&state.schedule);
            }
        }
    }
}

/// A transfer that was let go. Under way until dropped.
pub struct Pass {
    gate: Arc<Gate>,
    class: Class,
    bytes: u64,
    under_way: u64,
    began_ns: u64,
    is_whole: bool,
}

impl Pass {
    /// It has come to its end as it should, and says something about the link. How long it took.
    pub fn finish(mut self) -> Duration {
        self.is_whole = true;
        Duration::from_nanos(now_ns().saturating_sub(self.began_ns))
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let now_ns = now_ns();
        let state = &mut *lock(&self.gate.state);
        if self.is_whole {
            let took_ns = now_ns.saturating_sub(self.began_ns);
            state.link_slot.learn(&state.schedule, self.under_way, took_ns, now_ns);
        }
        if self.class != Class::Demand {
            state.unwaited = state.unwaited.saturating_sub(self.bytes);
        }
        state.link_slot.end(&state.schedule, self.bytes, now_ns);
        if state.waiting.iter().any(|waiting| *waiting > 0) {
            state.link_slot.ring_own(&state.schedule);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked left counts that are off by one transfer at most; all waits are bounded.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link_schedule::Shared;

    const SPAN: u64 = 64 << 10;

    fn schedule() -> Arc<LinkSchedule> {
        Arc::new(LinkSchedule::new(Shared::create().unwrap()))
    }

    fn gate(schedule: &Arc<LinkSchedule>, link_slot: usize, weight: u32) -> Arc<Gate> {
        let lines = schedule.link(7, Direction::In).unwrap();
        Gate::new(Arc::clone(schedule), lines, link_slot, Arc::default(), weight)
    }

    #[test]
    fn demand_overtakes_what_is_fetched_ahead() {
        let gate = gate(&schedule(), 0, 1);
        let under_way: Vec<Pass> =
            std::iter::from_fn(|| gate.turn(Class::Demand, SPAN).take().ok()).take(100).collect();
        assert!(under_way.len() < 100, "the window is bounded");
        let (mut ahead, mut demand) = (gate.turn(Class::Ahead, 4096), gate.turn(Class::Demand, SPAN));
        assert!(ahead.take().is_err() && demand.take().is_err());
        drop(under_way);
        assert!(ahead.take().is_err(), "demand waits");
        let demand = demand.take();
        assert!(demand.is_ok() && ahead.take().is_ok());
    }

    #[test]
    fn what_is_fetched_ahead_leaves_room_for_demand() {
        let gate = gate(&schedule(), 0, 1);
        let ahead = gate.turn(Class::Ahead, SPAN).take();
        assert!(ahead.is_ok() && gate.turn(Class::Ahead, SPAN).take().is_err());
        assert!(gate.turn(Class::Demand, SPAN).take().is_ok());
    }

    #[test]
    fn a_transfer_that_is_withdrawn_holds_up_nobody() {
        let schedule = schedule();
        let (one, other) = (gate(&schedule, 0, 1), gate(&schedule, 1, 1));
        let passes: Vec<Pass> = std::iter::from_fn(|| one.turn(Class::Demand, SPAN).take().ok()).collect();
        let (mut first, mut second) = (one.turn(Class::Demand, SPAN), other.turn(Class::Demand, SPAN));
        assert!(second.take().is_err() && first.take().is_err());
        drop(passes);
        drop(second);
        assert!(first.take().is_ok());
    }

    #[test]
    fn what_a_space_that_has_gone_had_under_way_is_free() {
        let schedule = schedule();
        let (one, other) = (gate(&schedule, 0, 1), gate(&schedule, 1, 1));
        let passes: Vec<Pass> = std::iter::from_fn(|| one.turn(Class::Demand, SPAN).take().ok()).collect();
        let mut turn = other.turn(Class::Demand, SPAN);
        assert!(turn.take().is_err());
        schedule.clear(0);
        assert!(turn.take().is_ok());
        drop(passes);
    }

    #[test]
    fn a_space_keeps_to_its_own_limit_and_holds_up_nobody_meanwhile() {
        let schedule = schedule();
        let (one, other) = (gate(&schedule, 0, 1), gate(&schedule, 1, 1));
        one.rate_limit.set(1 << 20);
        drop(one.turn(Class::Demand, SPAN).take().ok().unwrap());
        let mut turn = one.turn(Class::Demand, SPAN);
        let pause = turn.take().err();
        assert_eq!(pause, Some(Duration::from_nanos(LONGEST_LOOK_NS)));
        assert!(other.turn(Class::Demand, SPAN).take().is_ok());
    }

    #[test]
    fn a_space_s_own_limit_counts_for_longer_than_the_board_does() {
        const LIMIT: u64 = SPAN / 2;
        let gate = gate(&schedule(), 0, 1);
        gate.rate_limit.set(LIMIT);
        let began = std::time::Instant::now();
        (0..2).for_each(|_| drop(gate.pass(Class::Demand, SPAN)));
        let earned = began.elapsed().as_secs_f64() * LIMIT as f64 + LIMIT as f64 * 0.01;
        assert!(SPAN as f64 <= earned, "the first is paid for before the second goes");
    }

    #[test]
    fn who_waits_because_of_its_own_limit_is_not_waited_for() {
        let schedule = schedule();
        let (one, other) = (gate(&schedule, 0, 1), gate(&schedule, 1, 1));
        let passes: Vec<Pass> = std::iter::from_fn(|| other.turn(Class::Demand, SPAN).take().ok()).collect();
        let mut first = one.turn(Class::Demand, SPAN);
        assert!(first.take().is_err(), "it says in the schedule that it waits");
        one.rate_limit.set(1);
        one.rate_limit.pay(now_ns(), SPAN);
        assert!(first.take().is_err());
        drop(passes);
        assert!(other.turn(Class::Demand, SPAN).take().is_ok());
    }

    #[test]
    fn what_is_said_to_come_from_the_future_is_not_believed() {
        let schedule = schedule();
        let (one, other) = (gate(&schedule, 0, 1), gate(&schedule, 1, 1));
        let passes: Vec<Pass> = std::iter::from_fn(|| other.turn(Class::Demand, SPAN).take().ok()).collect();
        assert!(one.turn(Class::Demand, SPAN).take().is_err());
        let state = lock(&other.state);
        state.link_slot.say_changed(&schedule, u64::MAX);
        drop(state);
        assert!(one.turn(Class::Demand, SPAN).take().is_ok());
        drop(passes);
    }

    #[test]
    fn all_spaces_together_keep_to_the_limit_of_the_board() {
        let schedule = schedule();
        schedule.set_rate(Direction::In, 1 << 20);
        let (one, other) = (gate(&schedule, 0, 1), gate(&schedule, 1, 1));
        drop(one.turn(Class::Demand, SPAN).take().ok().unwrap());
        assert!(other.turn(Class::Demand, SPAN).take().is_err());
    }

    #[test]
    fn spaces_that_always_wait_get_parts_by_weight_in_threads_too() {
        let schedule = schedule();
        let ends = std::sync::atomic::AtomicBool::new(false);
        let gates = [1, 2, 4].map(|weight| gate(&schedule, weight as usize, weight));
        std::thread::scope(|scope| {
            for gate in &gates {
                for _ in 0..4 {
                    scope.spawn(|| {
                        while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                            let pass = gate.pass(Class::Demand, SPAN);
                            std::thread::sleep(Duration::from_micros(300));
                            pass.finish();
                        }
                    });
                }
            }
            while gates.iter().any(|gate| gate.figures().transfers[0] < 50) {
                std::thread::sleep(Duration::from_millis(5));
            }
            ends.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let under_way: u64 = gates.iter().map(|gate| lock(&gate.state).link_slot.under_way()).sum();
        assert_eq!(under_way, 0);
    }

    #[test]
    fn a_link_slot_in_another_schedule_takes_along_what_is_under_way() {
        let (one, other) = (schedule(), schedule());
        let gate = gate(&one, 3, 1);
        let pass = gate.pass(Class::Demand, SPAN);
        gate.move_to(Arc::clone(&other), other.link(7, Direction::In).unwrap(), 5);
        let beside = super::tests::gate(&other, 6, 1);
        let passes: Vec<Pass> = std::iter::from_fn(|| beside.turn(Class::Demand, SPAN).take().ok()).collect();
        assert_eq!(passes.len(), 2, "the window has room for three");
        drop(pass);
        assert_eq!(lock(&gate.state).link_slot.under_way(), 0);
    }
}
