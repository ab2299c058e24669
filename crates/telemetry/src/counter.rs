//! Every figure that a process reports.

/// How figures of several processes combine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only grows; the application's figure is the sum over all processes, ended ones included.
    Total,
    /// The figure of this moment; the application's is the sum over living processes.
    Gauge,
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident $text:literal $kind:ident,)+) => {
        /// A figure of a process.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Counter { $($(#[doc = $doc])+ $name,)+ }

        /// All of them with their names, kinds and meanings, in the order of their words.
        pub const COUNTERS: &[(Counter, &str, Kind, &str)] =
            &[$((Counter::$name, $text, Kind::$kind, concat!($($doc),+)),)+];
    };
}

counters! {
    /// Faults that reached the pager.
    Faults "faults" Total,
    /// Faults raised inside system calls (the kernel touched the memory for the program).
    FaultsInSyscalls "faults_in_syscalls" Total,
    /// Pages that a thread waited for and that came from far memory.
    Fetches "fetches" Total,
    /// Pages brought in before anybody asked.
    Prefetched "prefetched" Total,
    /// Prefetched pages known to have been used.
    PrefetchUsed "prefetch_used" Total,
    /// Pages brought back because there was room for them again.
    SwappedIn "swapped_in" Total,
    /// Faults on pages that were on their way out and were mapped back.
    StagedHits "staged_hits" Total,
    /// Pages touched for the first time under management.
    FirstTouches "first_touches" Total,
    /// Pages that left local memory.
    Evicted "evicted" Total,
    /// Of those, pages that had not changed since they were stored: nothing was written.
    DroppedClean "dropped_clean" Total,
    /// Entries taken from the pool for a page that had none, or none of the right size.
    EntriesAllocated "entries_allocated" Total,
    /// Dirty pages written back into the entry that they had kept.
    EntriesReused "entries_reused" Total,
    /// Reservations given back because the partition was getting full.
    EntriesReleased "entries_released" Total,
    /// Evictions that the kernel refused because the page was shared, pinned or locked.
    Refused "refused" Total,
    /// Pages made the process's own again after a fork, so that they can leave.
    Unshared "unshared" Total,
    /// Pages that could not be read back; a touch of them is a SIGBUS.
    Lost "lost" Total,
    /// Forks, address-space moves, discards and unmappings that the kernel reported.
    Events "events" Total,
    /// Attempts repeated because the address space was changing.
    Retries "retries" Total,
    /// Times that an eviction found the pool full.
    PoolFull "pool_full" Total,
    /// Processor time of the pager's threads, nanoseconds.
    PagerCpuNs "pager_cpu_ns" Total,
    /// Time that threads waited for pages, nanoseconds (from the pager's side).
    StallNs "stall_ns" Total,
    /// Of `stall_ns`, the time for pages whose content was in the pool's memory, nanoseconds.
    StallPoolNs "stall_pool_ns" Total,
    /// Of `stall_ns`, the time for pages that were on memory nodes, nanoseconds.
    StallNodeNs "stall_node_ns" Total,
    /// Of `stall_ns`, the time for pages that were on disk, nanoseconds.
    StallDiskNs "stall_disk_ns" Total,
    /// Of `stall_ns`, the time until other pages had left, nanoseconds.
    StallRoomNs "stall_room_ns" Total,
    /// Of `stall_ns`, the time for pages that hold only zeros: as a rule those that were touched for the
    /// first time, nanoseconds.
    StallZerosNs "stall_zeros_ns" Total,
    /// Of the time for pages in the pool, that for copying, unpacking and checking them, nanoseconds (from a
    /// sample).
    UnpackNs "unpack_ns" Total,
    /// Pages that a thread waited for and that came from memory nodes.
    FetchesFromNodes "fetches_from_nodes" Total,
    /// Pages that a thread waited for and that came from disk.
    FetchesFromDisk "fetches_from_disk" Total,
    /// Resident pages of the process that belong to no file.
    ResidentPages "resident_pages" Gauge,
    /// Pages of mappings under management.
    ManagedPages "managed_pages" Gauge,
    /// Pages of mappings that could be managed but were refused by the kernel.
    UnmanagedPages "unmanaged_pages" Gauge,
    /// Pages that are in far memory now.
    FarPages "far_pages" Gauge,
    /// Memory of the pager itself, in pages (tables, stacks, staging).
    OwnPages "own_pages" Gauge,
    /// Pages that were fetched ahead and are not known to have been used.
    CachedPages "cached_pages" Gauge,
    /// Pages brought in because the program said that it will want them.
    Hinted "hinted" Total,
    /// Pages that the program has pinned.
    PinnedPages "pinned_pages" Gauge,
    /// Prefetched pages whose use can't be told from faults: their stream ended with them, or the references
    /// that led to them.
    PrefetchDoubtful "prefetch_doubtful" Total,
    /// Neighbours of such pages that were left where they were, as a sample.
    PrefetchProbes "prefetch_probes" Total,
    /// Of that sample, pages that the program asked for while what came with them was still there.
    PrefetchProbesUsed "prefetch_probes_used" Total,
    /// Time in which policies decided what to fetch ahead by addresses, nanoseconds (from a sample).
    DecidingNs "deciding_ns" Total,
    /// Time in which references were looked for and followed, with what came ahead for it, nanoseconds.
    FollowingNs "following_ns" Total,
    /// Time in which handlers waited for their turn to read a message, and read it, nanoseconds (from a
    /// sample).
    ReadingNs "reading_ns" Total,
    /// Time in which stored pages were put where the program sees them, nanoseconds (from a sample).
    InstallingNs "installing_ns" Total,
    /// Time in which threads were woken for that, nanoseconds (from a sample). It includes what a woken
    /// thread does at once on the same processor.
    WakingNs "waking_ns" Total,
    /// Time in which the kernel took pages out of the program's sight, nanoseconds.
    MovingNs "moving_ns" Total,
    /// Time in which such pages were compared with what is stored of them, packed and stored, nanoseconds.
    StoringNs "storing_ns" Total,
    /// Processes of which nothing more can leave: what moves their pages has been ended, as by a filter of
    /// system calls.
    Stuck "stuck" Total,
}
