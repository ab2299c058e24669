//! One thread wakes another.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, ensure};
use farmem_sys::affinity::{Allowed, stay_on};
use farmem_sys::wait::{Scope, Sleepers, wait, wake as wake_up};

use super::primitives::each;

/// Where the two threads run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cores {
    /// Both on one core.
    Same,
    /// Each on its own.
    Apart,
}

impl Cores {
    /// The processors of the two threads.
    ///
    /// # Errors
    /// Where there is only one, and two are needed.
    pub(super) fn pair(self) -> anyhow::Result<[u32; 2]> {
        let allowed = Allowed::now().context("the kernel does not say on which processors this may run")?;
        let first = allowed.nth(0).context("no processor")?;
        let second = match self {
            Self::Same => first,
            Self::Apart => {
                ensure!(allowed.count() > 1, "there is only one processor");
                allowed.nth(1).context("no second processor")?
            }
        };
        Ok([first, second])
    }
}

/// The time from a call of the futex until the other thread goes on, from rounds there and back.
pub(super) fn wake(count: usize, cores: Cores) -> anyhow::Result<f64> {
    let processors = cores.pair()?;
    // Even: the first thread's turn.
    let turn = AtomicU32::new(0);
    let last = u32::try_from(count & !1).context("too many rounds")?;
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            stay_on(processors[1]);
            play(&turn, 1, last);
        });
        // A thread of its own: the caller's processors stay as they are.
        let first = scope.spawn(|| {
            stay_on(processors[0]);
            let began = Instant::now();
            play(&turn, 0, last);
            each(began, last as usize)
        });
        let time = first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(time)
    })
}

/// Takes every second turn until the last.
fn play(turn: &AtomicU32, parity: u32, last: u32) {
    loop {
        let now = turn.load(Ordering::Acquire);
        if now >= last {
            return;
        }
        if now % 2 == parity {
            turn.store(now + 1, Ordering::Release);
            wake_up(turn, Sleepers::One, Scope::Process);
        } else {
            wait(turn, now, None, Scope::Process);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_game_ends_and_took_some_time() {
        assert!(wake(100, Cores::Same).unwrap() > 0.0);
    }
}
