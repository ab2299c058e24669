//! What has gone wrong with an application's memory, in sentences.

use farmem_page::mebibytes;

use crate::report::run::Report;

/// One sentence for each thing that an operator should know of; none while all is well.
pub fn troubles(report: &Report) -> Vec<String> {
    let mut troubles = Vec::new();
    if report.node_lacking_bytes > 0 {
        troubles.push(format!(
            "the redundancy of {} is not whole: {:.1} MiB of it are lacking on nodes",
            report.redundancy,
            mebibytes(report.node_lacking_bytes)
        ));
    }
    if report.node_exposed_bytes > 0 {
        troubles.push(format!(
            "one rack holds too much of {:.1} MiB, which would be lost with it; nodes in other racks are lacking, or room there",
            mebibytes(report.node_exposed_bytes)
        ));
    }
    if report.node_damaged > 0 {
        troubles.push(format!(
            "nodes answered {} times with other bytes than were written; right ones were made from those of others",
            report.node_damaged
        ));
    }
    if report.disk_writes_failed > 0 {
        troubles.push(format!(
            "the disk refused {} writes; what was to be written stayed in the pool",
            report.disk_writes_failed
        ));
    }
    troubles.extend(report.lost_pages.iter().map(|lost| {
        format!(
            "page {:#x} of process {} is lost: it could not be read back; whoever touches it gets a SIGBUS",
            lost.address, lost.process
        )
    }));
    let unnamed = report.counter("lost").saturating_sub(report.lost_pages.len() as u64);
    if unnamed > 0 {
        troubles.push(format!("{unnamed} more pages are lost"));
    }
    troubles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_while_all_is_well() {
        assert!(troubles(&Report::default()).is_empty());
    }

    #[test]
    fn each_trouble_is_a_sentence() {
        let report = Report {
            redundancy: "4+2".to_owned(),
            node_lacking_bytes: 3 << 20,
            node_exposed_bytes: 5 << 20,
            node_damaged: 2,
            disk_writes_failed: 1,
            counters: [("lost".to_owned(), 5_u64.into())].into_iter().collect(),
            ..Report::default()
        };
        let said = troubles(&report);
        assert_eq!(said.len(), 5, "{said:?}");
        assert!(said[1].contains("one rack") && said[1].contains("5.0 MiB"), "{said:?}");
        assert!(said[0].contains("4+2") && said[0].contains("3.0 MiB"), "{said:?}");
    }
}
