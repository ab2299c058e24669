//! A space's slot for one direction of a link: when it may send.
//!
//! What others say is believed for a while only. A line that waits, has the smallest tag, and doesn't go
//! although there is room and the limit of all spaces would let it, is passed over after 4 ms until it says
//! something else: its space sleeps, or lies. Bytes under way in a line that has not changed for 200 ms are
//! taken to have come.

use farmem_policy::links::{Rate, Turns, VirtualTime, Window};

use super::{DUES, LINK_SLOTS, Lines, LinkSchedule, Memory, RATES, TAKEN, Word};

/// Words of a line: the tag of what waits, plus one; 0 when nothing does.
const WAITS: usize = 0;
/// Bytes under way.
const UNDER_WAY: usize = 1;
/// How many of all spaces may be under way, as far as this one knows.
const WINDOW: usize = 2;
/// Rung by others when it may be this one's turn.
const BELL: usize = 3;
/// When it was last changed.
const STAMP: usize = 4;

/// So long somebody with a smaller tag may leave room unused.
const HESITATION_NS: u64 = 4_000_000;
/// So long a line counts that doesn't change.
const STALE_NS: u64 = 200_000_000;
/// Windows are not believed beyond this.
const MOST_WINDOW_BYTES: u64 = 16 << 20;

/// It is not this space's turn. To be asked again when the bell rings, or after so long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denied {
    /// Nanoseconds.
    pub look_again_ns: u64,
}

/// A transfer that a space wants to let go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// Its size.
    pub bytes: u64,
    /// The space's part against others.
    pub weight: u32,
    /// Another one of the space waits behind it, and may go when its turn comes. Without this the space would
    /// be taken to be idle until it asks again, and lose its turn to those who ask before.
    pub is_followed: bool,
}

/// Of the others, the one that waits with the smallest tag.
#[derive(Clone, Copy)]
struct First {
    link_slot: usize,
    waits: u64,
}

/// What the others' lines say.
struct Others {
    under_way: u64,
    window: u64,
    first: Option<First>,
}

/// See the module's text.
pub struct LinkSlot {
    lines: Lines,
    link_slot: usize,
    turns: Turns,
    under_way: u64,
    window: Window,
    /// The one that could go and doesn't, and since when.
    hesitates: Option<(usize, u64, u64)>,
    /// For each slot that was passed over: what it said then.
    passed_over: Vec<(usize, u64)>,
}

impl LinkSlot {
    /// A slot that no other space has.
    pub fn take<M: Memory>(schedule: &LinkSchedule<M>, lines: Lines, link_slot: usize) -> Self {
        let link_slot = link_slot.min(LINK_SLOTS - 1);
        schedule.memory().word(TAKEN).raise(link_slot as u64 + 1);
        Self {
            lines,
            link_slot,
            turns: Turns::default(),
            under_way: 0,
            window: Window::default(),
            hesitates: None,
            passed_over: Vec::new(),
        }
    }

    /// What is known of the link.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Bytes of this space that are under way.
    pub fn under_way(&self) -> u64 {
        self.under_way
    }

