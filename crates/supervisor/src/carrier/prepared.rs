//! Links that are made before anybody needs them, and held (COMEX §3): so the first page that a lane fetches
//! from a node pays for no connection.
//!
//! The owner of a link says that it has none; one thread makes those of nodes that answer, one after the
//! other; the owner takes it when it next looks, or when it needs it. An owner never waits for this thread
//! longer than it would for itself: what can't be had here it makes when it is needed.
//!
//! Invariant: [`MOST`] links that were made here are held at a time.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farmem_transport::Transport;
use rustix::process::{Resource, getrlimit};

use super::{CONNECT_PATIENCE, Carrier};
use crate::threads::worker::Worker;

/// Links to all nodes together. With four descriptors each, as RDMA has, they are half of what a process may
/// usually open.
const MOST: usize = 128;
/// The part of what this process may open that they take at most, with one descriptor each.
const DESCRIPTORS_PART: u64 = 8;
/// Between two looks for links that are wanted.
const LOOK: Duration = Duration::from_millis(20);
/// A node to which no link could be made is left alone for so long.
const REST: Duration = Duration::from_secs(5);

/// A link that was made ahead of need, and what counts it for as long as it is held.
pub(super) struct Made {
    pub(super) transport: Box<dyn Transport>,
    /// Which incarnation of the node it is to.
    pub(super) incarnation: u32,
    pub(super) permit: Permit,
}

/// Counts a link.
pub(super) struct Permit {
    _count: Arc<()>,
}

enum Stage {
    Wanted,
    Making,
    Made(Made),
}

/// The lane and the node. In this order they are made: first for what threads wait for, then the mover's,
/// then for what nobody waits for.
type Key = (u8, usize);

/// See the module's text.
pub(super) struct Prepared {
    links: Mutex<BTreeMap<Key, Stage>>,
    has_changed: Condvar,
    permits: Arc<()>,
    most: usize,
}

impl Prepared {
    pub(super) fn new() -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from(descriptors / DESCRIPTORS_PART).map_or(MOST, |part| part.min(MOST));
        Self { links: Mutex::default(), has_changed: Condvar::new(), permits: Arc::default(), most }
    }

    fn links(&self) -> MutexGuard<'_, BTreeMap<Key, Stage>> {
        // Each change is a single step.
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all. Links of an earlier start are no longer anybody's.
    pub(super) fn clear(&self) {
        self.links().clear();
    }

    /// A link is wanted, unless that is known; or has been made: then it is its owner's.
    pub(super) fn want(&self, node: usize, lane: u8) -> Option<Made> {
        let key = (lane, node);
        let mut links = self.links();
        match links.remove(&key) {
            Some(Stage::Made(made)) => return Some(made),
            Some(Stage::Making) => links.insert(key, Stage::Making),
            Some(Stage::Wanted) | None => links.insert(key, Stage::Wanted),
        };
        None
    }

    /// A link is needed at once: it, if it has been made or is just about to be. From now on it is its owner
    /// who makes it.
    pub(super) fn take(&self, node: usize, lane: u8) -> Option<Made> {
        let key = (lane, node);
        let is_making = |links: &mut BTreeMap<Key, Stage>| matches!(links.get(&key), Some(Stage::Making));
        let waited = self.has_changed.wait_timeout_while(self.links(), CONNECT_PATIENCE, is_making);
        let (mut links, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match links.remove(&key)? {
            Stage::Made(made) => Some(made),
            Stage::Wanted | Stage::Making => None,
        }
    }

    /// Nobody needs a link any more.
    pub(super) fn forget(&self, node: usize, lane: u8) {
        self.links().remove(&(lane, node));
    }

    /// Which link to make now.
    fn next(&self, is_possible: impl Fn(usize) -> bool) -> Option<(Key, Permit)> {
        if Arc::strong_count(&self.permits) > self.most {
            return None;
        }
        let mut links = self.links();
        let is_next =
            |((_, node), stage): &(&Key, &mut Stage)| matches!(stage, Stage::Wanted) && is_possible(*node);
        let (&key, stage) = links.iter_mut().find(is_next)?;
        *stage = Stage::Making;
        Some((key, Permit { _count: Arc::clone(&self.permits) }))
    }

    /// It has been made, or could not be. Whoever has needed it meanwhile has one of their own.
    fn made(&self, key: Key, made: Option<Made>) {
        let mut links = self.links();
        if matches!(links.remove(&key), Some(Stage::Making))
            && let Some(made) = made
        {
            links.insert(key, Stage::Made(made));
        }
        drop(links);
        self.has_changed.notify_all();
    }
}

