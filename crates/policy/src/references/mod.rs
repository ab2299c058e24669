//! Tier 2 of prefetching: following the references that a program follows (Canvas §5.2, without a runtime
//! that tells).
//!
//! The kernel tells at which *address* a thread has faulted. If a thread that has faulted at `a` faults next
//! at `b`, and a word near `a` points to `b` or a little before it, then the program has most likely read
//! that word: a [`Link`](links::Link) is where the word lies, seen from `a`, and how far behind the word's
//! value `b` is. What has been seen a few times is expected again: when the thread faults once more, its page
//! has just been read, so the words at the links' places are at hand; they tell which pages it will want, and
//! those hold the words that tell what comes after them.
//!
//! * [`links`]: learning the links from faults alone.
//! * [`sweep`]: arrays of references that are read in order.
//! * [`Walk`]: which address comes next, in the order in which the program is expected to go.
//! * [`Allotment`]: how much time walks may take that are of no use.
//! * [`Follower`]: of one thread: when to learn, when and how far to walk, and whether it was of any use.
//!
//! Words are guesses here and nothing else: a wrong one costs a page that nobody wanted.

mod account;
mod allotment;
mod follower;
mod links;
mod sweep;
mod walk;

pub use allotment::Allotment;
pub use follower::{Follower, Settled};
pub use links::Compression;
pub use sweep::Pages;
pub use walk::{MOST_PAGES, Walk, Walked};
