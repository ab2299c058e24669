//! Amounts of memory as people write them: `512M`, `1.5G`, `25%`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use farmem::parse_policy;
pub(crate) use farmem::parse_size;
use farmem_broker::{LEAST_POOL, MOST_WEIGHT};
use farmem_page::ByteCount;
use farmem_supervisor::{ClusterSource, Destination, NoRedundancy, PrefetchPolicy, Redundancy};

/// Less than this holds no program's start: its loader, its libraries' data and its first stack need more.
pub(crate) const BUDGET_MINIMUM: ByteCount = ByteCount::new(1 << 20);

/// Looks that are closer together show noise; a reader that looks more seldom has forgotten what was there.
const LEAST_INTERVAL: Duration = Duration::from_millis(100);
const MOST_INTERVAL: Duration = Duration::from_secs(3600);
/// A page that takes longer than this to come has another reason than the way.
const MOST_LATENCY: Duration = Duration::from_secs(1);

/// With less a slab would take longer than is waited for a node.
const LEAST_BANDWIDTH: ByteCount = ByteCount::new(1 << 20);

/// Unless told otherwise a budget that follows the program never becomes smaller.
pub(crate) const AUTO_LEAST: ByteCount = ByteCount::new(16 << 20);

/// How much local memory a program may keep, as it was asked for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum LocalAmount {
    /// So many bytes.
    Bytes(ByteCount),
    /// This share, in percent, of the memory that this user may use.
    Percent(f64),
    /// As little as the program can do with, within bounds.
    Auto(AutoRange),
}

/// Bounds of a budget that follows the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AutoRange {
    /// Without it, [`AUTO_LEAST`].
    pub(crate) least: Option<ByteCount>,
    /// Without it, what this user may use.
    pub(crate) most: Option<ByteCount>,
}

/// Where cold pages go when the pool is full, as it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DiskAmount {
    /// A file or a folder.
    pub(crate) path: PathBuf,
    /// At most so much; without it, what is free there.
    pub(crate) size: Option<ByteCount>,
}

/// Reads a local budget that is a size: one that holds a program's start.
pub(crate) fn parse_budget(text: &str) -> Result<ByteCount, String> {
    let bytes = parse_size(text)?;
    if bytes < BUDGET_MINIMUM {
        return Err(format!(
            "{} hold no program; write at least {}",
            Readable(bytes),
            Readable(BUDGET_MINIMUM)
        ));
    }
    Ok(bytes)
}

/// Reads a size, a percentage, or `auto` with or without bounds.
pub(crate) fn parse_local(text: &str) -> Result<LocalAmount, String> {
    if let Some(rest) = text.strip_prefix("auto") {
        return parse_range(rest).map(LocalAmount::Auto);
    }
    let Some(number) = text.strip_suffix('%') else {
        let bytes = parse_size(text)
            .map_err(|_| "write a size as `512M` or `1.5G`, or a percentage as `25%`".to_owned())?;
        return Ok(LocalAmount::Bytes(bytes));
    };
    match number.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(LocalAmount::Percent(percent)),
        _ => Err("write a percentage above 0% and up to 100%, such as `25%`".to_owned()),
    }
}

/// Reads nothing, or `:MIN-MAX`.
fn parse_range(text: &str) -> Result<AutoRange, String> {
    const SHOWN: &str = "write `auto`, or with bounds `auto:64M-2G`";
    if text.is_empty() {
        return Ok(AutoRange::default());
    }
    let (least, most) = text.strip_prefix(':').and_then(|range| range.split_once('-')).ok_or(SHOWN)?;
    let (least, most) = (parse_size(least).map_err(|_| SHOWN)?, parse_size(most).map_err(|_| SHOWN)?);
    if least > most {
        return Err(format!("{} is more than {}; {SHOWN}", Readable(least), Readable(most)));
    }
    Ok(AutoRange { least: Some(least), most: Some(most) })
}

/// Reads a time from a tenth of a second to an hour.
pub(crate) fn parse_interval(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if (LEAST_INTERVAL..=MOST_INTERVAL).contains(&time) => Ok(time),
        _ => Err("write a time from 100ms to 1h with its unit, such as `2s`".to_owned()),
    }
}

/// Reads how long a page takes to come.
pub(crate) fn parse_latency(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time <= MOST_LATENCY => Ok(time),
        _ => Err("write a time up to 1s with its unit, such as `10us`".to_owned()),
    }
}

/// Reads the share of its time that a program may stall: a percentage, as a part of one.
pub(crate) fn parse_stall(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok()) {
        Some(percent) if percent > 0.0 && percent <= 50.0 => Ok(percent / 100.0),
        _ => Err("write a percentage above 0% and up to 50%, such as `2%`".to_owned()),
    }
}

