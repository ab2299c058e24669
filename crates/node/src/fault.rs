//! Deaths on order: how the tests have a node killed at each step of an exchange. Only builds with the
//! feature `injection` take orders; without one nothing of this costs more than a comparison.

use rustix::process::{Signal, getpid, kill_process};

/// The steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FaultPoint {
    /// A connection was accepted, and nothing heard on it.
    Accepted,
    /// A client has said who it is.
    Introduced,
    /// Half of an answer to that, or to a request, has gone out.
    HalfAnswered,
    /// A grant, a release or a write has come, and nothing was done.
    BeforeChange,
    /// It was done, and not answered.
    Changed,
    /// It was answered.
    Answered,
    /// A queue of a client's device was connected, or refused, and nothing answered.
    Attached,
    /// Frames can be reached by a client's device, or can't, and nothing was answered.
    Registered,
    /// Frames that were given back can't be reached any more.
    Revoked,
    /// Frames are to be emptied.
    BeforeEmptying,
    /// They are empty, and not free yet.
    Emptied,
}

impl FaultPoint {
    const ALL: [(&'static str, Self); 11] = [
        ("accepted", Self::Accepted),
        ("introduced", Self::Introduced),
        ("half-answered", Self::HalfAnswered),
        ("before-change", Self::BeforeChange),
        ("changed", Self::Changed),
        ("answered", Self::Answered),
        ("attached", Self::Attached),
        ("registered", Self::Registered),
        ("revoked", Self::Revoked),
        ("before-emptying", Self::BeforeEmptying),
        ("emptied", Self::Emptied),
    ];
}

/// What was ordered: to die at a step when it is passed for so many times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Faults {
    order: Option<(FaultPoint, u32)>,
}

impl Faults {
    /// What the environment orders, in a build for tests.
    pub(crate) fn ordered() -> Self {
        if cfg!(feature = "injection") {
            Self::parse(&std::env::var("FARMEM_NODE_FAULT").unwrap_or_default())
        } else {
            Self::default()
        }
    }

    /// From a text such as `changed:3`. Anything else orders nothing.
    fn parse(text: &str) -> Self {
        let order = || {
            let (name, times) = text.split_once(':').unwrap_or((text, "1"));
            let (_, point) = FaultPoint::ALL.into_iter().find(|(known, _)| *known == name)?;
            Some((point, times.parse().ok()?))
        };
        Self { order: order() }
    }

    /// A step is passed. Doesn't come back where that was ordered: the process is killed, as by somebody
    /// else, with nothing tidied up.
    pub(crate) fn pass(&mut self, point: FaultPoint) {
        if self.is_next(point) {
            let _ = kill_process(getpid(), Signal::KILL);
        }
        if let Some((ordered, times)) = &mut self.order
            && *ordered == point
        {
            *times = times.saturating_sub(1);
        }
    }

    /// Whether the next [`Faults::pass`] of this step is the last.
    pub(crate) fn is_next(&self, point: FaultPoint) -> bool {
        self.order == Some((point, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_comes_when_it_was_ordered() {
        let mut faults = Faults::parse("changed:2");
        assert!(!faults.is_next(FaultPoint::Changed));
        faults.pass(FaultPoint::Answered);
        faults.pass(FaultPoint::Changed);
        assert!(faults.is_next(FaultPoint::Changed));
    }

    #[test]
    fn nonsense_orders_nothing() {
        for text in ["", "changed:", "changed:x", "elsewhere:1"] {
            assert_eq!(Faults::parse(text), Faults::default());
        }
    }
}