    fn own<'a, M: Memory>(&self, schedule: &'a LinkSchedule<M>, word: usize) -> &'a M::Word {
        schedule.memory().word(self.lines.line(self.link_slot) + word)
    }

    /// Asks to let a transfer go, and says so to the others until it may, or withdraws. When it may: bytes
    /// under way with it, of all spaces.
    ///
    /// # Errors
    /// It isn't its turn.
    pub fn ask<M: Memory>(
        &mut self,
        schedule: &LinkSchedule<M>,
        wish: Wish,
        now_ns: u64,
    ) -> Result<u64, Denied> {
        let Wish { bytes, weight, is_followed } = wish;
        let clock = schedule.memory().word(self.lines.clock());
        let start = self.turns.next(VirtualTime(clock.get()));
        let waits = start.0.saturating_add(1);
        self.own(schedule, STAMP).set(now_ns);
        let said = self.own(schedule, WAITS).get();
        // Invariant 2 of the schedule: first this, then a look.
        self.own(schedule, WAITS).set(waits);
        let others = self.look(schedule, now_ns);
        let under_way = others.under_way + self.under_way;
        let window = others.window.max(self.window.bytes());
        if under_way > 0 && under_way + bytes > window {
            return Err(Denied { look_again_ns: STALE_NS / 8 });
        }
        if let Some(first) =
            others.first.filter(|first| (first.waits, first.link_slot) < (waits, self.link_slot))
        {
            match self.early_ns(schedule, now_ns) {
                0 => self.hesitate(first, now_ns),
                // The limit of all spaces lets nobody go.
                _ => self.hesitates = None,
            }
            if said > 0 && (said, self.link_slot) < (first.waits, first.link_slot) {
                // The clock has overtaken the tag that it waited with: the other one may sleep because it saw
                // the smaller one.
                ring(schedule, self.lines, first.link_slot);
            }
            return Err(Denied { look_again_ns: HESITATION_NS / 4 });
        }
        self.pay(schedule, bytes, now_ns)?;
        clock.raise(start.0);
        self.turns.took(start, bytes, weight);
        self.set_under_way(schedule, self.under_way.saturating_add(bytes), now_ns);
        let next = if is_followed { self.turns.next(start).0.saturating_add(1) } else { 0 };
        self.own(schedule, WAITS).set(next);
        if under_way + bytes < window {
            match others.first {
                Some(first) if !is_followed || (first.waits, first.link_slot) < (next, self.link_slot) => {
                    ring(schedule, self.lines, first.link_slot);
                }
                _ if is_followed => self.ring_own(schedule),
                _ => {}
            }
        }
        Ok(under_way + bytes)
    }

    /// What others may have let go is let go without asking: the space has waited for too long. For their
    /// sake it is counted all the same.
    pub fn force<M: Memory>(&mut self, schedule: &LinkSchedule<M>, bytes: u64, now_ns: u64) -> u64 {
        self.own(schedule, WAITS).set(0);
        let direction = self.lines.direction as usize;
        if let Some(rate) = Rate::new(schedule.memory().word(RATES + direction).get()) {
            // Those that come later pay for it.
            let due = schedule.memory().word(DUES + direction);
            due.raise(rate.after(due.get(), now_ns, bytes));
        }
        self.set_under_way(schedule, self.under_way.saturating_add(bytes), now_ns);
        self.under_way
    }

    /// Doesn't want it any more.
    pub fn withdraw<M: Memory>(&mut self, schedule: &LinkSchedule<M>, now_ns: u64) {
        self.own(schedule, WAITS).set(0);
        self.ring_first(schedule, now_ns);
    }

    /// Withdraws, if it has asked.
    pub fn stand_back<M: Memory>(&mut self, schedule: &LinkSchedule<M>, now_ns: u64) {
        if self.own(schedule, WAITS).get() > 0 {
            self.withdraw(schedule, now_ns);
        }
    }

    /// So many bytes are not under way any more.
    pub fn end<M: Memory>(&mut self, schedule: &LinkSchedule<M>, bytes: u64, now_ns: u64) {
        self.set_under_way(schedule, self.under_way.saturating_sub(bytes), now_ns);
        self.ring_first(schedule, now_ns);
    }

    /// A transfer took so long, and so much was under way when it began.
    pub fn learn<M: Memory>(
        &mut self,
        schedule: &LinkSchedule<M>,
        under_way: u64,
        took_ns: u64,
        now_ns: u64,
    ) {
        self.window.note(now_ns, under_way, took_ns);
        self.own(schedule, WINDOW).set(self.window.bytes());
    }

    /// What the bell says, to be read before [`LinkSlot::ask`], so that a ring in between is not missed.
    pub fn bell<M: Memory>(&self, schedule: &LinkSchedule<M>) -> u32 {
        self.own(schedule, BELL).get() as u32
    }

    /// Where the bell is, for [`Memory::wait`].
    pub fn bell_at(&self) -> usize {
        self.lines.line(self.link_slot) + BELL
    }

    /// Rings its own bell: for other threads of the space.
    pub fn ring_own<M: Memory>(&self, schedule: &LinkSchedule<M>) {
        ring(schedule, self.lines, self.link_slot);
    }

    /// Moves to a slot of another schedule, together with what is under way.
    pub fn move_to<M: Memory>(
        &mut self,
        from: &LinkSchedule<M>,
        to: &LinkSchedule<M>,
        lines: Lines,
        link_slot: usize,
        now_ns: u64,
    ) {
        clear(from, self.lines, self.link_slot);
        let moved = Self::take(to, lines, link_slot);
        *self = Self { window: self.window, under_way: self.under_way, ..moved };
        self.set_under_way(to, self.under_way, now_ns);
    }

    #[cfg(test)]
    pub(super) fn say_changed<M: Memory>(&self, schedule: &LinkSchedule<M>, stamp_ns: u64) {
        self.own(schedule, STAMP).set(stamp_ns);
    }

    fn set_under_way<M: Memory>(&mut self, schedule: &LinkSchedule<M>, bytes: u64, now_ns: u64) {
        self.own(schedule, STAMP).set(now_ns);
        self.under_way = bytes;
        self.own(schedule, UNDER_WAY).set(bytes);
    }

    fn look<M: Memory>(&mut self, schedule: &LinkSchedule<M>, now_ns: u64) -> Others {
        let mut others = Others { under_way: 0, window: 0, first: None };
        for link_slot in (0..schedule.taken()).filter(|link_slot| *link_slot != self.link_slot) {
            let at = self.lines.line(link_slot);
            let word = |nth: usize| schedule.memory().word(at + nth).get();
            let (waits, under_way) = (word(WAITS), word(UNDER_WAY));
            if waits == 0 && under_way == 0 {
                continue;
            }
            if under_way > 0 && now_ns.abs_diff(word(STAMP)) < STALE_NS {
                others.under_way = others.under_way.saturating_add(under_way.min(MOST_WINDOW_BYTES));
                others.window = others.window.max(word(WINDOW).min(MOST_WINDOW_BYTES));
            }
            let is_first = others.first.is_none_or(|first| waits < first.waits);
            if waits > 0 && is_first && !self.passed_over.contains(&(link_slot, waits)) {
                others.first = Some(First { link_slot, waits });
            }
        }
        others
    }

    /// It could go, and another one, whose turn it is, hasn't gone.
    fn hesitate(&mut self, first: First, now_ns: u64) {
        match self.hesitates {
            Some((link_slot, waits, since_ns)) if (link_slot, waits) == (first.link_slot, first.waits) => {
                if now_ns.saturating_sub(since_ns) > HESITATION_NS {
                    self.passed_over.retain(|(link_slot, _)| *link_slot != first.link_slot);
                    self.passed_over.push((first.link_slot, first.waits));
                    self.hesitates = None;
                }
            }
            _ => self.hesitates = Some((first.link_slot, first.waits, now_ns)),
        }
    }

    /// How long the limit of all spaces lets nobody go.
    fn early_ns<M: Memory>(&self, schedule: &LinkSchedule<M>, now_ns: u64) -> u64 {
        let direction = self.lines.direction as usize;
        let due_ns = schedule.memory().word(DUES + direction).get();
        let rate = Rate::new(schedule.memory().word(RATES + direction).get());
        rate.and_then(|rate| rate.take(due_ns, now_ns, 0).err()).unwrap_or(0)
    }

    /// Pays for it out of the limit of all spaces.
    fn pay<M: Memory>(&self, schedule: &LinkSchedule<M>, bytes: u64, now_ns: u64) -> Result<(), Denied> {
        let direction = self.lines.direction as usize;
        let Some(rate) = Rate::new(schedule.memory().word(RATES + direction).get()) else { return Ok(()) };
        let due = schedule.memory().word(DUES + direction);
        loop {
            let before = due.get();
            let after = rate.take(before, now_ns, bytes).map_err(|look_again_ns| Denied { look_again_ns })?;
            if due.swap_if(before, after) {
                return Ok(());
            }
        }
    }

    /// Rings for the one whose turn it may be.
    fn ring_first<M: Memory>(&mut self, schedule: &LinkSchedule<M>, now_ns: u64) {
        if let Some(first) = self.look(schedule, now_ns).first {
            ring(schedule, self.lines, first.link_slot);
        }
    }
}

