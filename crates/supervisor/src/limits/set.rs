//! Changing limits while the application runs.

use farmem_client::{Limits, PoolRange, to_slabs, to_whole_pages};
use farmem_page::ByteCount;
use farmem_store::LimitError;
use farmem_wire::host::{LEASED_SLAB_BYTES, MOST_PAGES, MOST_WEIGHT};

use crate::application::Application;
use crate::limits::lease_client::LeaseClient;

/// Sets all of them, or none.
///
/// # Errors
/// A sentence that says why they can't be set.
pub(super) fn apply(
    limits: Limits,
    application: &Application,
    lease_client: &mut LeaseClient,
) -> Result<(), String> {
    if let Some(partition) = limits.partition {
        check_partition(application, partition)?;
    }
    let mut terms = lease_client.terms();
    if let Some(PoolRange { guaranteed, most }) = limits.pool {
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
    if let Some(local) = limits.local {
        terms.local_own = local.pages().get().min(MOST_PAGES);
    }
    if let Some(weight) = limits.weight {
        if weight > MOST_WEIGHT {
            return Err(format!("a weight is at most {MOST_WEIGHT}"));
        }
        terms.weight = weight;
    }
    lease_client.change(terms, limits.local.is_some())?;
    if let Some(partition) = limits.partition {
        application.pool.set_partition(partition).map_err(|error| error.to_string())?;
    }
    if let Some(cache) = limits.cache {
        application.ledger.set_cache(to_whole_pages(cache));
    }
    Ok(())
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
    fn either_all_limits_change_or_none() {
        let application = Application::for_test();
        let terms = Application::options_for_test().terms();
        let mut lease_client =
            LeaseClient::begin(application, "test", &HostChoice::None, terms, true).unwrap();
        let now = |application: &Application| {
            (application.ledger.budget().bytes().get(), application.pool.usage().limit.get())
        };
        assert_eq!(now(&application), (MEBIBYTE, 4 * MEBIBYTE));
        apply(limits(Some(2 * MEBIBYTE), Some(3 * MEBIBYTE)), &application, &mut lease_client).unwrap();
        assert_eq!(now(&application), (2 * MEBIBYTE, 3 * MEBIBYTE));
        let refusal =
            apply(limits(Some(5 * MEBIBYTE), Some(u64::MAX)), &application, &mut lease_client).unwrap_err();
        assert!(refusal.contains("at most"), "{refusal}");
        assert_eq!(now(&application), (2 * MEBIBYTE, 3 * MEBIBYTE));
        apply(limits(Some(5 * MEBIBYTE), Some(8 * MEBIBYTE)), &application, &mut lease_client).unwrap();
        assert_eq!(now(&application), (5 * MEBIBYTE, 8 * MEBIBYTE));
        let heavy = Limits { weight: Some(1001), ..limits(Some(MEBIBYTE), None) };
        assert!(apply(heavy, &application, &mut lease_client).is_err());
        let partition = Limits { partition: Some(ByteCount::new(3 * MEBIBYTE)), ..Limits::default() };
        apply(partition, &application, &mut lease_client).unwrap();
        let cache = Limits { cache: Some(ByteCount::new(MEBIBYTE)), ..Limits::default() };
        apply(cache, &application, &mut lease_client).unwrap();
        assert_eq!(application.ledger.cache().bytes().get(), MEBIBYTE);
        assert_eq!(application.pool.usage().partition.get(), 3 * MEBIBYTE);
        let heavy = Limits { partition: Some(ByteCount::new(MEBIBYTE)), ..heavy };
        assert!(apply(heavy, &application, &mut lease_client).is_err());
        assert_eq!(application.pool.usage().partition.get(), 3 * MEBIBYTE);
        assert_eq!(now(&application), (5 * MEBIBYTE, 8 * MEBIBYTE));
    }
}
