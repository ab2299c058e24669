//! What happens to machines, and when: drawn before the simulation begins, so that it depends on nothing that
//! anybody decides.

use crate::chance::Chance;
use crate::clock::{Time, seconds};
use crate::options::Options;

/// Something that happens to machines.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Happening {
    /// A machine dies; nothing answers.
    Dies(usize),
    /// A node's process ends; its machine says so to whoever asks.
    Ends(usize),
    /// A node answers again, empty.
    Starts(usize),
    /// A machine takes so many times as long.
    Slows(usize, f64),
    /// It doesn't any more.
    Recovers(usize),
    /// A node is no longer named: it is to be emptied.
    Departs(usize),
    /// It is named again.
    Joins(usize),
    /// Nothing in a rack can be reached; its machines have lost what they held, or not.
    RackFails(usize, bool),
    /// A rack can be reached again; the same.
    RackReturns(usize, bool),
}

/// How long a machine is away that has died: at least, and beyond that on average.
const DEAD: (f64, f64) = (60.0, 600.0);
const RESTARTING: (f64, f64) = (2.0, 1.0);
const SLOW: (f64, f64) = (10.0, 300.0);
const SLOWNESS: (f64, f64) = (20.0, 100.0);
const DEPARTED: (f64, f64) = (3600.0, 1.0);
const WITHOUT_POWER: (f64, f64) = (120.0, 900.0);
const WITHOUT_SWITCH: (f64, f64) = (1.0, 120.0);

/// Draws all that happens, in the order of time.
pub(crate) fn draw(options: &Options, chance: &mut Chance) -> Vec<(Time, Happening)> {
    let days = options.duration.as_secs_f64() / 86_400.0;
    let mut drawn = Drawn {
        end: options.duration.as_secs_f64(),
        taken: vec![Vec::new(); options.nodes],
        all: Vec::new(),
    };
    for _ in 0..chance.count(options.rack_failures * options.racks() as f64 * days) {
        let rack = chance.below(options.racks());
        let is_power = chance.happens(0.5);
        let span = drawn.span(chance, if is_power { WITHOUT_POWER } else { WITHOUT_SWITCH });
        let nodes = rack * options.rack_size..((rack + 1) * options.rack_size).min(options.nodes);
        drawn.add(nodes, span, Happening::RackFails(rack, is_power), Happening::RackReturns(rack, is_power));
    }
    type Kind = (f64, (f64, f64), fn(usize) -> Happening, fn(usize) -> Happening);
    let kinds: [Kind; 3] = [
        (options.failures, DEAD, Happening::Dies, Happening::Starts),
        (options.restarts, RESTARTING, Happening::Ends, Happening::Starts),
        (options.departures, DEPARTED, Happening::Departs, Happening::Joins),
    ];
    for (rate, lasts, begins, ends) in kinds {
        for _ in 0..chance.count(rate * options.nodes as f64 * days) {
            let node = chance.below(options.nodes);
            let span = drawn.span(chance, lasts);
            drawn.add(node..node + 1, span, begins(node), ends(node));
        }
    }
    for _ in 0..chance.count(options.slowdowns * options.nodes as f64 * days) {
        let node = chance.below(options.nodes);
        let slowness = chance.between(SLOWNESS.0, SLOWNESS.1);
        let span = drawn.span(chance, SLOW);
        drawn.add(node..node + 1, span, Happening::Slows(node, slowness), Happening::Recovers(node));
    }
    drawn.all.sort_by_key(|(at, _)| *at);
    drawn.all
}

struct Drawn {
    end: f64,
    /// When something happens to each node.
    taken: Vec<Vec<(f64, f64)>>,
    all: Vec<(Time, Happening)>,
}

impl Drawn {
    fn span(&self, chance: &mut Chance, (least, more): (f64, f64)) -> (f64, f64) {
        let begins = chance.between(0.0, self.end);
        (begins, begins + least + chance.exponential(more))
    }

    /// Adds it, unless something else happens to one of these nodes at the time.
    fn add(
        &mut self,
        mut nodes: std::ops::Range<usize>,
        span: (f64, f64),
        begins: Happening,
        ends: Happening,
    ) {
        let meets = |other: &(f64, f64)| span.0 <= other.1 && other.0 <= span.1;
        if nodes.clone().any(|node| self.taken[node].iter().any(meets)) {
            return;
        }
        nodes.by_ref().for_each(|node| self.taken[node].push(span));
        self.all.push((seconds(span.0), begins));
        self.all.push((seconds(span.1), ends));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_machines_die_as_it_is_said() {
        let options = Options { duration: std::time::Duration::from_secs(86_400), ..Options::default() };
        let of_seed = |seed| draw(&options, &mut Chance::new(seed, 0));
        let deaths =
            |seed| of_seed(seed).iter().filter(|(_, what)| matches!(what, Happening::Dies(_))).count();
        let all: usize = (0..100).map(deaths).sum();
        // Ten a day.
        assert!((900..1100).contains(&all), "{all}");
        assert_eq!(of_seed(7), of_seed(7));
    }
}
