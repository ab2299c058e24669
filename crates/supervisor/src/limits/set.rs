//! Limits that can be changed while the application runs.

use farmem_page::{ByteCount, PAGE_BYTES, PageCount};
use farmem_store::LimitError;
use farmem_wire::Request;
use farmem_wire::host::{LEASED_SLAB_BYTES, MOST_PAGES, MOST_SLABS, MOST_WEIGHT};

use crate::application::Application;
use crate::limits::lease_client::LeaseClient;

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
    pub(crate) fn request(self) -> Request {
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

    pub(crate) fn of_request(request: Request) -> Option<Self> {
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

    /// Sets all of them, or none.
    ///
    /// # Errors
    /// A sentence that says why they can't be set.
    pub(super) fn apply(
        self,
        application: &Application,
        lease_client: &mut LeaseClient,
    ) -> Result<(), String> {
        if let Some(partition) = self.partition {
            check_partition(application, partition)?;
        }
        let mut terms = lease_client.terms();
        if let Some(PoolRange { guaranteed, most }) = self.pool {
            check_pool(application, most)?;
            terms.pool_most = to_slabs(most);
            if let Some(guaranteed) = guaranteed {
                terms.pool_guaranteed = to_slabs(guaranteed);
            }
            if terms.pool_guaranteed > terms.pool_most {
                return Err(format!(
                    "its pool is guaranteed {} MiB, which is more; give both, as pool=GUARANTEED-MAXIMUM",
                    (terms.pool_guaranteed * LEASED_SLAB_BYTES) >> 20
                ));
            }
        }
        if let Some(local) = self.local {
            terms.local_own = local.pages().get().min(MOST_PAGES);
        }
        if let Some(weight) = self.weight {
            if weight > MOST_WEIGHT {
                return Err(format!("a weight is at most {MOST_WEIGHT}"));
            }
            terms.weight = weight;
        }
        lease_client.change(terms, self.local.is_some())?;
        if let Some(partition) = self.partition {
            application.pool.set_partition(partition).map_err(|error| error.to_string())?;
        }
        if let Some(cache) = self.cache {
            application.ledger.set_cache(to_whole_pages(cache));
        }
        Ok(())
    }
}

/// Whether what is stored could stay within that limit.
fn check_partition(application: &Application, partition: ByteCount) -> Result<(), String> {
    let usage = application.pool.usage();
    let used = usage.slab_bytes_in_memory.get() + application.pool.away_slabs().0 as u64 * LEASED_SLAB_BYTES;
    if partition.get() < LEASED_SLAB_BYTES {
        return Err(LimitError::TooSmall.to_string());
    }
    if used > partition.get() {
        return Err(format!(
            "its pool, nodes and disk hold {} MiB, which have nowhere else to go; raise local first",
            used >> 20
        ));
    }
    Ok(())
}

/// Whether the pool could keep to that limit.
fn check_pool(application: &Application, limit: ByteCount) -> Result<(), String> {
    if limit.get() < LEASED_SLAB_BYTES {
        return Err(LimitError::TooSmall.to_string());
    }
    if to_slabs(limit) > to_slabs(application.pool.capacity()) {
        return Err(LimitError::TooLarge { most: application.pool.capacity() }.to_string());
    }
    let usage = application.pool.usage();
    let surplus = usage.slab_bytes_in_memory.get().saturating_sub(limit.get());
    let room = application.pool.away_slabs().1 as u64 * LEASED_SLAB_BYTES;
    if surplus > room {
        return Err(format!(
            "its pool holds {} MiB, and there is neither a node nor a disk that the rest could move to; raise pool, or raise local first",
            usage.slab_bytes_in_memory.get() >> 20
        ));
    }
    Ok(())
}

/// A part of a page holds none.
pub(crate) fn to_whole_pages(bytes: ByteCount) -> PageCount {
    PageCount::new(bytes.get() / PAGE_BYTES as u64)
}

fn to_slabs(bytes: ByteCount) -> u64 {
    bytes.get() / LEASED_SLAB_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::lease_client::HostChoice;

    const MEBIBYTE: u64 = 1 << 20;

    fn limits(local: Option<u64>, pool: Option<u64>) -> Limits {
        let pool = pool.map(|most| PoolRange { guaranteed: None, most: ByteCount::new(most) });
        Limits { local: local.map(ByteCount::new), pool, ..Limits::default() }
    }

    #[test]
    fn limits_survive_their_packet() {
        let guaranteed = PoolRange { guaranteed: Some(ByteCount::ZERO), most: ByteCount::new(MEBIBYTE) };
        for wanted in [
            limits(None, None),
            limits(Some(8 * MEBIBYTE), None),
            limits(Some(4096), Some(77)),
            Limits { weight: Some(7), pool: Some(guaranteed), ..Limits::default() },
            Limits { partition: Some(ByteCount::new(3 * MEBIBYTE)), ..limits(Some(8 * MEBIBYTE), None) },
            Limits { cache: Some(ByteCount::ZERO), ..limits(None, None) },
            Limits { cache: Some(ByteCount::new(MEBIBYTE)), ..limits(None, None) },
        ] {
            assert_eq!(Limits::of_request(wanted.request()), Some(wanted));
        }
    }

    #[test]
    fn either_all_limits_change_or_none() {
        let application = Application::for_test();
        let terms = Application::options_for_test().terms();
        let mut lease_client =
            LeaseClient::begin(application, "test", &HostChoice::None, terms, true).unwrap();
        let now = |application: &Application| {
            (application.ledger.budget().bytes().get(), application.pool.usage().limit.get())
        };
        assert_eq!(now(&application), (MEBIBYTE, 4 * MEBIBYTE));
        limits(Some(2 * MEBIBYTE), Some(3 * MEBIBYTE)).apply(&application, &mut lease_client).unwrap();
        assert_eq!(now(&application), (2 * MEBIBYTE, 3 * MEBIBYTE));
        let refusal =
            limits(Some(5 * MEBIBYTE), Some(u64::MAX)).apply(&application, &mut lease_client).unwrap_err();
        assert!(refusal.contains("at most"), "{refusal}");
        assert_eq!(now(&application), (2 * MEBIBYTE, 3 * MEBIBYTE));
        limits(Some(5 * MEBIBYTE), Some(8 * MEBIBYTE)).apply(&application, &mut lease_client).unwrap();
        assert_eq!(now(&application), (5 * MEBIBYTE, 8 * MEBIBYTE));
        let heavy = Limits { weight: Some(1001), ..limits(Some(MEBIBYTE), None) };
        assert!(heavy.apply(&application, &mut lease_client).is_err());
        let partition = Limits { partition: Some(ByteCount::new(3 * MEBIBYTE)), ..Limits::default() };
        partition.apply(&application, &mut lease_client).unwrap();
        let cache = Limits { cache: Some(ByteCount::new(MEBIBYTE)), ..Limits::default() };
        cache.apply(&application, &mut lease_client).unwrap();
        assert_eq!(application.ledger.cache().bytes().get(), MEBIBYTE);
        assert_eq!(application.pool.usage().partition.get(), 3 * MEBIBYTE);
        let heavy = Limits { partition: Some(ByteCount::new(MEBIBYTE)), ..heavy };
        assert!(heavy.apply(&application, &mut lease_client).is_err());
        assert_eq!(application.pool.usage().partition.get(), 3 * MEBIBYTE);
        assert_eq!(now(&application), (5 * MEBIBYTE, 8 * MEBIBYTE));
    }
}
