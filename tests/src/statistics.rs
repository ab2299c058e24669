//! What `farmem run --stats FILE` writes when the program has ended.

use std::path::Path;

use serde_json::Value;

/// The keys that must be there, each a number.
pub const REQUIRED_KEYS: [&str; 21] = [
    "wall_seconds",
    "cpu_seconds",
    "pager_cpu_seconds",
    "budget_bytes",
    "resident_peak_bytes",
    "managed_peak_bytes",
    "faults",
    "faults_in_syscalls",
    "fetches",
    "prefetched",
    "prefetch_used",
    "contribution",
    "accuracy",
    "staged_hits",
    "evicted",
    "dropped_clean",
    "entries_allocated",
    "entries_reused",
    "pool_bytes",
    "pool_stored_bytes",
    "disk_bytes",
];

const REQUIRED_TIMES: [&str; 2] = ["fault_p50_us", "fault_p99_us"];

const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// The statistics of one run.
#[derive(Clone, Debug)]
pub struct Statistics {
    value: Value,
}

impl Statistics {
    /// Reads a statistics file, and checks that it is one JSON object with every required key a number.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("the statistics {} can't be read: {error}", path.display()))?;
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| format!("the statistics are not JSON: {error}\n{text}"))?;
        for key in REQUIRED_KEYS.iter().chain(&REQUIRED_TIMES) {
            if !value.get(key).is_some_and(Value::is_number) {
                return Err(format!("the statistics have no number `{key}`:\n{text}"));
            }
        }
        Ok(Self { value })
    }

    /// One number.
    ///
    /// # Panics
    /// When there is no such key.
    #[must_use]
    pub fn number(&self, key: &str) -> f64 {
        self.value
            .get(key)
            .and_then(Value::as_f64)
            .unwrap_or_else(|| panic!("the statistics have no number `{key}`"))
    }

    /// One number of those that have a name together.
    ///
    /// # Panics
    /// When there is no such key.
    #[must_use]
    pub fn number_of(&self, key: &str, part: &str) -> f64 {
        self.value[key][part].as_f64().unwrap_or_else(|| panic!("the statistics have no {part} in `{key}`"))
    }

    /// Says so when more was resident than a program may have with such a budget.
    #[must_use]
    pub fn overshoot(&self, budget_bytes: u64) -> Option<String> {
        let most = budget_bytes as f64 * 1.05 + 16.0 * MEBIBYTE;
        (self.number("resident_peak_bytes") > most)
            .then(|| format!("resident memory went past budget + 5% + 16 MiB: {}", self.value))
    }

    /// Everything in these statistics that can't be true, one sentence each.
    #[must_use]
    pub fn contradictions(&self, budget_bytes: u64) -> Vec<String> {
        let mut found = Vec::new();
        let number = |key: &str| self.number(key);
        let mut check = |holds: bool, sentence: &str| {
            if !holds {
                found.push(format!("{sentence}: {}", self.value));
            }
        };
        let budget = budget_bytes as f64;
        check(
            (number("budget_bytes") - budget).abs() <= MEBIBYTE,
            "the budget is not the one that was asked for",
        );
        for share in ["contribution", "accuracy"] {
            check((0.0..=1.0).contains(&number(share)), &format!("{share} is not a share"));
        }
        check(
            number("prefetch_used") <= number("prefetched"),
            "more prefetched pages were used than fetched",
        );
        check(
            number("fault_p50_us") <= number("fault_p99_us"),
            "the median fault took longer than the 99th percentile",
        );
        check(number("wall_seconds") > 0.0, "the run took no time");
        check(number("dropped_clean") <= number("evicted"), "more pages were dropped clean than left at all");
        found
    }

    /// What a program that needs more than its budget should have had, one sentence each. A short one may be
    /// over before its pager has come that far, where processors are short.
    #[must_use]
    pub fn lacks(&self) -> Vec<String> {
        // The peak that a budget is a part of may have been that of several processes at once.
        let is_one = self.number("processes_started") <= 1.0;
        [
            ("managed_peak_bytes", "no memory was managed"),
            ("faults", "there were no faults although the program needs more than its budget"),
            ("evicted", "nothing was evicted although the program needs more than its budget"),
        ]
        .into_iter()
        .filter(|&(key, _)| is_one && self.number(key) <= 0.0)
        .map(|(_, sentence)| format!("{sentence}: {}", self.value))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(change: impl Fn(&mut Value)) -> Statistics {
        let mut value = Value::Object(
            REQUIRED_KEYS
                .iter()
                .chain(&REQUIRED_TIMES)
                .map(|key| ((*key).to_owned(), Value::from(1)))
                .collect(),
        );
        value["budget_bytes"] = Value::from(64 << 20);
        value["processes_started"] = Value::from(1);
        change(&mut value);
        Statistics { value }
    }

    #[test]
    fn plausible_statistics_have_no_contradictions() {
        assert_eq!(statistics(|_| ()).contradictions(64 << 20), Vec::<String>::new());
        assert_eq!(statistics(|_| ()).lacks(), Vec::<String>::new());
    }

    #[test]
    fn residence_past_the_budget_is_an_overshoot() {
        let over = statistics(|value| value["resident_peak_bytes"] = Value::from(100 << 20));
        assert!(over.overshoot(64 << 20).is_some() && over.overshoot(80 << 20).is_none());
    }

    #[test]
    fn a_run_without_faults_lacks_them() {
        let idle = statistics(|value| value["faults"] = Value::from(0));
        assert_eq!((idle.lacks().len(), idle.contradictions(64 << 20).len()), (1, 0));
    }
}