fn ring<M: Memory>(schedule: &LinkSchedule<M>, lines: Lines, link_slot: usize) {
    let at = lines.line(link_slot) + BELL;
    schedule.memory().word(at).add(1);
    schedule.memory().wake(at);
}

/// Clears the line of a slot whose space has gone, and rings for all that wait.
pub(super) fn clear<M: Memory>(schedule: &LinkSchedule<M>, lines: Lines, link_slot: usize) {
    let at = lines.line(link_slot);
    [WAITS, UNDER_WAY, WINDOW].into_iter().for_each(|word| schedule.memory().word(at + word).set(0));
    for other in (0..schedule.taken()).filter(|other| *other != link_slot) {
        if schedule.memory().word(lines.line(other) + WAITS).get() > 0 {
            ring(schedule, lines, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link_schedule::{Direction, Shared};

    const SPAN: u64 = 64 << 10;
    const MILLISECOND_NS: u64 = 1_000_000;

    /// With a limit at which a transfer is paid for in 64 ms: much longer than anybody who hesitates is
    /// waited for.
    #[test]
    fn whose_turn_it_is_keeps_it_while_the_limit_of_all_spaces_lets_nobody_go() {
        let schedule = LinkSchedule::new(Shared::create().unwrap());
        schedule.set_rate(Direction::In, 1_024_000);
        let lines = schedule.link(7, Direction::In).unwrap();
        let [mut went, mut waits] = [0, 1].map(|link_slot| LinkSlot::take(&schedule, lines, link_slot));
        let wish = Wish { bytes: SPAN, weight: 1, is_followed: false };
        let began_ns = 1_000 * MILLISECOND_NS;
        went.ask(&schedule, wish, began_ns).unwrap();
        went.end(&schedule, SPAN, began_ns);
        let mut due = None;
        for now_ns in (1..100).map(|after| began_ns + after * MILLISECOND_NS) {
            assert!(went.ask(&schedule, wish, now_ns).is_err(), "the other one's tag is smaller");
            if waits.ask(&schedule, wish, now_ns).is_ok() {
                due = Some(now_ns - began_ns);
                break;
            }
        }
        assert_eq!(due, Some(62 * MILLISECOND_NS), "when the limit lets it go");
    }

    #[test]
    fn who_could_go_and_does_not_is_passed_over() {
        let schedule = LinkSchedule::new(Shared::create().unwrap());
        let lines = schedule.link(7, Direction::In).unwrap();
        let [mut first, mut other] = [0, 1].map(|link_slot| LinkSlot::take(&schedule, lines, link_slot));
        let wish = Wish { bytes: SPAN, weight: 1, is_followed: true };
        let began_ns = 1_000 * MILLISECOND_NS;
        // It says that it has more behind, and never asks for it.
        first.ask(&schedule, wish, began_ns).unwrap();
        first.end(&schedule, SPAN, began_ns);
        other.ask(&schedule, wish, began_ns).unwrap();
        other.end(&schedule, SPAN, began_ns);
        let went =
            (0..10).position(|after| other.ask(&schedule, wish, began_ns + after * MILLISECOND_NS).is_ok());
        assert!(went.is_some_and(|after| after > 4), "{went:?}");
    }
}
