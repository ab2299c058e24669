//! The page word under threads that take, discard, mark and let go in any order, against a model that knows
//! everything.
//!
//! A thread changes the word the way the pager does: it loads the word in one step, and swaps in the new one
//! in a later step, which fails if the word has changed meanwhile. The steps of all threads come in any
//! order.

use std::collections::BTreeSet;

use farmem_page::{AgeStamp, Level, PageWord, Place, SlabIndex, SlotIndex, SlotPlace, Transition};
use proptest::prelude::*;

const THREADS: usize = 4;

/// What a thread means to do to the word that it has loaded.
#[derive(Clone, Copy, Debug)]
enum Intent {
    Take,
    Discard,
    /// Marks the page as one that must stay local, or no longer.
    Mark(bool),
    Release,
}

/// What the holder does to its copy of the word before it lets the page go.
#[derive(Clone, Copy, Debug)]
enum Edit {
    NewEntry,
    NoEntry,
    History {
        level: u8,
        age: u64,
        prefetched: bool,
        far: bool,
    },
    /// That mark in the holder's copy: not the holder's to set.
    StrayMark(bool),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Loads the word with an intent, unless the thread waits or has loaded already.
    Load(Intent),
    /// Tries to swap in what the intent asks for.
    Swap,
    /// Holder only.
    Edit(Edit),
}

#[derive(Clone, Debug, Default)]
struct Thread {
    loaded: Option<(PageWord, Intent)>,
    /// The holder's copy, and the entries that it replaced and must free.
    held: Option<PageWord>,
    replaced: Vec<Place>,
    is_waiting: bool,
}

/// What is true whatever the word says.
#[derive(Clone, Debug, Default)]
struct Model {
    holder: Option<usize>,
    waiters: BTreeSet<usize>,
    is_dropped: bool,
    is_unevictable: bool,
    /// The entry that the page has as far as everybody but the holder knows.
    entry: Option<Place>,
}

#[derive(Debug, Default)]
struct World {
    word: PageWord,
    model: Model,
    threads: Vec<Thread>,
    /// Entries that are neither free nor forgotten.
    live: BTreeSet<u64>,
    next_entry: u32,
}

impl World {
    fn new() -> Self {
        Self { threads: vec![Thread::default(); THREADS], ..Self::default() }
    }

    fn allocate(&mut self) -> Place {
        let slab = SlabIndex::new(self.next_entry).expect("a test allocates few entries");
        self.next_entry += 1;
        let place = Place::Slot(SlotPlace { slab, slot: SlotIndex::new(7).expect("7 is a slot") });
        self.live.insert(place.encode());
        place
    }

    fn free(&mut self, place: Place) {
        assert!(self.live.remove(&place.encode()), "{place:?} is freed twice");
    }

    fn step(&mut self, thread: usize, step: Step) {
        match step {
            Step::Load(intent) => self.load(thread, intent),
            Step::Swap => self.swap(thread),
            Step::Edit(edit) => self.edit(thread, edit),
        }
        self.check();
    }

    fn load(&mut self, thread: usize, intent: Intent) {
        let state = &mut self.threads[thread];
        let is_holder = state.held.is_some();
        let makes_sense = match intent {
            Intent::Take => !is_holder,
            Intent::Release => is_holder,
            Intent::Discard | Intent::Mark(_) => true,
        };
        if makes_sense && !state.is_waiting {
            state.loaded = Some((self.word, intent));
        }
    }

    fn swap(&mut self, thread: usize) {
        let Some((old, intent)) = self.threads[thread].loaded.take() else { return };
        if old != self.word {
            return;
        }
        match intent {
            Intent::Take => match old.take() {
                Transition::Take(new) => {
                    assert_eq!(self.model.holder, None, "invariant 2: one holder");
                    self.word = new;
                    self.model.holder = Some(thread);
                    self.threads[thread].held = Some(old);
                }
                Transition::Wait(new) => {
                    assert!(self.model.holder.is_some(), "a thread waits for nobody");
                    self.word = new;
                    self.model.waiters.insert(thread);
                    self.threads[thread].is_waiting = true;
                }
            },
            Intent::Discard => {
                let (new, freed) = old.discard();
                self.word = new;
                if self.model.holder.is_some() {
                    assert_eq!(freed, None, "the entry of a held page is the holder's to free");
                    self.model.is_dropped = true;
                } else {
                    assert_eq!(freed, self.model.entry);
                    self.model.entry = None;
                    assert_eq!(
                        new,
                        PageWord::default().with_unevictable(self.model.is_unevictable),
                        "nothing else is kept"
                    );
                }
                if let Some(place) = freed {
                    self.free(place);
                }
            }
            Intent::Mark(unevictable) => {
                self.word = old.with_unevictable(unevictable);
                self.model.is_unevictable = unevictable;
            }
            Intent::Release => self.release(thread, old),
        }
    }

    fn release(&mut self, thread: usize, old: PageWord) {
        let held = self.threads[thread].held.take().expect("only a holder releases");
        self.word = old.release(held);
        assert!(!self.word.is_busy() && !self.word.is_waited() && !self.word.is_dropped());
        assert_eq!(old.is_dropped(), self.model.is_dropped, "invariant 4");
        for place in std::mem::take(&mut self.threads[thread].replaced) {
            self.free(place);
        }
        if old.is_dropped() {
            if let Some(place) = held.place() {
                self.free(place);
            }
            assert_eq!(self.word, PageWord::default().with_unevictable(self.model.is_unevictable));
            self.model.entry = None;
        } else {
            assert_eq!(
                self.word,
                held.with_unevictable(self.model.is_unevictable),
                "the holder's history is kept"
            );
            self.model.entry = held.place();
        }
        assert_eq!(old.is_waited(), !self.model.waiters.is_empty(), "invariant 3");
        if old.is_waited() {
            for waiter in std::mem::take(&mut self.model.waiters) {
                self.threads[waiter].is_waiting = false;
            }
        }
        self.model.holder = None;
        self.model.is_dropped = false;
    }

