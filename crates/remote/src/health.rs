//! How a node is doing: up, away for a moment, or lost for good.
//!
//! A link can break while its node lives, and a node can die and come back empty. Only the incarnation tells:
//! the same one still has everything, another one has nothing. A wait for a node is bounded:
//! then what was there alone is lost, even if the node should come back. It holds all of it still, then, and
//! is told that nobody wants it before it is used again.

use std::time::Duration;

use farmem_transport::Incarnation;

/// How long a node may be away before what it held counts as lost: a link that flaps, a switch that restarts.
/// Threads that touch what is there alone wait so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// Shards of a node that may turn out not to be what was written, before nothing of it is trusted.
const MOST_LIES: u32 = 8;
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MOST: Duration = Duration::from_secs(2);
/// What the latest answer counts for, against all before it: an eighth.
const WEIGHT: f64 = 0.125;
/// A node that reads go around is asked all the same, to see whether it is quick again: at first after so
/// long, and ever more rarely while it isn't.
const PROBE_FIRST: Duration = Duration::from_millis(250);
const PROBE_MOST: Duration = Duration::from_secs(8);
/// What such an answer counts for: there are few of them.
const PROBE_WEIGHT: f64 = 0.5;
/// A node that comes back empty, or joins, gets so many slabs in its first second, and twice as many in each
/// that follows.
const FIRST_LOAD: u64 = 64;
const FULL_LOAD_AFTER: Duration = Duration::from_secs(10);

/// Where a node stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It answers.
    Up,
    /// It doesn't, for less than the patience: what it holds may be there still.
    Away,
    /// What it held is lost. It may be tried again, as a new one.
    Lost,
}

/// The node that a link has reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reunion {
    /// The node that was there before, with all that it held.
    Same,
    /// One that holds nothing.
    Other,
    /// The node that was given up, with all that it held then. It stays lost until it has been told that
    /// nobody wants that: [`Health::forgot`].
    Remains,
}

/// What is known of one node. Times count from any one moment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Health {
    incarnation: Option<Incarnation>,
    standing: Standing,
    /// Since when it has been so.
    since: Duration,
    retry_at: Duration,
    retry_after: Duration,
    /// Since it is away: when the latest try began that failed.
    tried_at: Option<Duration>,
    /// Whether somebody could not reach it, or was cut off from it, while others may reach it.
    is_doubted: bool,
    /// Whether it holds nothing any more of what was given up.
    has_forgotten: bool,
    /// When a node came that replaces one that was lost, or joined.
    replaced_at: Option<Duration>,
    /// Whether it joined while others were in use.
    has_joined: bool,
    answer_time: Duration,
    /// How far answers are from that, on average.
    deviation: Duration,
    /// When it may be asked next although reads go around it.
    probe_at: Duration,
    probe_after: Duration,
    /// Shards of this incarnation of it that were not what was written.
    lies: u32,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            incarnation: None,
            standing: Standing::Lost,
            since: Duration::ZERO,
            retry_at: Duration::ZERO,
            retry_after: RETRY_FIRST,
            tried_at: None,
            is_doubted: false,
            has_forgotten: false,
            replaced_at: None,
            has_joined: false,
            answer_time: Duration::ZERO,
            deviation: Duration::ZERO,
            probe_at: Duration::ZERO,
            probe_after: PROBE_FIRST,
            lies: 0,
        }
    }
}

impl Health {
    /// A node that joins those that are in use: it gets its load slowly.
    pub fn joining() -> Self {
        Self { has_joined: true, ..Self::default() }
    }

    /// A node that has left: it is not tried again.
    pub fn gone() -> Self {
        Self { retry_at: Duration::MAX, ..Self::default() }
    }

    /// Where it stands.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Whether it has joined and could not be reached so far, though that was tried.
    pub fn is_awaited(&self) -> bool {
        self.has_joined && self.incarnation.is_none() && self.retry_at > Duration::ZERO
    }

    /// A link to it has been made. One that is not trusted stays lost, until another incarnation of it
    /// answers.
    pub fn connected(&mut self, now: Duration, incarnation: Incarnation) -> Reunion {
        if self.is_distrusted(incarnation) {
            self.retry_at = now + RETRY_MOST;
            return Reunion::Same;
        }
        let is_known = self.incarnation == Some(incarnation);
        if is_known && self.standing == Standing::Lost && !self.has_forgotten {
            self.retry_at = now + RETRY_MOST;
            return Reunion::Remains;
        }
        let is_same = is_known && self.standing != Standing::Lost;
        if !is_same {
            self.lies = 0;
            // How long the one before took, or was waited for in vain, says nothing of this one; and whoever
            // seems slow is not asked, and so can't show that it isn't.
            (self.answer_time, self.deviation) = (Duration::ZERO, Duration::ZERO);
        }
        if !is_same && (self.incarnation.is_some() || self.has_joined) {
            self.replaced_at = Some(now);
        }
        if self.standing != Standing::Up {
            self.since = now;
        }
        self.incarnation = Some(incarnation);
        self.standing = Standing::Up;
        self.retry_after = RETRY_FIRST;
        (self.tried_at, self.has_forgotten) = (None, false);
        if is_same { Reunion::Same } else { Reunion::Other }
    }