/// Reads `PATH` or `PATH:SIZE`. A colon that no size follows belongs to the path.
pub(crate) fn parse_disk(text: &str) -> Result<DiskAmount, String> {
    let (path, size) = match text.rsplit_once(':') {
        Some((path, size)) if size.starts_with(|first: char| first.is_ascii_digit()) => {
            (path, Some(parse_size(size)?))
        }
        _ => (text, None),
    };
    if path.is_empty() {
        return Err("write a path, or a path and a size, as `/var/tmp/far:8G`".to_owned());
    }
    Ok(DiskAmount { path: path.into(), size })
}

/// A limit to change.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Setting {
    /// The local budget.
    Local(LocalAmount),
    /// The pool.
    Pool(PoolAmount),
    /// What is in the pool and on disk together.
    Partition(ByteCount),
    /// The part against others of the same host.
    Weight(u32),
    /// The swap cache.
    Cache(ByteCount),
}

/// How much a pool may take, as it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PoolAmount {
    /// What it gets of a host's whenever it wants it.
    pub(crate) guaranteed: Option<ByteCount>,
    /// What it takes at most.
    pub(crate) most: ByteCount,
}

/// Reads `SIZE` or `GUARANTEED-MAXIMUM`.
pub(crate) fn parse_pool(text: &str) -> Result<PoolAmount, String> {
    let Some((guaranteed, most)) = text.split_once('-') else {
        return Ok(PoolAmount { guaranteed: None, most: parse_size(text)? });
    };
    let (guaranteed, most) = (parse_size(guaranteed)?, parse_size(most)?);
    if guaranteed > most {
        return Err(format!(
            "{} guaranteed is more than {} at most; write the smaller one first, as `64M-2G`",
            Readable(guaranteed),
            Readable(most)
        ));
    }
    Ok(PoolAmount { guaranteed: Some(guaranteed), most })
}

/// Reads a limit of far memory: a size of at least [`LEAST_POOL`].
pub(crate) fn parse_partition(text: &str) -> Result<ByteCount, String> {
    let bytes = parse_size(text)?;
    if bytes < LEAST_POOL {
        return Err(format!(
            "{} hold nobody's pages; write at least {}",
            Readable(bytes),
            Readable(LEAST_POOL)
        ));
    }
    Ok(bytes)
}

/// Reads the limit of a swap cache: a size, or 0 for none.
pub(crate) fn parse_cache(text: &str) -> Result<ByteCount, String> {
    if text == "0" { Ok(ByteCount::ZERO) } else { parse_size(text) }
}

/// Reads a limit of bytes per second, with units as of sizes.
pub(crate) fn parse_bandwidth(text: &str) -> Result<ByteCount, String> {
    let plain = text.strip_suffix("/s").unwrap_or(text);
    match parse_size(plain) {
        Ok(bandwidth) if bandwidth >= LEAST_BANDWIDTH => Ok(bandwidth),
        _ => Err("write bytes per second as `100M` or `1.5G`, at least 1M".to_owned()),
    }
}

/// Reads how much a read from a node brings.
pub(crate) fn parse_node_read(text: &str) -> Result<ByteCount, String> {
    match parse_size(text) {
        Ok(read) if (4 << 10..=64 << 10).contains(&read.get()) && read.get().is_power_of_two() => Ok(read),
        _ => Err("write 4K, 8K, 16K, 32K or 64K".to_owned()),
    }
}

/// Reads the size of the read buffer.
pub(crate) fn parse_read_buffer(text: &str) -> Result<ByteCount, String> {
    match parse_size(text) {
        Ok(size) if (1 << 20..=64 << 20).contains(&size.get()) => Ok(size),
        _ => Err("write a size from `1M` to `64M`".to_owned()),
    }
}

/// Reads how much a node grants ahead of need.
pub(crate) fn parse_node_reserve(text: &str) -> Result<ByteCount, String> {
    match parse_size(text) {
        Ok(size) if (1..=1 << 30).contains(&size.get()) => Ok(size),
        _ => Err("write a size up to `1G`".to_owned()),
    }
}

/// Reads how often something happens, as a part: `1%`.
pub(crate) fn parse_rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    match number {
        Some(percent) if percent.is_finite() && percent >= 0.0 => Ok(percent / 100.0),
        _ => Err("write a rate as `1%` or `0.5%`".to_owned()),
    }
}

