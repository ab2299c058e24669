//! What keeps pages right, by name. All of it always stands: only the simulator (`crates/sim`), which has a
//! module of its own in the place of this one, takes one away at a time, to show that it would notice.

/// Something without which a program would see wrong bytes, or wait for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// No message is read while a page is being changed (gate, invariant 1).
    ReadingExcludesChanges,
    /// One thread at a time has a page (page word, invariant 2).
    OneHolder,
    /// What a page holds is asked again once it is taken.
    SourceAfterTaking,
    /// A fault that the kernel refuses to answer is answered later.
    RefusedFaultsReturn,
    /// What a program discards has no entry.
    DiscardedHasNoEntry,
    /// A page whose discard has been told but not done doesn't leave.
    DiscardedStays,
    /// Memory that was unmapped isn't managed, whatever comes there.
    UnmappedIsForgotten,
    /// Entries go where their pages are moved.
    EntriesFollowMoves,
    /// The hand takes pages of managed memory alone, though it asked for others a moment ago.
    VictimsAreManaged,
    /// A page is clean only where its content is what is stored.
    CleanByFingerprint,
    /// Entries that a child reads are neither changed nor freed.
    ForkFreezesEntries,
    /// A child is served from words of its own.
    ChildHasItsWords,
    /// What is moved while it is on its way from a node arrives where it is now.
    FlightsFollowMoves,
    /// A child gets a copy of what was not in its parent's memory when it was forked.
    StrandedGoesToChildren,
    /// What is far and has lost its marker is what the program has discarded.
    MarkersAreLookedAt,
    /// What the program has given up while somebody held it is let go.
    HeldIsLookedAt,
    /// What the program moves or forks nobody holds (gate, invariant 3).
    MovesWaitForHolders,
    /// Whoever came while a page was held is woken (page word, invariant 3).
    WaitersAreWoken,
    /// Of shared memory: what leaves is protected in all processes that map it.
    LeavingIsProtected,
    /// Of shared memory: what a program punches out has no entry.
    HolesAreTold,
    /// Of shared memory: a hole is told before its thread can go on and others are served.
    HolesAreToldAtOnce,
    /// Of shared memory: a child maps what its parent maps.
    ForkedHaveTheirPlaces,
    /// Of shared memory: where a process has moved its mapping, it is looked for.
    PlacesFollowMoves,
    /// Of shared memory: whoever waits for a page is woken, whichever process brings it.
    SharersAreWoken,
}

impl Guard {
    /// Those of private memory.
    pub const ALL: [Self; 18] = [
        Self::ReadingExcludesChanges,
        Self::OneHolder,
        Self::SourceAfterTaking,
        Self::RefusedFaultsReturn,
        Self::DiscardedHasNoEntry,
        Self::DiscardedStays,
        Self::UnmappedIsForgotten,
        Self::EntriesFollowMoves,
        Self::VictimsAreManaged,
        Self::CleanByFingerprint,
        Self::ForkFreezesEntries,
        Self::ChildHasItsWords,
        Self::FlightsFollowMoves,
        Self::StrandedGoesToChildren,
        Self::MarkersAreLookedAt,
        Self::HeldIsLookedAt,
        Self::MovesWaitForHolders,
        Self::WaitersAreWoken,
    ];
    /// Those of shared memory.
    pub const OF_SHARED: [Self; 6] = [
        Self::LeavingIsProtected,
        Self::HolesAreTold,
        Self::HolesAreToldAtOnce,
        Self::ForkedHaveTheirPlaces,
        Self::PlacesFollowMoves,
        Self::SharersAreWoken,
    ];
}

/// Whether it stands: always.
#[inline(always)]
pub const fn stands(_: Guard) -> bool {
    true
}

/// A place between two calls of the kernel where another thread may come in between: nothing but in the
/// simulator.
#[inline(always)]
pub const fn crossing() {}