    /// The node that was given up knows that nobody wants what it held.
    pub fn forgot(&mut self) {
        self.has_forgotten = true;
    }

    /// It doesn't answer.
    pub fn failed(&mut self, now: Duration) {
        if self.standing == Standing::Up {
            (self.standing, self.since) = (Standing::Away, now);
            (self.retry_after, self.retry_at) = (RETRY_FIRST, now + RETRY_FIRST);
        }
    }

    /// A try to reach it, which began at `began`, has failed. How many others wait for it in vain meanwhile
    /// makes tries no rarer.
    pub fn tried(&mut self, began: Duration, now: Duration) {
        self.failed(now);
        self.tried_at = Some(began);
        self.put_off(now);
    }

    /// It could not be tried, for want of something that this machine lacks. That says nothing about the
    /// node.
    pub fn put_off(&mut self, now: Duration) {
        self.retry_at = now + self.retry_after;
        self.retry_after = (self.retry_after * 2).min(RETRY_MOST);
        if self.standing == Standing::Away {
            // The last one.
            self.retry_at = self.retry_at.min((self.since + PATIENCE).max(now));
        }
    }

    /// Somebody could not make a link to it, or a link has ended. That may have reasons which are not the
    /// node's.
    pub fn doubt(&mut self) {
        self.is_doubted |= self.standing == Standing::Up;
    }

    /// Whether it is to be asked if it is there. True once for any number of doubts.
    pub fn take_doubt(&mut self) -> bool {
        std::mem::take(&mut self.is_doubted) && self.standing == Standing::Up
    }

    /// Whether to try to reach it, if there is no good link.
    pub fn is_retry_due(&self, now: Duration) -> bool {
        now >= self.retry_at
    }

    /// When to try to reach it next, if there is no good link.
    pub fn retry_at(&self) -> Duration {
        self.retry_at
    }

    /// Whether it answers, as far as is known.
    pub fn is_up(&self) -> bool {
        self.standing == Standing::Up
    }

    /// Whether it is up, and of this incarnation.
    pub fn is_up_as(&self, incarnation: Incarnation) -> bool {
        self.is_up() && self.incarnation == Some(incarnation)
    }

    /// Whether it counts as lost from this moment on: a last try after the time of patience has failed. True
    /// once for each loss.
    pub fn is_just_lost(&mut self, now: Duration) -> bool {
        let is_over = self.tried_at.is_some_and(|began| began >= self.since + PATIENCE);
        let is_lost = self.standing == Standing::Away && is_over;
        if is_lost {
            (self.standing, self.since) = (Standing::Lost, now);
        }
        is_lost
    }

    /// It has answered a read after that time, or not even then.
    pub fn answered(&mut self, time: Duration) {
        self.note(time, WEIGHT);
    }

    fn note(&mut self, time: Duration, weight: f64) {
        let off = time.abs_diff(self.answer_time);
        self.deviation = self.deviation.mul_f64(1.0 - weight) + off.mul_f64(weight);
        self.answer_time = self.answer_time.mul_f64(1.0 - weight) + time.mul_f64(weight);
    }

    /// Whether it is to be asked now although reads go around it, because nothing else would show that it is
    /// quick again. Whoever is told so asks it, in addition to others.
    pub fn take_probe(&mut self, now: Duration) -> bool {
        let is_due = self.standing == Standing::Up && now >= self.probe_at;
        if is_due {
            // One that was not gone around for so long has become slow again.
            let is_anew = now >= self.probe_at + PROBE_MOST;
            let after = if is_anew { PROBE_FIRST } else { self.probe_after };
            self.probe_at = now + after;
            self.probe_after = (after * 2).min(PROBE_MOST);
        }
        is_due
    }

    /// When it may be asked so at the earliest.
    pub fn probe_at(&self) -> Duration {
        self.probe_at
    }

    /// It has answered such a question at that moment, after that time.
    pub fn probed(&mut self, now: Duration, time: Duration) {
        if time < self.answer_time / 2 {
            self.probe_after = PROBE_FIRST;
            self.probe_at = self.probe_at.min(now + PROBE_FIRST);
        }
        self.note(time, PROBE_WEIGHT);
    }