/// Reads a weight.
pub(crate) fn parse_weight(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(weight) if (1..=MOST_WEIGHT).contains(&weight) => Ok(weight),
        _ => Err(format!("write a weight as a whole number from 1 to {MOST_WEIGHT}")),
    }
}

/// Reads the name of a policy of prefetching.
pub(crate) fn parse_prefetch() -> impl TypedValueParser<Value = PrefetchPolicy> {
    parse_policy(PrefetchPolicy::ALL)
}

/// Reads the name of a policy that can be tried on a trace.
pub(crate) fn parse_replayed() -> impl TypedValueParser<Value = PrefetchPolicy> {
    parse_policy(PrefetchPolicy::BY_ADDRESS)
}

/// Reads the address of a memory node.
pub(crate) fn parse_node(text: &str) -> Result<Destination, String> {
    text.parse().map_err(|error| format!("{error}; write where `farmem node` listens, such as memory-3:7431"))
}

/// A memory node, as a run is told of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NodeChoice {
    /// None at all, whatever the host names.
    None,
    /// One.
    At(Destination),
}

/// Reads a node, or that there is to be none.
pub(crate) fn parse_node_choice(text: &str) -> Result<NodeChoice, String> {
    if text == "none" { Ok(NodeChoice::None) } else { parse_node(text).map(NodeChoice::At) }
}

/// Reads where it is said which nodes there are.
pub(crate) fn parse_cluster(text: &str) -> Result<ClusterSource, String> {
    text.parse()
}

/// Reads a size that stays as it is written.
pub(crate) fn parse_size_as_written(text: &str) -> Result<String, String> {
    parse_size(text).map(|_| text.to_owned())
}

/// Reads how slabs lie on memory nodes.
pub(crate) fn parse_redundancy(text: &str) -> Result<Redundancy, String> {
    text.parse().map_err(|error: NoRedundancy| error.to_string())
}

/// Reads `LIMIT=VALUE`.
pub(crate) fn parse_setting(text: &str) -> Result<Setting, String> {
    match text.split_once('=') {
        Some(("local", value)) => match parse_local(value)? {
            LocalAmount::Auto(_) => {
                Err("a budget follows a program from its start or not at all; give a size or a percentage"
                    .to_owned())
            }
            local => Ok(Setting::Local(local)),
        },
        Some(("pool", value)) => parse_pool(value).map(Setting::Pool),
        Some(("partition", value)) => parse_partition(value).map(Setting::Partition),
        Some(("weight", value)) => parse_weight(value).map(Setting::Weight),
        Some(("cache", value)) => parse_cache(value).map(Setting::Cache),
        _ => {
            Err("write a limit as `local=512M`, `pool=2G`, `partition=8G`, `cache=32M` or `weight=2`"
                .to_owned())
        }
    }
}

