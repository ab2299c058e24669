//! Asking many nodes at a time: one that is dead holds up nobody but its asker.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Nodes that are asked at the same time, at most.
const AT_ONCE: usize = 64;

/// What `ask` says of each, in their order.
pub(super) fn ask_all<Node: Sync, Answer: Send>(
    nodes: &[Node],
    ask: impl Fn(&Node) -> Answer + Sync,
) -> Vec<Answer> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(Vec::with_capacity(nodes.len()));
    let take = || {
        let number = next.fetch_add(1, Ordering::Relaxed);
        Some((number, nodes.get(number)?))
    };
    let work = || {
        while let Some((number, node)) = take() {
            let answer = ask(node);
            answers.lock().unwrap_or_else(PoisonError::into_inner).push((number, answer));
        }
    };
    thread::scope(|scope| {
        // Where no thread can be had, this one asks those that are left.
        for _ in 1..nodes.len().min(AT_ONCE) {
            if thread::Builder::new().name("farmem-ask".to_owned()).spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    let mut answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
    answers.sort_unstable_by_key(|&(number, _)| number);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;
    use std::time::Duration;

    use super::*;

    #[test]
    fn answers_come_in_the_order_of_the_nodes() {
        let nodes: Vec<usize> = (0..500).collect();
        assert_eq!(ask_all(&nodes, |node| node * 2), (0..500).map(|node| node * 2).collect::<Vec<_>>());
        assert!(ask_all(&[], |node: &usize| *node).is_empty());
    }

    #[test]
    fn nobody_waits_for_another_node() {
        // Each answers once all have been asked.
        let (asked, all) = (Mutex::new(0), Condvar::new());
        let answers = ask_all(&[(); AT_ONCE], |()| {
            let mut asked = asked.lock().unwrap();
            *asked += 1;
            all.notify_all();
            let patience = Duration::from_secs(60);
            let (asked, _) = all.wait_timeout_while(asked, patience, |asked| *asked < AT_ONCE).unwrap();
            *asked
        });
        assert_eq!(answers, [AT_ONCE; AT_ONCE]);
    }
}
