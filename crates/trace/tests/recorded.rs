//! Policies on traces of real programs, which were recorded once: `traces/README.md` says how.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use farmem_policy::{Advice, ChosenPrefetcher, PrefetchPolicy, Prefetcher, Run};
use farmem_trace::{
    Access, Course, Figures, Replay, Row, Step, TraceEntry, TraceHeader, TraceReader, courses, replay,
};

const NAMES: [&str; 8] = [
    "c-btree-scan",
    "c-list",
    "java-kmeans",
    "numpy-columns",
    "numpy-rows",
    "redis-get",
    "redis-scan",
    "sort-lines",
];
/// That of a page on a memory node, so that some come too late: nothing does that is in this machine.
const LATENCY_NS: u64 = 100_000;
/// They are in the repository for good.
const MOST_BYTES: u64 = 200_000;

struct Recording {
    name: &'static str,
    header: TraceHeader,
    courses: Vec<Course>,
    lost: u64,
    is_complete: bool,
}

fn traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces")
}

fn file_of(name: &str) -> PathBuf {
    traces().join(name).with_extension("trace")
}

impl Recording {
    fn of(name: &'static str) -> Self {
        let file = File::open(file_of(name)).expect("the trace is in the repository");
        let reader = TraceReader::new(BufReader::new(file)).expect("it is a trace of this version");
        let header = reader.header();
        let (mut records, mut lost, mut is_complete) = (Vec::new(), 0, false);
        for entry in reader {
            match entry.expect("it is not damaged") {
                TraceEntry::Record(record) => records.push(record),
                TraceEntry::Lost(count) => lost += count,
                TraceEntry::End => is_complete = true,
            }
        }
        Self { name, header, courses: courses(records), lost, is_complete }
    }

    fn all() -> impl Iterator<Item = Self> {
        NAMES.into_iter().map(Self::of)
    }

    fn rows(&self) -> Vec<Row> {
        let assumed = Replay { budget: self.header.budget, latency_ns: LATENCY_NS };
        replay(&self.courses, &PrefetchPolicy::BY_ADDRESS, assumed)
    }

    fn row(&self, policy: &str) -> Row {
        self.rows().into_iter().find(|row| row.policy == policy).expect("every policy has a row")
    }
}

fn accesses(course: &Course) -> impl Iterator<Item = Access> {
    course.steps.iter().filter_map(|step| match step {
        Step::Access(access) => Some(*access),
        _ => None,
    })
}

fn useless(figures: &Figures) -> u64 {
    figures.prefetched - figures.used
}

fn table(recording: &Recording) -> String {
    let mut text = format!("{}, {} pages local\n", recording.name, recording.header.budget.get());
    writeln!(
        text,
        "{:<10} {:>9} {:>8} {:>10} {:>8} {:>8} {:>13} {:>9} {:>7} {:>6}",
        "policy",
        "accesses",
        "faults",
        "prefetched",
        "used",
        "late",
        "contribution",
        "accuracy",
        "timely",
        "bound"
    )
    .expect("a string takes all");
    for row in recording.rows() {
        let Figures { accesses, faults, prefetched, used, late } = row.figures;
        writeln!(
            text,
            "{:<10} {accesses:>9} {faults:>8} {prefetched:>10} {used:>8} {late:>8} {:>13.3} {:>9.3} {:>7.3} {:>6.3}",
            row.policy, row.contribution, row.accuracy, row.timeliness, row.of_the_bound
        )
        .expect("a string takes all");
    }
    text
}

/// Whoever changes a policy sees here what that means for real programs.
#[test]
fn every_policy_has_the_figures_that_it_had() {
    let file = traces().join("figures.txt");
    let found = Recording::all().map(|recording| table(&recording)).collect::<Vec<_>>().join("\n");
    if std::env::var_os("FARMEM_TEST_RENEW").is_some() {
        fs::write(&file, &found).expect("the folder can be written");
    }
    let expected = fs::read_to_string(&file).expect("the figures are in the repository");
    assert!(
        found == expected,
        "{} says otherwise; with FARMEM_TEST_RENEW=1 this test writes what it found:\n{found}",
        file.display()
    );
}

#[test]
fn recordings_are_whole_small_and_without_prefetching() {
    let mut found: Vec<_> = fs::read_dir(traces())
        .expect("the folder is in the repository")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "trace"))
        .collect();
    found.sort();
    assert_eq!(found, NAMES.map(file_of));
    for recording in Recording::all() {
        assert!(recording.is_complete && recording.lost == 0, "{}", recording.name);
        assert_eq!(recording.header.policy, PrefetchPolicy::None, "{}", recording.name);
        let bytes = fs::metadata(file_of(recording.name)).expect("it was read").len();
        assert!(bytes <= MOST_BYTES, "{} has {bytes} bytes", recording.name);
    }
}

#[test]
fn the_same_recording_gives_the_same_figures() {
    for name in NAMES {
        assert_eq!(Recording::of(name).rows(), Recording::of(name).rows(), "{name}");
    }
}

