//! The two words that govern a slab.
//!
//! The **state** says whose the slab is and where its content lies. The **gate** counts what is in it and
//! lets writers in. Invariants:
//! 1. A slab is leased by swapping its state from free to leasing; the leaser alone touches it until it opens
//!    the gate. From that swap on the owner of the gate is that of the state, but for a gate that the leaser
//!    has not reached yet.
//! 2. Content is written only between a writer's entry and its exit, both changes of the gate. The gate lets
//!    a writer in only while it is open, neither moving nor away, and names the writer's owner and class.
//! 3. `MOVING` is set only while no writer is inside, for a move out of memory or, together with `AWAY`,
//!    back. The thread that set it (the mover) alone changes the state until it clears it, or, where the slab
//!    has become empty meanwhile, until the slab is free: then it is set until the slab's next lease. So does
//!    the packer, which gives back slabs that are empty: it sets `MOVING` as it clears `OPEN`.
//! 4. `OPEN` is cleared only while no page is stored, by the slab's owner or the packer, and while `MOVING`
//!    is set by the mover alone; or by the supervisor for an owner that is dead, while `MOVING` is not set.
//!    The thread that cleared it alone changes the state, until the slab is free.
//! 5. Pages stored in the slab are counted before their slot is taken and uncounted after it is freed, so
//!    that a writer that was counted always finds a free slot.

use crate::class::{SLAB_BYTES, SizeClass};
use crate::pool::OwnerId;

/// What a slab is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Nobody's.
    Free,
    /// Being set up.
    Leasing,
    /// In the memory frame `location`.
    Memory,
    /// In the memory frame `location`, on its way out.
    Moving,
    /// In the block `location`: on nodes, on disk, or both.
    Away,
    /// Being given back.
    Releasing,
}

/// A slab's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State {
    pub(crate) kind: Kind,
    pub(crate) class: SizeClass,
    pub(crate) owner: OwnerId,
    /// Frame or block, as `kind` says.
    pub(crate) location: usize,
    /// Counts leases, and returns to memory, so that an old state is never mistaken for a new one.
    pub(crate) generation: u16,
}

const CLASS_BITS: u32 = 5;
const LOCATION_BITS: u32 = 24;
const KIND_BITS: u32 = 3;
const OWNER_BITS: u32 = 16;
const GENERATION_BITS: u32 = 16;
const _: () = assert!(KIND_BITS + CLASS_BITS + OWNER_BITS + LOCATION_BITS + GENERATION_BITS == 64);
const _: () = assert!(crate::class::CLASS_COUNT <= 1 << CLASS_BITS);

/// One more than the largest frame or block number that a state can hold.
pub(crate) const LOCATION_LIMIT: usize = 1 << LOCATION_BITS;

const fn field(bits: u64, shift: u32, width: u32) -> u64 {
    bits >> shift & ((1 << width) - 1)
}

impl State {
    /// The state in these bits; `None` for bits that no state has.
    pub(crate) const fn decode(bits: u64) -> Option<Self> {
        let kind = match field(bits, 0, KIND_BITS) {
            0 => Kind::Free,
            1 => Kind::Leasing,
            2 => Kind::Memory,
            3 => Kind::Moving,
            4 => Kind::Away,
            5 => Kind::Releasing,
            _ => return None,
        };
        let Some(class) = SizeClass::new(field(bits, 3, CLASS_BITS) as usize) else { return None };
        Some(Self {
            kind,
            class,
            owner: OwnerId(field(bits, 8, OWNER_BITS) as u16),
            location: field(bits, 24, LOCATION_BITS) as usize,
            generation: field(bits, 48, GENERATION_BITS) as u16,
        })
    }

    /// The inverse of [`State::decode`].
    pub(crate) const fn encode(self) -> u64 {
        let kind = match self.kind {
            Kind::Free => 0,
            Kind::Leasing => 1,
            Kind::Memory => 2,
            Kind::Moving => 3,
            Kind::Away => 4,
            Kind::Releasing => 5,
        };
        kind | (self.class.number() as u64) << 3
            | (self.owner.0 as u64) << 8
            | (self.location as u64) << 24
            | (self.generation as u64) << 48
    }

    /// The same slab, doing something else somewhere else.
    pub(crate) const fn at(self, kind: Kind, location: usize) -> Self {
        Self { kind, location, ..self }
    }

    /// The same slab, back in the memory frame `frame`. It may leave again, even for the same block.
    pub(crate) const fn risen(self, frame: usize) -> Self {
        Self { generation: self.generation.wrapping_add(1), ..self.at(Kind::Memory, frame) }
    }
}

/// A slab's gate. Zero bits are a gate that is shut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gate(pub(crate) u64);

