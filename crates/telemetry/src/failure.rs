//! Why a process can't go on, as one word of its slot.

/// Why the pager can't go on. Told to the supervisor, which tells the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// It had work and did nothing about it. Said by the supervisor.
    Stalled,
    /// Pool and disk are full and the budget is used up.
    NoRoom,
    /// The kernel refused something that it must not refuse.
    Kernel(Refusal),
}

/// What the kernel refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// What the pager was doing.
    pub step: Step,
    /// The kernel's number for the error.
    pub error: u16,
}

/// What a pager asks the kernel for and can't do without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Step {
    /// Memory for the table of pages.
    Table = 1,
    /// A message of a userfaultfd.
    Message = 2,
    /// Which pages are resident, or what their mappings are like.
    Mappings = 3,
    /// Moving a page out.
    MoveOut = 4,
    /// Putting a page back that could not be stored.
    PutBack = 5,
    /// Memory for pages on their way out.
    Staging = 6,
    /// A page for a forked child, or the means to serve it.
    Child = 7,
    /// A thread of the pager's own.
    Thread = 8,
}

const STEPS: [Step; 8] = [
    Step::Table,
    Step::Message,
    Step::Mappings,
    Step::MoveOut,
    Step::PutBack,
    Step::Staging,
    Step::Child,
    Step::Thread,
];

impl Failure {
    /// The word for it: the kind in the lowest byte, the step in the next, the kernel's number in the two
    /// above. Never 0.
    #[must_use]
    pub fn bits(self) -> u64 {
        match self {
            Self::Stalled => 1,
            Self::NoRoom => 2,
            Self::Kernel(refusal) => 3 | (refusal.step as u64) << 8 | u64::from(refusal.error) << 16,
        }
    }

    /// What a word says; `None` for 0 and for words that nobody writes.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<Self> {
        match bits & 0xff {
            1 => Some(Self::Stalled),
            2 => Some(Self::NoRoom),
            3 => {
                let step = STEPS.into_iter().find(|&step| step as u64 == bits >> 8 & 0xff)?;
                Some(Self::Kernel(Refusal { step, error: (bits >> 16 & 0xffff) as u16 }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, Refusal, STEPS};

    #[test]
    fn what_a_word_was_made_of_is_read_from_it() {
        let refusals = STEPS
            .into_iter()
            .zip([1, 12, u16::MAX].into_iter().cycle())
            .map(|(step, error)| Refusal { step, error });
        for failure in [Failure::Stalled, Failure::NoRoom].into_iter().chain(refusals.map(Failure::Kernel)) {
            assert_eq!(Failure::from_bits(failure.bits()), Some(failure));
        }
    }

    #[test]
    fn words_that_nobody_writes_say_nothing() {
        for bits in [0, 3, 3 | 9 << 8, 4, u64::MAX] {
            assert_eq!(Failure::from_bits(bits), None);
        }
    }
}
