//! After which time an answer counts as late: by what nodes take in the middle, so that one which is slow
//! doesn't excuse itself.
//!
//! It is asked for with every read, and looks at all nodes. What nodes take in the middle changes slowly: so
//! it is counted now and then, and a read costs the same with a thousand nodes as with six.

use std::time::Duration;

use crate::health::Health;

/// Others are asked as well after so many times as long as nearly all answers take, within these bounds:
/// below the first a wake-up that comes late would look like a node that is slow.
const TIMES: u32 = 3;
const LEAST: Duration = Duration::from_millis(2);
const MOST: Duration = Duration::from_millis(100);
/// Between two counts.
const COUNT: Duration = Duration::from_millis(20);

/// See the module's text.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Lateness {
    counted_at: Option<Duration>,
    patience: Duration,
}

impl Lateness {
    /// How long to wait for an answer at this moment, with nodes that are doing so.
    pub fn patience<'a>(&mut self, now: Duration, nodes: impl Iterator<Item = &'a Health>) -> Duration {
        if self.counted_at.is_none_or(|at| now.saturating_sub(at) >= COUNT) {
            self.counted_at = Some(now);
            self.patience = count(nodes);
        }
        self.patience
    }
}

fn count<'a>(nodes: impl Iterator<Item = &'a Health>) -> Duration {
    let up = nodes.filter(|health| health.is_up());
    let mut times: Vec<Duration> = up.map(Health::late_after).collect();
    let middle = times.len() / 2;
    let middle = match times.is_empty() {
        true => Duration::ZERO,
        false => *times.select_nth_unstable(middle).1,
    };
    (middle * TIMES).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use farmem_transport::Incarnation;

    use super::*;

    fn up(answers: Duration) -> Health {
        let mut health = Health::default();
        health.connected(Duration::ZERO, Incarnation(1));
        (0..100).for_each(|_| health.answered(answers));
        health
    }

    #[test]
    fn one_slow_node_among_others_does_not_make_its_own_answers_timely() {
        let nodes = [up(Duration::from_millis(1)), up(Duration::from_millis(1)), up(Duration::from_secs(1))];
        let patience = Lateness::default().patience(Duration::ZERO, nodes.iter());
        assert!(patience < Duration::from_millis(10), "{patience:?}");
    }

    #[test]
    fn what_is_waited_for_stays_within_its_bounds() {
        assert_eq!(Lateness::default().patience(Duration::ZERO, [].iter()), LEAST);
        assert_eq!(Lateness::default().patience(Duration::ZERO, [up(Duration::from_secs(9))].iter()), MOST);
    }

    #[test]
    fn it_is_counted_anew_once_it_is_old() {
        let (mut lateness, quick) = (Lateness::default(), [up(Duration::from_micros(10))]);
        lateness.patience(Duration::ZERO, quick.iter());
        let slow = [up(Duration::from_millis(10))];
        assert_eq!(lateness.patience(COUNT / 2, slow.iter()), LEAST);
        assert!(lateness.patience(COUNT, slow.iter()) > LEAST);
    }
}