    /// After this time nearly all of its answers have come.
    pub fn late_after(&self) -> Duration {
        self.answer_time + 4 * self.deviation
    }

    /// It has sent other bytes than were written. Whether it counts as lost from this moment on: once may be
    /// an accident, time and again is not.
    pub fn lied(&mut self, now: Duration) -> bool {
        self.lies += 1;
        let is_lost = self.lies == MOST_LIES;
        if is_lost {
            (self.standing, self.since, self.retry_at) = (Standing::Lost, now, now + RETRY_MOST);
        }
        is_lost
    }

    fn is_distrusted(&self, incarnation: Incarnation) -> bool {
        self.lies >= MOST_LIES && self.incarnation == Some(incarnation)
    }

    /// How long it takes to answer, of late.
    pub fn answer_time(&self) -> Duration {
        self.answer_time
    }

    /// How long it takes to answer, if it is up.
    pub fn answer_time_if_up(&self) -> Option<Duration> {
        self.is_up().then_some(self.answer_time)
    }

    /// How many blocks it may hold at this moment: no bound, unless it has joined, or come back empty, a
    /// short while ago.
    pub fn most_blocks(&self, now: Duration) -> u64 {
        match self.replaced_at.map(|at| now.saturating_sub(at)) {
            Some(time) if time < FULL_LOAD_AFTER => FIRST_LOAD << time.as_secs(),
            _ => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Incarnation = Incarnation(1);
    const TWO: Incarnation = Incarnation(2);
    const START: Duration = Duration::from_secs(100);

    fn up() -> Health {
        let mut health = Health::default();
        assert_eq!(health.connected(START, ONE), Reunion::Other);
        health
    }

    #[test]
    fn a_node_that_comes_back_empty_is_not_taken_to_be_as_slow_as_before() {
        let mut health = up();
        (0..100).for_each(|_| health.answered(Duration::from_secs(1)));
        health.failed(START);
        assert_eq!(health.connected(START, ONE), Reunion::Same);
        assert!(health.answer_time() > Duration::from_millis(900));
        assert_eq!(health.connected(START, TWO), Reunion::Other);
        assert_eq!((health.answer_time(), health.late_after()), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn a_link_that_breaks_for_a_moment_loses_nothing() {
        let mut health = up();
        health.failed(START);
        assert_eq!(health.standing(), Standing::Away);
        assert!(!health.is_just_lost(START + PATIENCE / 2));
        assert_eq!(health.connected(START + PATIENCE / 2, ONE), Reunion::Same);
        assert!(!health.is_just_lost(START + PATIENCE * 2));
    }

    #[test]
    fn a_node_that_is_away_for_long_is_lost_once_even_if_it_comes_back() {
        let mut health = up();
        health.failed(START);
        health.failed(START + PATIENCE / 2);
        health.tried(START + PATIENCE, START + PATIENCE);
        assert!(health.is_just_lost(START + PATIENCE));
        assert!(!health.is_just_lost(START + PATIENCE * 2));
        assert_eq!(health.connected(START + PATIENCE * 3, TWO), Reunion::Other);
    }

    #[test]
    fn a_node_that_was_given_up_is_used_again_when_it_has_forgotten_what_it_held() {
        let mut health = up();
        health.failed(START);
        health.tried(START + PATIENCE, START + PATIENCE);
        assert!(health.is_just_lost(START + PATIENCE));
        for _ in 0..2 {
            assert_eq!(health.connected(START + PATIENCE * 2, ONE), Reunion::Remains);
            assert_eq!(health.standing(), Standing::Lost);
        }
        health.forgot();
        assert_eq!(health.connected(START + PATIENCE * 3, ONE), Reunion::Other);
        assert_eq!(health.standing(), Standing::Up);
        health.failed(START + PATIENCE * 4);
        health.tried(START + PATIENCE * 5, START + PATIENCE * 5);
        assert!(health.is_just_lost(START + PATIENCE * 5));
        assert_eq!(health.connected(START + PATIENCE * 6, ONE), Reunion::Remains, "it holds something again");
    }

    #[test]
    fn no_node_is_lost_before_a_last_try_has_failed() {
        let mut health = up();
        health.failed(START);
        let (late, second) = (START + PATIENCE - Duration::from_millis(1), Duration::from_secs(1));
        health.tried(late, late + second);
        assert!(!health.is_just_lost(late + second * 2));
        assert!(health.is_retry_due(late + second), "the last try");
        health.tried(late + second, late + second * 2);
        assert!(health.is_just_lost(late + second * 2));
    }

    #[test]
    fn one_link_that_fails_takes_nothing_away() {
        let mut health = up();
        health.doubt();
        health.doubt();
        assert_eq!(health.standing(), Standing::Up);
        assert!(health.take_doubt());
        assert!(!health.take_doubt());
    }

    #[test]
    fn a_node_that_comes_back_empty_is_not_taken_for_the_one_that_left() {
        let mut health = up();
        health.failed(START);
        assert_eq!(health.connected(START, TWO), Reunion::Other);
    }

    #[test]
    fn a_node_that_comes_back_empty_gets_its_load_slowly() {
        let mut health = up();
        assert_eq!(health.most_blocks(START), u64::MAX, "it is a new one");
        health.connected(START, TWO);
        assert_eq!(health.most_blocks(START), FIRST_LOAD);
        assert_eq!(health.most_blocks(START + Duration::from_secs(2)), FIRST_LOAD * 4);
        assert_eq!(health.most_blocks(START + FULL_LOAD_AFTER), u64::MAX);
    }

    #[test]
    fn a_node_that_joins_gets_its_load_slowly_and_one_that_has_left_is_not_tried() {
        let mut health = Health::joining();
        assert!(health.is_retry_due(START));
        health.connected(START, ONE);
        assert_eq!(health.most_blocks(START), FIRST_LOAD);
        assert!(!Health::gone().is_retry_due(START * 1000));
    }

    #[test]
    fn a_node_that_lies_is_lost_until_another_incarnation_of_it_answers() {
        let mut health = up();
        assert_eq!((0..20).filter(|_| health.lied(START)).count(), 1);
        health.connected(START, ONE);
        assert_eq!(health.standing(), Standing::Lost);
        assert_eq!(health.connected(START, TWO), Reunion::Other);
        assert_eq!(health.standing(), Standing::Up);
        assert!(!health.lied(START));
    }

    #[test]
    fn most_answers_come_before_they_are_late() {
        let mut health = up();
        (0..100).for_each(|nth| health.answered(Duration::from_micros(20 + nth % 10)));
        assert!((28..60).contains(&health.late_after().as_micros()), "{health:?}");
    }

    #[test]
    fn a_node_that_is_gone_around_is_asked_ever_more_rarely_and_soon_again_when_it_is_quick() {
        let (slow, quick) = (Duration::from_millis(50), Duration::from_micros(50));
        let mut health = up();
        (0..100).for_each(|_| health.answered(slow));
        let mut asked = Vec::new();
        for tick in 0..10 * 60 * 20 {
            let now = START + Duration::from_millis(50) * tick;
            if health.take_probe(now) {
                health.probed(now, slow);
                asked.push(now);
            }
        }
        assert_eq!(asked[..3], [0, 250, 750].map(|ms| START + Duration::from_millis(ms)));
        assert!(asked.len() <= 6 + 600 / 8, "{}", asked.len());
        let mut now = *asked.last().unwrap() + PROBE_MOST;
        assert!(health.answer_time() > slow / 2);
        // It is quick from now on: some questions later it is known to be.
        for _ in 0..7 {
            assert!(health.take_probe(now));
            health.probed(now, quick);
            assert!(!health.take_probe(now));
            now += PROBE_FIRST;
        }
        assert!(health.answer_time() < Duration::from_millis(1), "{health:?}");
    }

    #[test]
    fn one_quick_answer_of_a_slow_node_does_not_make_it_quick() {
        let mut health = up();
        (0..100).for_each(|_| health.answered(Duration::from_millis(50)));
        health.probed(START, Duration::from_micros(50));
        assert!(health.answer_time() > Duration::from_millis(20));
    }

    #[test]
    fn a_node_that_is_away_is_not_asked() {
        let mut health = up();
        health.failed(START);
        assert!(!health.take_probe(START + PROBE_MOST));
    }

    #[test]
    fn tries_to_reach_it_become_rarer() {
        let mut health = up();
        health.failed(START);
        assert!(!health.is_retry_due(START) && health.is_retry_due(START + RETRY_FIRST));
        (0..3).for_each(|_| health.tried(START, START));
        assert!(
            !health.is_retry_due(START + RETRY_FIRST * 3) && health.is_retry_due(START + RETRY_FIRST * 4)
        );
        // Lost, and tried on.
        health.tried(START + PATIENCE, START + PATIENCE);
        assert!(health.is_just_lost(START + PATIENCE));
        (0..20).for_each(|_| health.tried(START, START));
        assert!(!health.is_retry_due(START + RETRY_MOST / 2) && health.is_retry_due(START + RETRY_MOST));
    }

    #[test]
    fn who_waits_in_vain_for_a_node_makes_tries_to_reach_it_no_rarer() {
        let mut health = up();
        (0..20).for_each(|nth| health.failed(START + Duration::from_millis(50) * nth));
        assert!(health.is_retry_due(START + RETRY_FIRST * 2));
    }
}
