//! Limits that can be changed while the application runs.

use farmem_page::{ByteCount, PageCount};
use farmem_wire::Request;

use crate::application::Application;

/// New limits; what is `None` stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// The local budget, of whole pages.
    pub local: Option<ByteCount>,
    /// The limit of the pool.
    pub pool: Option<ByteCount>,
}

impl Limits {
    pub(crate) fn request(self) -> Request {
        Request::Set {
            budget_pages: self.local.map_or(0, |local| local.pages().get().max(1)),
            pool_bytes: self.pool.map_or(0, |pool| pool.get().max(1)),
        }
    }

    pub(crate) fn of_request(budget_pages: u64, pool_bytes: u64) -> Self {
        Self {
            local: (budget_pages != 0).then(|| PageCount::new(budget_pages).bytes()),
            pool: (pool_bytes != 0).then_some(ByteCount::new(pool_bytes)),
        }
    }

    /// Sets all of them, or none.
    ///
    /// # Errors
    /// A sentence that says why they can't be set.
    pub(crate) fn apply(self, application: &Application) -> Result<(), String> {
        if let Some(pool) = self.pool {
            let usage = application.pool.usage();
            let surplus = usage.slab_bytes_in_memory.get().saturating_sub(pool.get());
            let room = usage.disk_limit.get().saturating_sub(usage.disk_bytes.get());
            if surplus > room {
                return Err(format!(
                    "its pool holds {} MiB, and there is no disk that the rest could move to; raise pool, or raise local first",
                    usage.slab_bytes_in_memory.get() >> 20
                ));
            }
            application.pool.set_limit(pool).map_err(|error| error.to_string())?;
        }
        if let Some(local) = self.local {
            application.ledger.set_budget(local.pages());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: u64 = 1 << 20;

    fn limits(local: Option<u64>, pool: Option<u64>) -> Limits {
        Limits { local: local.map(ByteCount::new), pool: pool.map(ByteCount::new) }
    }

    #[test]
    fn limits_survive_their_packet() {
        for wanted in [limits(None, None), limits(Some(8 * MEBIBYTE), None), limits(Some(4096), Some(77))] {
            let Request::Set { budget_pages, pool_bytes } = wanted.request() else { panic!("not a Set") };
            assert_eq!(Limits::of_request(budget_pages, pool_bytes), wanted);
        }
    }

    #[test]
    fn either_all_limits_change_or_none() {
        let application = Application::for_test();
        let now = |application: &Application| {
            (application.ledger.budget().bytes().get(), application.pool.usage().limit.get())
        };
        limits(Some(2 * MEBIBYTE), Some(3 * MEBIBYTE)).apply(&application).unwrap();
        assert_eq!(now(&application), (2 * MEBIBYTE, 3 * MEBIBYTE));
        let refusal = limits(Some(5 * MEBIBYTE), Some(u64::MAX)).apply(&application).unwrap_err();
        assert!(refusal.contains("at most"), "{refusal}");
        assert_eq!(now(&application), (2 * MEBIBYTE, 3 * MEBIBYTE));
        limits(Some(5 * MEBIBYTE), None).apply(&application).unwrap();
        assert_eq!(now(&application), (5 * MEBIBYTE, 3 * MEBIBYTE));
    }
}