/// Reads an application's name.
pub(crate) fn parse_name(text: &str) -> Result<String, String> {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if text.is_empty() || text.len() > 64 || text.starts_with(['.', '-']) || !text.chars().all(allowed) {
        return Err(
            "a name has up to 64 letters, digits, dots, dashes and underscores, and starts with a letter or \
                    digit"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

impl LocalAmount {
    /// The bytes that are meant, at most, where `usable` is what this user may use at most.
    ///
    /// # Errors
    /// A sentence, when no program could start within it or when the machine doesn't have it.
    pub(crate) fn resolve(self, usable: ByteCount) -> Result<ByteCount, String> {
        let bytes = match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => ByteCount::new((usable.get() as f64 * percent / 100.0) as u64),
            Self::Auto(range) => range.most.unwrap_or(usable),
        };
        if bytes < BUDGET_MINIMUM {
            return Err(format!(
                "a budget of {} is too small for any program to start; give --local at least {}",
                Readable(bytes),
                Readable(BUDGET_MINIMUM)
            ));
        }
        if bytes > usable {
            return Err(format!(
                "a budget of {} is more than the {} that this user may use; give --local less",
                Readable(bytes),
                Readable(usable)
            ));
        }
        Ok(bytes)
    }
}

/// A number of bytes in the largest unit that keeps it readable.
pub(crate) struct Readable(pub(crate) ByteCount);

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.get();
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.into_iter().find(|(shift, _)| bytes >= 1 << shift) {
            Some((shift, unit)) => {
                let amount = bytes as f64 / (1_u64 << shift) as f64;
                write!(f, "{} {unit}", (amount * 10.0).round() / 10.0)
            }
            None => write!(f, "{bytes} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, bytes) in [
            ("512M", 512 << 20),
            ("1.5G", GIB * 3 / 2),
            ("4096K", 4 << 20),
            ("8192", 8192),
            ("2GiB", 2 * GIB),
        ] {
            assert_eq!(parse_size(text), Ok(ByteCount::new(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "0", "-1", "lots", "1.5X", "M", "5%"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn percentages_are_read() {
        assert_eq!(parse_local("25%"), Ok(LocalAmount::Percent(25.0)));
        assert_eq!(parse_local("12.5%"), Ok(LocalAmount::Percent(12.5)));
    }

    #[test]
    fn impossible_percentages_are_refused() {
        for text in ["0%", "101%", "-5%", "%", "many%", "NaN%"] {
            assert!(parse_local(text).is_err(), "{text}");
        }
    }

    #[test]
    fn budgets_that_follow_the_program_are_read() {
        let range = |least: u64, most: u64| {
            Ok(LocalAmount::Auto(AutoRange {
                least: Some(ByteCount::new(least)),
                most: Some(ByteCount::new(most)),
            }))
        };
        assert_eq!(parse_local("auto"), Ok(LocalAmount::Auto(AutoRange::default())));
        assert_eq!(parse_local("auto:64M-2G"), range(64 << 20, 2 * GIB));
        for text in ["auto:", "auto:64M", "auto:2G-64M", "automatic", "auto:a-b", "auto-64M"] {
            assert!(parse_local(text).is_err(), "{text}");
        }
        assert_eq!(parse_interval("1500ms"), Ok(Duration::from_millis(1500)));
        for text in ["2", "0s", "50ms", "2h", "soon", ""] {
            assert!(parse_interval(text).is_err(), "{text}");
        }
        assert_eq!(parse_stall("2%"), Ok(0.02));
        for text in ["0%", "2", "51%", "%", "NaN%", "-1%"] {
            assert!(parse_stall(text).is_err(), "{text}");
        }
    }

    #[test]
    fn pools_are_read_with_and_without_a_guarantee() {
        let pool = |guaranteed: Option<u64>, most| {
            Ok(PoolAmount { guaranteed: guaranteed.map(ByteCount::new), most: ByteCount::new(most) })
        };
        assert_eq!(parse_pool("2G"), pool(None, 2 * GIB));
        assert_eq!(parse_pool("64M-2G"), pool(Some(64 << 20), 2 * GIB));
        for text in ["2G-64M", "-2G", "64M-", "0-1G", "a-b"] {
            assert!(parse_pool(text).is_err(), "{text}");
        }
        assert_eq!(parse_cache("0"), Ok(ByteCount::ZERO));
        assert_eq!(parse_setting("cache=8M"), Ok(Setting::Cache(ByteCount::new(8 << 20))));
        assert!(parse_cache("none").is_err());
        assert_eq!(parse_weight("7"), Ok(7));
        assert_eq!(parse_bandwidth("100M/s"), Ok(ByteCount::new(100 << 20)));
        assert!(parse_bandwidth("1K").is_err() && parse_bandwidth("fast").is_err());
        for text in ["0", "1001", "1.5", "-1", ""] {
            assert!(parse_weight(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_percentage_is_of_what_can_be_used() {
        assert_eq!(LocalAmount::Percent(25.0).resolve(ByteCount::new(4 * GIB)), Ok(ByteCount::new(GIB)));
    }

    #[test]
    fn budgets_that_cannot_work_are_refused() {
        let usable = ByteCount::new(4 * GIB);

        assert!(LocalAmount::Bytes(ByteCount::new(4096)).resolve(usable).is_err());
        assert!(LocalAmount::Bytes(ByteCount::new(5 * GIB)).resolve(usable).is_err());
    }

    #[test]
    fn a_disk_path_may_hold_colons() {
        let disk =
            |path: &str, size: Option<u64>| DiskAmount { path: path.into(), size: size.map(ByteCount::new) };

        assert_eq!(parse_disk("/far"), Ok(disk("/far", None)));
        assert_eq!(parse_disk("/far:2G"), Ok(disk("/far", Some(2 * GIB))));
        assert_eq!(parse_disk("/a:b"), Ok(disk("/a:b", None)));
        assert!(parse_disk(":2G").is_err());
        assert!(parse_disk("/far:2X").is_err());
    }

    #[test]
    fn names_are_plain() {
        assert!(parse_name("redis-1.main").is_ok());
        for text in ["", ".hidden", "a/b", "a b", &"x".repeat(65)] {
            assert!(parse_name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_are_shown_in_a_readable_unit() {
        assert_eq!(Readable(ByteCount::new(1536 << 20)).to_string(), "1.5 GiB");
        assert_eq!(Readable(ByteCount::new(12)).to_string(), "12 bytes");
    }
}
