//! Sleeping on a word until somebody changes it.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::schedule::{self, Key};
use crate::world;

pub use farmem_sys::wait::{Scope, Sleepers, low_half};

/// Sleeps while `word` holds `value`, at most `timeout_ns` when given.
pub fn wait(word: &AtomicU32, value: u32, timeout_ns: Option<u64>, _scope: Scope) {
    schedule::point();
    if word.load(Ordering::SeqCst) != value {
        return;
    }
    let deadline_ns = timeout_ns.map(|ns| world::with(|world| world.now_ns.saturating_add(ns)));
    schedule::block(Key::Word(core::ptr::from_ref(word).addr()), deadline_ns);
}

/// Words that [`wait_any`] takes, at most.
pub const MOST_WORDS: usize = 64;

/// Sleeps while each of `words` holds the value next to it, at most `timeout_ns`.
pub fn wait_any<'a>(words: impl Iterator<Item = (&'a AtomicU32, u32, Scope)>, timeout_ns: u64) {
    schedule::point();
    let words: Vec<_> = words.take(MOST_WORDS).collect();
    if words.iter().any(|(word, value, _)| word.load(Ordering::SeqCst) != *value) {
        return;
    }
    let deadline_ns = world::with(|world| world.now_ns.saturating_add(timeout_ns));
    let keys = words.iter().map(|(word, ..)| Key::Word(core::ptr::from_ref(*word).addr())).collect();
    schedule::block_on_any(keys, Some(deadline_ns));
}

/// Wakes sleepers.
pub fn wake(word: &AtomicU32, sleepers: Sleepers, _scope: Scope) {
    let most = match sleepers {
        Sleepers::One => 1,
        Sleepers::All => usize::MAX,
    };
    schedule::wake(Key::Word(core::ptr::from_ref(word).addr()), most);
    schedule::point();
}
