//! The two ends of a connection on processors of their own, as if they were on two machines.
//!
//! Where both are on one, a message wakes its receiver as soon as the sender waits; on another one that may
//! take five times as long. Which of the two it is, the scheduler decides again for each connection, so that
//! two of them could not be compared.

use std::sync::mpsc::{Receiver, channel};
use std::thread;

use anyhow::{Context, Result, anyhow};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

/// Does `work` on the first processor, while the threads of `far` stay on the last one.
pub(super) fn apart<T: Send>(far: &[Pid], work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let allowed = sched_getaffinity(None)?;
    let processors = processors(&allowed);
    let (first, last) = processors.first().zip(processors.last()).context("there is no processor")?;
    for &thread in far {
        sched_setaffinity(Some(thread), &only(*last))?;
    }
    let result = thread::scope(|scope| {
        let near = scope.spawn(|| {
            sched_setaffinity(None, &only(*first))?;
            work()
        });
        near.join().map_err(|_| anyhow!("the measurement has panicked"))?
    });
    for &thread in far {
        // It may have ended with its connection.
        let _ = sched_setaffinity(Some(thread), &allowed);
    }
    result
}

fn processors(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect()
}

fn only(processor: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(processor);
    set
}

/// Starts a thread that begins with saying its number.
pub(super) fn start<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<(Pid, thread::JoinHandle<T>)> {
    let (say, said): (_, Receiver<Pid>) = channel();
    let handle = thread::Builder::new().spawn(move || {
        // Nobody listens where the one who started it has ended.
        let _ = say.send(gettid());
        work()
    })?;
    Ok((said.recv().context("a thread did not start")?, handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_on_processors_of_their_own_for_as_long_as_it_takes() {
        let (end, ended) = channel::<()>();
        let (far, handle) = start(move || ended.recv()).unwrap();
        let before = sched_getaffinity(None).unwrap();
        let [near_set, far_set] = apart(&[far], || {
            let set = |thread| Ok::<_, anyhow::Error>(processors(&sched_getaffinity(thread)?));
            Ok([set(None)?, set(Some(far))?])
        })
        .unwrap();
        assert_eq!(near_set.first(), processors(&before).first());
        assert_eq!(far_set.first(), processors(&before).last());
        assert_eq!((near_set.len(), far_set.len()), (1, 1));
        assert_eq!(processors(&sched_getaffinity(Some(far)).unwrap()), processors(&before));
        assert_eq!(processors(&sched_getaffinity(None).unwrap()), processors(&before));
        end.send(()).unwrap();
        handle.join().unwrap().unwrap();
    }
}