/// Starts the thread that makes links.
pub(super) fn start(carrier: &'static Carrier) -> Worker {
    let mut resting: HashMap<usize, Instant> = HashMap::new();
    Worker::start(move || {
        resting.retain(|_, until| *until > Instant::now());
        let is_possible = |node: usize| !resting.contains_key(&node) && carrier.is_up(node);
        let Some((key, permit)) = carrier.prepared.next(is_possible) else { return LOOK };
        let (lane, node) = key;
        match carrier.link(node, lane) {
            Ok((transport, incarnation)) => {
                carrier.prepared.made(key, Some(Made { transport, incarnation, permit }));
            }
            Err(error) => {
                // Nobody needs it yet. Whether the node is there finds out who does.
                tracing::debug!(node = %carrier.nodes[node].address, lane, %error, "no link ahead of need");
                resting.insert(node, Instant::now() + REST);
                carrier.prepared.made(key, None);
            }
        }
        Duration::ZERO
    })
}

#[cfg(test)]
mod tests {
    use farmem_transport::ClientIdentity;
    use farmem_transport::memory::MemoryNode;

    use super::*;

    fn made(permit: Permit) -> Option<Made> {
        let transport = Box::new(MemoryNode::new(64).connect(ClientIdentity { space: 7, lane: 0 }));
        Some(Made { transport, incarnation: 0, permit })
    }

    #[test]
    fn links_that_threads_wait_for_come_first_and_nodes_that_are_away_have_none() {
        let prepared = Prepared::new();
        for (node, lane) in [(1, 130), (1, 2), (0, 2), (1, 64)] {
            assert!(prepared.want(node, lane).is_none());
        }
        let made: Vec<(Key, Permit)> = std::iter::from_fn(|| prepared.next(|node| node == 1)).collect();
        assert_eq!(made.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [(2, 1), (64, 1), (130, 1)]);
    }

    #[test]
    fn a_link_that_was_made_is_had_once() {
        let prepared = Prepared::new();
        assert!(prepared.want(3, 1).is_none());
        let (key, permit) = prepared.next(|_| true).unwrap();
        assert!(prepared.want(3, 1).is_none(), "it is being made");
        prepared.made(key, made(permit));
        assert!(prepared.want(3, 1).is_some());
        assert!(prepared.take(3, 1).is_none());
    }

    #[test]
    fn what_its_owner_needs_first_is_not_made_as_well() {
        let prepared = Prepared::new();
        prepared.want(3, 1);
        assert!(prepared.take(3, 1).is_none());
        assert!(prepared.next(|_| true).is_none());
        prepared.want(3, 1);
        let (key, permit) = prepared.next(|_| true).unwrap();
        prepared.forget(3, 1);
        prepared.made(key, made(permit));
        assert!(prepared.take(3, 1).is_none(), "it came when nobody needed it any more");
    }

    #[test]
    fn who_needs_a_link_that_is_being_made_waits_for_it() {
        let prepared = Prepared::new();
        prepared.want(3, 1);
        let (key, permit) = prepared.next(|_| true).unwrap();
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| prepared.take(3, 1));
            prepared.made(key, made(permit));
            // Whether it waited or came later.
            assert!(taken.join().unwrap().is_some());
        });
    }

    #[test]
    fn no_more_are_held_than_may_be() {
        let prepared = Prepared { most: 2, ..Prepared::new() };
        (0..3).for_each(|lane| drop(prepared.want(0, lane)));
        let (first, second) = (prepared.next(|_| true).unwrap(), prepared.next(|_| true).unwrap());
        assert!(prepared.next(|_| true).is_none());
        prepared.made(first.0, made(first.1));
        assert!(prepared.next(|_| true).is_none(), "it is held");
        prepared.made(second.0, None);
        drop(second.1);
        assert!(prepared.next(|_| true).is_some());
    }
}