const PAYLOAD_BITS: u32 = 20;
const PAGES_SHIFT: u32 = PAYLOAD_BITS;
const PAGES_BITS: u32 = 12;
const WRITERS_SHIFT: u32 = PAGES_SHIFT + PAGES_BITS;
const WRITERS_BITS: u32 = 8;
const FLAGS_SHIFT: u32 = WRITERS_SHIFT + WRITERS_BITS;
const GATE_CLASS_SHIFT: u32 = FLAGS_SHIFT + 3;
const GATE_OWNER_SHIFT: u32 = GATE_CLASS_SHIFT + CLASS_BITS;
const _: () = assert!(GATE_OWNER_SHIFT + OWNER_BITS == 64);
const _: () =
    assert!(SLAB_BYTES < 1 << PAYLOAD_BITS, "the payload of a full slab must not carry into the page count");
const _: () =
    assert!(SizeClass::SLOTS_MAX < 1 << PAGES_BITS, "a full slab's pages must not carry into the writers");

const OPEN: u64 = 1 << FLAGS_SHIFT;
const MOVING: u64 = 2 << FLAGS_SHIFT;
const AWAY: u64 = 4 << FLAGS_SHIFT;

impl Gate {
    /// What one writer adds on entry and takes off on exit.
    pub(crate) const WRITER: u64 = 1 << WRITERS_SHIFT;

    /// The gate of a slab that is being leased.
    pub(crate) const fn shut(owner: OwnerId, class: SizeClass) -> Self {
        Self(Self::open(owner, class).0 & !OPEN)
    }
    /// The gate of an empty slab in memory.
    pub(crate) const fn open(owner: OwnerId, class: SizeClass) -> Self {
        Self(OPEN | (class.number() as u64) << GATE_CLASS_SHIFT | (owner.0 as u64) << GATE_OWNER_SHIFT)
    }
    /// What one stored page of `length_bytes` adds, and takes off when it is freed.
    pub(crate) const fn page(length_bytes: usize) -> u64 {
        1 << PAGES_SHIFT | length_bytes as u64
    }
    pub(crate) const fn owner(self) -> OwnerId {
        OwnerId(field(self.0, GATE_OWNER_SHIFT, OWNER_BITS) as u16)
    }
    pub(crate) const fn class(self) -> Option<SizeClass> {
        SizeClass::new(field(self.0, GATE_CLASS_SHIFT, CLASS_BITS) as usize)
    }
    pub(crate) const fn pages(self) -> usize {
        field(self.0, PAGES_SHIFT, PAGES_BITS) as usize
    }
    pub(crate) const fn payload_bytes(self) -> usize {
        field(self.0, 0, PAYLOAD_BITS) as usize
    }
    pub(crate) const fn is_open(self) -> bool {
        self.0 & OPEN != 0
    }
    pub(crate) const fn is_moving(self) -> bool {
        self.0 & MOVING != 0
    }
    pub(crate) const fn is_away(self) -> bool {
        self.0 & AWAY != 0
    }
    const fn has_writers(self) -> bool {
        field(self.0, WRITERS_SHIFT, WRITERS_BITS) != 0
    }