#[test]
fn what_is_fetched_for_real_programs_adds_up_and_stays_below_what_could_be_had() {
    for recording in Recording::all() {
        let rows = recording.rows();
        for row in &rows {
            let Figures { accesses, faults, prefetched, used, late } = row.figures;
            assert!(accesses > 1000, "{}: {row:?}", recording.name);
            assert_eq!(accesses, faults + used, "{}: {row:?}", recording.name);
            assert_eq!(accesses, rows[0].figures.accesses, "{}: {row:?}", recording.name);
            assert!(late <= used && used <= prefetched, "{}: {row:?}", recording.name);
            assert!(row.of_the_bound <= 1.0, "{}: {row:?}", recording.name);
        }
        assert_eq!(recording.row("none").figures.prefetched, 0);
        assert!(recording.row("oracle").contribution > 0.85, "{}", recording.name);
    }
}

#[test]
fn streams_have_nine_tenths_of_what_could_be_had_of_rows_and_of_sorting() {
    for name in ["numpy-rows", "sort-lines"] {
        let streams = Recording::of(name).row("streams");
        assert!(streams.of_the_bound >= 0.9 && streams.accuracy >= 0.95, "{name}: {streams:?}");
    }
}

#[test]
fn columns_are_followed_by_those_who_know_strides() {
    let recording = Recording::of("numpy-columns");
    for name in ["streams", "leap"] {
        let row = recording.row(name);
        assert!(row.of_the_bound >= 0.8 && row.accuracy >= 0.8, "{row:?}");
    }
    // It takes the pages between them as well.
    let neighbour = recording.row("neighbour");
    assert!(neighbour.accuracy < 0.6, "{neighbour:?}");
    let readahead = recording.row("readahead");
    assert!(readahead.contribution < 0.1, "{readahead:?}");
}

#[test]
fn in_java_streams_find_arrays_among_the_faults_of_its_other_threads() {
    let recording = Recording::of("java-kmeans");
    let streams = recording.row("streams");
    assert!(streams.of_the_bound >= 0.8 && streams.accuracy >= 0.95, "{streams:?}");
    for name in ["readahead", "leap"] {
        let row = recording.row(name);
        assert!(row.contribution < streams.contribution, "{row:?} is better than {streams:?}");
    }
}

/// A page comes in time that was advised long before: the longer windows are, the more do.
#[test]
fn what_streams_bring_of_arrays_is_in_time_more_often_than_what_shorter_windows_bring() {
    for name in ["numpy-rows", "numpy-columns", "java-kmeans", "sort-lines"] {
        let recording = Recording::of(name);
        let streams = recording.row("streams");
        assert!(streams.timeliness > 0.75, "{name}: {streams:?}");
        for shorter in ["neighbour", "readahead", "leap"] {
            let row = recording.row(shorter);
            assert!(row.timeliness < streams.timeliness, "{name}: {row:?}, and {streams:?}");
        }
    }
}

/// What leads on are references, which the second tier follows. A trace has none of them (ADR 32).
#[test]
fn lists_trees_and_redis_have_no_order_that_addresses_tell() {
    for name in ["c-list", "c-btree-scan", "redis-get", "redis-scan"] {
        let streams = Recording::of(name).row("streams");
        assert!(streams.contribution < 0.05, "{name}: {streams:?}");
    }
}

/// The three that look at what became of what they fetched; `neighbour` never does.
const THRIFTY: [&str; 3] = ["readahead", "leap", "streams"];

#[test]
fn where_nothing_has_an_order_less_than_a_page_in_forty_faults_is_fetched_for_nothing() {
    for recording in ["redis-get", "redis-scan", "c-list", "c-btree-scan"].map(Recording::of) {
        for name in THRIFTY {
            let figures = recording.row(name).figures;
            assert!(useless(&figures) * 40 < figures.faults, "{} by {name}: {figures:?}", recording.name);
        }
    }
}

#[test]
fn what_a_policy_fetches_for_nothing_of_any_program_is_bounded() {
    for recording in Recording::all() {
        let neighbour = recording.row("neighbour").figures;
        assert!(useless(&neighbour) <= 15 * neighbour.faults, "{}: {neighbour:?}", recording.name);
        for name in THRIFTY {
            let figures = recording.row(name).figures;
            assert!(useless(&figures) * 5 < figures.accesses, "{} by {name}: {figures:?}", recording.name);
        }
    }
}

#[test]
fn on_real_faults_advice_lies_in_the_region_and_within_the_cache() {
    const CACHE_PAGES: u32 = 100;
    let count = |run: Option<Run>| run.map_or(0, |run| run.count);
    for recording in Recording::all() {
        for policy in PrefetchPolicy::BY_ADDRESS {
            let mut prefetcher = ChosenPrefetcher::new(policy, 64);
            prefetcher.set_cache(CACHE_PAGES);
            let mut twin = prefetcher.clone();
            let (mut advised, mut settled) = (0, 0);
            for Access { fault, bounds, .. } in recording.courses.iter().flat_map(accesses) {
                let advice = prefetcher.on_fault(fault, bounds);
                assert_eq!(advice, twin.on_fault(fault, bounds), "it has no other input");
                let Advice { fetch, used, expired } = advice;
                for page in fetch.iter().flat_map(|run| run.pages()) {
                    assert!(bounds.contains(page) && page != fault.page, "{policy:?}: {page:?} of {fault:?}");
                }
                assert!(prefetcher.unsettled_pages() <= CACHE_PAGES, "{policy:?} in {}", recording.name);
                advised += count(fetch);
                settled += count(used) + count(expired);
            }
            while let Some(run) = prefetcher.drain() {
                settled += run.count;
            }
            assert!(settled <= advised, "{policy:?} in {}: {settled} of {advised}", recording.name);
            assert_eq!(prefetcher.unsettled_pages(), 0);
        }
    }
}
