//! A trace's file of any content is read or refused, and told and replayed without a panic. What was read,
//! and written again, is read the same.
#![no_main]

use farmem_page::PageCount;
use farmem_policy::PrefetchPolicy;
use farmem_trace::{Replay, TraceEntry, TraceHeader, TraceReader, TraceWriter, courses, replay, summarise};
use libfuzzer_sys::fuzz_target;

/// More records make a run slow, and nothing else.
const MOST_RECORDS: usize = 256;

fuzz_target!(|bytes: &[u8]| {
    let _ = TraceReader::new(bytes).map(|reader| reader.count());
    // The fuzzer doesn't guess what stands in front: the rest is a trace's records.
    let header = TraceHeader { budget: PageCount::new(64), policy: PrefetchPolicy::None };
    let mut file =
        TraceWriter::new(Vec::new(), &header).and_then(TraceWriter::finish).expect("memory takes all");
    file.pop();
    file.extend(bytes);
    let Ok(reader) = TraceReader::new(file.as_slice()) else {
        panic!("a header that was just written is read")
    };
    assert_eq!(reader.header(), header);
    let entries: Vec<_> = reader.map_while(Result::ok).take(MOST_RECORDS).collect();

    let mut writer = TraceWriter::new(Vec::new(), &header).expect("memory takes all");
    for entry in &entries {
        match entry {
            TraceEntry::Record(record) => writer.record(record).expect("memory takes all"),
            TraceEntry::Lost(count) => writer.lost(*count).expect("memory takes all"),
            // Nothing follows.
            TraceEntry::End => break,
        }
    }
    let again = writer.finish().expect("memory takes all");
    let again: Vec<_> =
        TraceReader::new(again.as_slice()).expect("a trace").map(|entry| entry.expect("whole")).collect();
    let ended = entries.strip_suffix(&[TraceEntry::End]).unwrap_or(&entries);
    assert_eq!(again.strip_suffix(&[TraceEntry::End]), Some(ended));

    let summary = summarise(header, entries.iter().copied().map(Ok)).expect("no entry is an error");
    assert_eq!(summary.is_complete, entries.len() != ended.len());
    let records = ended.iter().filter_map(|entry| match entry {
        TraceEntry::Record(record) => Some(*record),
        _ => None,
    });
    let rows = replay(
        &courses(records),
        &PrefetchPolicy::BY_ADDRESS,
        Replay { budget: header.budget, latency_ns: 10_000 },
    );
    assert!(
        rows.iter()
            .all(|row| row.figures.used <= row.figures.prefetched
                && row.figures.faults <= row.figures.accesses)
    );
});