    /// Whether a writer of this owner may change the slab's content (invariant 2).
    pub(crate) const fn admits(self, owner: OwnerId) -> bool {
        self.is_open()
            && !self.is_moving()
            && !self.is_away()
            && self.owner().0 == owner.0
            && field(self.0, WRITERS_SHIFT, WRITERS_BITS) < (1 << WRITERS_BITS) - 1
    }
    /// Whether there is a slot left for a page.
    pub(crate) const fn has_room(self) -> bool {
        match self.class() {
            Some(class) => self.pages() < class.slots(),
            None => false,
        }
    }
    /// The gate that keeps writers out for a move; `None` while that must not be (invariant 3).
    pub(crate) const fn set_moving(self) -> Option<Self> {
        if self.is_open() && !self.is_moving() && !self.is_away() && !self.has_writers() {
            Some(Self(self.0 | MOVING))
        } else {
            None
        }
    }
    /// The gate that a slab away has while it is brought back; `None` while that must not be. No writer is
    /// let in meanwhile.
    pub(crate) const fn set_raising(self) -> Option<Self> {
        if self.is_open() && self.is_away() && !self.is_moving() { Some(Self(self.0 | MOVING)) } else { None }
    }
    /// The gate of a slab that was brought back.
    pub(crate) const fn raised(self) -> Self {
        Self(self.0 & !(MOVING | AWAY))
    }
    /// The gate after a move that failed.
    pub(crate) const fn moved_back(self) -> Self {
        Self(self.0 & !MOVING)
    }
    /// The gate after a move out of memory.
    pub(crate) const fn moved_away(self) -> Self {
        Self(self.0 & !MOVING | AWAY)
    }
    /// The gate of a slab that its owner gives back; `None` while that must not be (invariant 4).
    pub(crate) const fn shut_if_empty(self) -> Option<Self> {
        if self.is_open() && self.pages() == 0 && !self.has_writers() && !self.is_moving() {
            Some(Self(self.0 & !OPEN))
        } else {
            None
        }
    }
    /// The gate of a slab that the packer gives back; `None` while that must not be.
    pub(crate) const fn taken_if_empty(self) -> Option<Self> {
        match self.shut_if_empty() {
            Some(shut) => Some(Self(shut.0 | MOVING)),
            None => None,
        }
    }
    /// The gate that the mover leaves behind when it is done, where `self` would be that of a slab in use:
    /// the slab is empty, and the mover gives it back.
    pub(crate) const fn shut_by_mover(self) -> Option<Self> {
        if self.is_open() && self.pages() == 0 { Some(Self(self.0 & !OPEN | MOVING)) } else { None }
    }
    /// The gate of a dead owner's slab: shut, or, while the mover has it, empty, so that the mover gives it
    /// back.
    pub(crate) const fn abandoned(self) -> Self {
        if self.is_moving() { Self(self.0 & !((1 << FLAGS_SHIFT) - 1)) } else { Self(self.0 & !OPEN) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_survives_its_encoding() {
        for kind in [Kind::Free, Kind::Leasing, Kind::Memory, Kind::Moving, Kind::Away, Kind::Releasing] {
            let state = State {
                kind,
                class: SizeClass::new(crate::class::CLASS_COUNT - 1).unwrap(),
                owner: OwnerId(u16::MAX),
                location: LOCATION_LIMIT - 1,
                generation: u16::MAX,
            };
            assert_eq!(State::decode(state.encode()), Some(state));
        }
    }

    #[test]
    fn garbage_is_no_state() {
        assert_eq!(State::decode(u64::MAX), None);
    }

    #[test]
    fn a_gate_of_zeros_is_shut() {
        assert!(!Gate(0).admits(OwnerId(0)));
    }

    #[test]
    fn a_full_slab_counts_right_and_has_no_room() {
        let class = SizeClass::new(0).unwrap();
        let mut gate = Gate::open(OwnerId(9), class);
        for _ in 0..class.slots() {
            assert!(gate.has_room());
            gate = Gate(gate.0 + Gate::page(class.slot_bytes()));
        }
        assert!(!gate.has_room());
        assert_eq!((gate.pages(), gate.payload_bytes()), (class.slots(), SLAB_BYTES));
        assert_eq!((gate.owner(), gate.class()), (OwnerId(9), Some(class)));
    }

    #[test]
    fn a_slab_with_a_writer_neither_moves_nor_shuts() {
        let gate = Gate(Gate::open(OwnerId(1), SizeClass::new(3).unwrap()).0 + Gate::WRITER);
        assert_eq!(gate.set_moving(), None);
        assert_eq!(gate.shut_if_empty(), None);
        assert!(gate.admits(OwnerId(1)) && !gate.admits(OwnerId(2)));
    }

    #[test]
    fn a_slab_that_moves_or_is_away_admits_no_writer() {
        let moving = Gate::open(OwnerId(1), SizeClass::new(3).unwrap()).set_moving().unwrap();
        assert!(!moving.admits(OwnerId(1)) && !moving.moved_away().admits(OwnerId(1)));
        assert!(moving.moved_back().admits(OwnerId(1)));
        assert_eq!(moving.shut_if_empty(), None);
    }

    #[test]
    fn a_slab_on_its_way_back_admits_no_writer_until_it_is_there() {
        let in_memory = Gate::open(OwnerId(1), SizeClass::new(3).unwrap());
        assert_eq!(in_memory.set_raising(), None);
        let raising = in_memory.set_moving().unwrap().moved_away().set_raising().unwrap();
        assert!(!raising.admits(OwnerId(1)) && raising.set_raising().is_none());
        assert_eq!((raising.shut_if_empty(), raising.set_moving()), (None, None));
        assert!(raising.moved_back().is_away());
        assert_eq!(raising.raised(), in_memory);
    }

    #[test]
    fn an_empty_slab_is_the_packer_s_until_it_is_free() {
        let empty = Gate::open(OwnerId(1), SizeClass::new(3).unwrap());
        let taken = empty.taken_if_empty().unwrap();
        assert!(taken.is_moving() && !taken.is_open());
        assert_eq!(taken.abandoned(), taken);
        assert_eq!((taken.shut_if_empty(), taken.taken_if_empty(), taken.set_moving()), (None, None, None));
        assert_eq!(Gate(empty.0 + Gate::page(77)).taken_if_empty(), None);
        assert_eq!(empty.set_moving().unwrap().taken_if_empty(), None);
    }

    #[test]
    fn an_empty_slab_is_the_mover_s_until_it_is_free() {
        let moving = Gate::open(OwnerId(1), SizeClass::new(3).unwrap()).set_moving().unwrap();
        let shut = moving.moved_away().shut_by_mover().unwrap();
        assert!(shut.is_moving() && !shut.is_open());
        assert_eq!(shut.abandoned(), shut);
        assert_eq!((shut.shut_if_empty(), shut.set_moving(), shut.set_raising()), (None, None, None));
        assert_eq!(Gate(moving.0 + Gate::page(77)).moved_back().shut_by_mover(), None);
    }
}
