//! What is written is read; what is something else is refused.

use farmem_page::{PageCount, PageIndex};
use farmem_policy::PrefetchPolicy;
use farmem_telemetry::{TraceKind, TraceRecord};
use farmem_trace::{TraceEntry, TraceError, TraceHeader, TraceReader, TraceWriter, summarise};
use proptest::collection::vec;
use proptest::prelude::*;

const HEADER: TraceHeader = TraceHeader { budget: PageCount::new(1234), policy: PrefetchPolicy::Leap };

fn record() -> impl Strategy<Value = TraceRecord> {
    let kind = (0..TraceKind::ALL.len()).prop_map(|at| TraceKind::ALL[at]);
    (kind, 0..1024_u16, 0..1_u64 << 48, prop_oneof![0..4_u32, any::<u32>()], 0..1_u64 << 56).prop_map(
        |(kind, slot, page, detail, time_ns)| TraceRecord {
            kind,
            slot,
            page: PageIndex::new(page),
            detail,
            time_ns,
        },
    )
}

fn written(records: &[TraceRecord]) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), &HEADER).unwrap();
    records.iter().for_each(|record| writer.record(record).unwrap());
    writer.lost(7).unwrap();
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> Vec<Result<TraceEntry, TraceError>> {
    TraceReader::new(bytes).unwrap().collect()
}

proptest! {
    #[test]
    fn what_is_written_is_read(records in vec(record(), 0..50)) {
        let bytes = written(&records);
        prop_assert_eq!(TraceReader::new(bytes.as_slice()).unwrap().header(), HEADER);
        let mut entries: Vec<_> = read(&bytes).into_iter().map(Result::unwrap).collect();
        prop_assert_eq!(entries.pop(), Some(TraceEntry::End));
        prop_assert_eq!(entries.pop(), Some(TraceEntry::Lost(7)));
        let expected: Vec<_> = records.into_iter().map(TraceEntry::Record).collect();
        prop_assert_eq!(entries, expected);
    }

    #[test]
    fn of_what_was_cut_off_the_beginning_is_read(records in vec(record(), 1..20), cut in any::<prop::sample::Index>()) {
        let bytes = written(&records);
        let bytes = &bytes[..24 + cut.index(bytes.len() - 24)];
        let mut expected = records.into_iter();
        for entry in read(bytes) {
            match entry.unwrap() {
                TraceEntry::Record(record) => prop_assert_eq!(Some(record), expected.next()),
                TraceEntry::Lost(count) => prop_assert_eq!(count, 7),
                TraceEntry::End => prop_assert!(false, "it was cut off before"),
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        let mut trace = written(&[]);
        trace.truncate(24);
        trace.extend(bytes);
        let entries = read(&trace);
        let errors = entries.iter().filter(|entry| entry.is_err()).count();
        prop_assert!(errors <= 1 && entries.iter().rev().skip(1).all(Result::is_ok));
    }
}

#[test]
fn other_files_are_no_traces() {
    assert!(matches!(TraceReader::new(&b""[..]), Err(TraceError::NoTrace)));
    assert!(matches!(TraceReader::new(&b"#!/bin/sh\necho something longer\n"[..]), Err(TraceError::NoTrace)));
    let mut later = written(&[]);
    later[8] = 200;
    assert!(matches!(TraceReader::new(later.as_slice()), Err(TraceError::Version(200))));
}

#[test]
fn a_record_of_no_kind_is_damage_and_says_where() {
    let mut bytes = written(&[]);
    bytes[24] = 0;
    assert!(matches!(read(&bytes).as_slice(), [Err(TraceError::Damaged(24))]));
}

/// Counts that a damaged file has are not to be believed, and no reason to panic.
#[test]
fn more_lost_records_than_can_be_counted_are_as_many_as_can_be_counted() {
    let mut writer = TraceWriter::new(Vec::new(), &HEADER).unwrap();
    writer.lost(u64::MAX).unwrap();
    writer.lost(2).unwrap();
    let bytes = writer.finish().unwrap();
    let summary = summarise(HEADER, TraceReader::new(bytes.as_slice()).unwrap()).unwrap();
    assert_eq!(summary.lost, u64::MAX);
}

/// Written out by hand from docs/formats/trace.md, as version 0.2.0 of Farmem has it: traces outlive their
/// runs.
#[test]
fn a_trace_of_version_0_2_0_is_read() {
    let mut bytes = b"FARMTRAC\x01\0\0\0\x04\0\0\0\xd2\x04\0\0\0\0\0\0".to_vec();
    // Of slot 0: page 5 after 100 ns, by thread 7.
    bytes.extend([0x11, 10, 0xc8, 1, 7]);
    // Of slot 2: page 300, 50 ns earlier, without a detail.
    bytes.extend([0x26, 2, 0xd8, 4, 99]);
    // Three are missing here. The end.
    bytes.extend([0x0e, 3, 0x0f]);

    let entries: Vec<_> = read(&bytes).into_iter().map(Result::unwrap).collect();

    let record = |kind, slot, page, detail, time_ns| {
        TraceEntry::Record(TraceRecord { kind, slot, page: PageIndex::new(page), detail, time_ns })
    };
    let expected = [
        record(TraceKind::Fault, 0, 5, 7, 100),
        record(TraceKind::Evict, 2, 300, 0, 50),
        TraceEntry::Lost(3),
        TraceEntry::End,
    ];
    assert_eq!(entries, expected);
    assert_eq!(TraceReader::new(bytes.as_slice()).unwrap().header(), HEADER);
}
