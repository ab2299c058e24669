//! Limits that can be changed while an application runs, as they are asked for.

use farmem_page::{ByteCount, PAGE_BYTES, PageCount};
use farmem_wire::Request;
use farmem_wire::host::{LEASED_SLAB_BYTES, MOST_PAGES, MOST_SLABS};

/// New limits; what is `None` stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// The local budget, of whole pages.
    pub local: Option<ByteCount>,
    /// What is in the pool and on disk together, of whole slabs.
    pub partition: Option<ByteCount>,
    /// The pool.
    pub pool: Option<PoolRange>,
    /// The part against others of the same host.
    pub weight: Option<u32>,
    /// The swap cache, of whole pages.
    pub cache: Option<ByteCount>,
}

/// What a pool may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolRange {
    /// What it gets of a host's whenever it wants it; `None` leaves that.
    pub guaranteed: Option<ByteCount>,
    /// What it takes at most.
    pub most: ByteCount,
}

impl Limits {
    /// The packet that asks for them.
    pub fn request(self) -> Request {
        let guaranteed = self.pool.and_then(|pool| pool.guaranteed);
        Request::Set {
            budget_pages: self.local.map_or(0, |local| local.pages().get().clamp(1, MOST_PAGES)),
            partition_slabs: self.partition.map_or(0, |bytes| to_slabs(bytes).clamp(1, MOST_SLABS) as u32),
            pool_bytes: self.pool.map_or(0, |pool| pool.most.get().max(1)),
            guaranteed_slabs: guaranteed.map(|bytes| to_slabs(bytes).min(MOST_SLABS) as u32),
            weight: self.weight.unwrap_or(0) as u16,
            cache_pages: self
                .cache
                .map(|bytes| u32::try_from(to_whole_pages(bytes).get()).unwrap_or(u32::MAX)),
        }
    }

    /// What a packet asks for; `None` of one that asks for something else.
    pub fn of_request(request: Request) -> Option<Self> {
        let Request::Set { budget_pages, partition_slabs, pool_bytes, guaranteed_slabs, weight, cache_pages } =
            request
        else {
            return None;
        };
        let bytes = |slabs: u32| ByteCount::new(u64::from(slabs) * LEASED_SLAB_BYTES);
        let pool = PoolRange { guaranteed: guaranteed_slabs.map(bytes), most: ByteCount::new(pool_bytes) };
        Some(Self {
            local: (budget_pages != 0).then(|| PageCount::new(budget_pages).bytes()),
            partition: (partition_slabs != 0).then(|| bytes(partition_slabs)),
            pool: (pool_bytes != 0).then_some(pool),
            weight: (weight != 0).then_some(u32::from(weight)),
            cache: cache_pages.map(|pages| PageCount::new(pages.into()).bytes()),
        })
    }
}

/// A part of a page holds none.
pub fn to_whole_pages(bytes: ByteCount) -> PageCount {
    PageCount::new(bytes.get() / PAGE_BYTES as u64)
}

/// A part of a slab that an application leases holds none.
pub fn to_slabs(bytes: ByteCount) -> u64 {
    bytes.get() / LEASED_SLAB_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: u64 = 1 << 20;

    #[test]
    fn limits_survive_their_packet() {
        let guaranteed = PoolRange { guaranteed: Some(ByteCount::ZERO), most: ByteCount::new(MEBIBYTE) };
        let pool = Some(PoolRange { guaranteed: None, most: ByteCount::new(77) });
        let local = |bytes: u64| Limits { local: Some(ByteCount::new(bytes)), ..Limits::default() };
        for wanted in [
            Limits::default(),
            local(8 * MEBIBYTE),
            Limits { pool, ..local(4096) },
            Limits { weight: Some(7), pool: Some(guaranteed), ..Limits::default() },
            Limits { partition: Some(ByteCount::new(3 * MEBIBYTE)), ..local(8 * MEBIBYTE) },
            Limits { cache: Some(ByteCount::ZERO), ..Limits::default() },
            Limits { cache: Some(ByteCount::new(MEBIBYTE)), ..Limits::default() },
        ] {
            assert_eq!(Limits::of_request(wanted.request()), Some(wanted));
        }
    }
}