    fn edit(&mut self, thread: usize, edit: Edit) {
        let Some(held) = self.threads[thread].held else { return };
        let new = match edit {
            Edit::NewEntry | Edit::NoEntry => {
                self.threads[thread].replaced.extend(held.place());
                let place = matches!(edit, Edit::NewEntry).then(|| self.allocate());
                held.with_place(place)
            }
            Edit::History { level, age, prefetched, far } => held
                .with_level(Level::new(level))
                .with_age(AgeStamp::of(age))
                .with_prefetched(prefetched)
                .with_far(far),
            Edit::StrayMark(unevictable) => held.with_unevictable(unevictable),
        };
        self.threads[thread].held = Some(new);
    }

    /// The word and the model agree at every moment.
    fn check(&self) {
        let (word, model) = (self.word, &self.model);
        assert_eq!(word.is_busy(), model.holder.is_some(), "invariant 2");
        assert_eq!(word.is_waited(), !model.waiters.is_empty(), "invariant 3");
        assert_eq!(word.is_dropped(), model.is_dropped, "invariant 4");
        assert_eq!(word.is_unevictable(), model.is_unevictable);
        assert_eq!(word.place(), model.entry, "only the holder changes the entry");
        assert_eq!(
            self.threads.iter().filter(|thread| thread.held.is_some()).count(),
            model.holder.iter().count()
        );
        self.check_fork();
    }

    /// A child made at this moment has no holder, nobody waiting, and no entry that its parent is about to
    /// free.
    fn check_fork(&self) {
        let child = self.word.without_holder();
        assert!(!child.is_busy() && !child.is_waited() && !child.is_dropped());
        assert_eq!(child.is_unevictable(), self.model.is_unevictable);
        assert_eq!(child.place(), if self.model.is_dropped { None } else { self.model.entry });
    }

    /// Everybody finishes what was begun; then exactly the page's own entry is left.
    fn settle(&mut self) {
        while let Some(holder) = self.model.holder {
            self.step(holder, Step::Load(Intent::Release));
            self.step(holder, Step::Swap);
        }
        assert!(self.threads.iter().all(|thread| !thread.is_waiting), "a waiter was lost");
        let left: BTreeSet<u64> = self.word.place().map(Place::encode).into_iter().collect();
        assert_eq!(self.live, left, "an entry was lost");
    }
}

fn intents() -> impl Strategy<Value = Intent> {
    prop_oneof![
        4 => Just(Intent::Take),
        3 => Just(Intent::Release),
        2 => Just(Intent::Discard),
        1 => any::<bool>().prop_map(Intent::Mark),
    ]
}

fn edits() -> impl Strategy<Value = Edit> {
    prop_oneof![
        3 => Just(Edit::NewEntry),
        1 => Just(Edit::NoEntry),
        2 => (0_u8..10, any::<u64>(), any::<bool>(), any::<bool>())
            .prop_map(|(level, age, prefetched, far)| Edit::History { level, age, prefetched, far }),
        1 => any::<bool>().prop_map(Edit::StrayMark),
    ]
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        3 => intents().prop_map(Step::Load),
        4 => Just(Step::Swap),
        2 => edits().prop_map(Step::Edit),
    ];
    prop::collection::vec((0..THREADS, step), 0..200)
}

proptest! {
    // Miri is some hundred times slower.
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 2000 }))]

    #[test]
    fn no_interleaving_loses_a_waiter_or_an_entry(steps in steps()) {
        let mut world = World::new();
        for (thread, step) in steps {
            world.step(thread, step);
        }
        world.settle();
    }

    #[test]
    fn every_word_in_memory_is_read_without_a_panic(bits in any::<u64>(), other in any::<u64>()) {
        let word = PageWord::from_bits(bits);
        let free = word.release(PageWord::from_bits(other));
        prop_assert!(!free.is_busy() && !free.is_waited() && !free.is_dropped());
        prop_assert_eq!(free.is_unevictable(), word.is_unevictable());
        prop_assert!(word.level() <= Level::MAX);
        prop_assert_eq!(word.with_place(word.place()).place(), word.place());
        prop_assert!(!word.without_holder().is_busy());
    }

    #[test]
    fn every_field_keeps_to_itself(
        bits in any::<u64>(), slab in 0..SlabIndex::LIMIT, slot in 0..SlotIndex::LIMIT, level in 0_u8..8, age in 0_u64..1024,
        prefetched in any::<bool>(), unevictable in any::<bool>(), far in any::<bool>(),
    ) {
        let start = PageWord::from_bits(bits);
        let place = SlabIndex::new(slab).zip(SlotIndex::new(slot)).map(|(slab, slot)| Place::Slot(SlotPlace { slab, slot }));
        let word = start
            .with_far(far)
            .with_unevictable(unevictable)
            .with_prefetched(prefetched)
            .with_age(AgeStamp::of(age))
            .with_level(Level::new(level))
            .with_place(place);
        prop_assert_eq!(word.place(), place);
        prop_assert_eq!(word.level(), Level::new(level));
        prop_assert_eq!(word.age(), AgeStamp::of(age));
        prop_assert_eq!((word.is_prefetched(), word.is_unevictable(), word.is_far()), (prefetched, unevictable, far));
        prop_assert_eq!((word.is_busy(), word.is_waited(), word.is_dropped()),
            (start.is_busy(), start.is_waited(), start.is_dropped()));
    }
}
