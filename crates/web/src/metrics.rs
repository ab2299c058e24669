//! Figures for Prometheus, in OpenMetrics' text format. Names, units and meanings are those of the ledger's
//! and the report's descriptions.

use std::fmt;

use farmem_client::{FIGURES, Figure, FigureUnit, FigureValue, Report};
use farmem_telemetry::{COUNTERS, Kind};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit as Suffix};

/// Before each name.
const PREFIX: &str = "farmem";

/// What a measure counts.
pub type Unit = FigureUnit;

/// A figure of the process itself that is asked: a node's, a broker's.
#[derive(Clone, PartialEq, Debug)]
pub struct Measure {
    /// Its name, without prefix and unit: `node_free`.
    pub name: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// Whether it only grows.
    pub is_total: bool,
    /// How much.
    pub value: f64,
}

/// What is told of applications, and of the process itself, as text.
pub fn text(reports: &[Report], measures: &[Measure]) -> String {
    let mut registry = Registry::default();
    registry
        .register_collector(Box::new(Snapshot { reports: reports.to_vec(), measures: measures.to_vec() }));
    let mut text = String::new();
    // Writing to a string doesn't fail.
    let _ = text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Snapshot {
    reports: Vec<Report>,
    measures: Vec<Measure>,
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for measure in &self.measures {
            let described = Described {
                name: measure.name,
                meaning: measure.meaning,
                unit: measure.unit,
                is_total: measure.is_total,
            };
            described.encode(&mut encoder, &[(Vec::new(), measure.value)])?;
        }
        if self.reports.is_empty() {
            return Ok(());
        }
        for Figure { name, meaning, unit, is_total, value } in FIGURES {
            let described = Described { name, meaning, unit: *unit, is_total: *is_total };
            let samples: Vec<Sample> =
                self.reports.iter().flat_map(|report| samples(report, value)).collect();
            described.encode(&mut encoder, &samples)?;
        }
        for (_, name, _, meaning) in COUNTERS.iter().filter(|(_, _, kind, _)| *kind == Kind::Total) {
            let (shown, unit, scale) = match name.strip_suffix("_ns") {
                Some(shown) => (shown, Unit::Seconds, 1e9),
                None => (*name, Unit::Count, 1.0),
            };
            let described = Described { name: shown, meaning, unit, is_total: true };
            let value = |report: &Report| (labels(report), report.counter(name) as f64 / scale);
            let samples: Vec<Sample> = self.reports.iter().map(value).collect();
            described.encode(&mut encoder, &samples)?;
        }
        Ok(())
    }
}

/// What tells it from others of its family, and how much.
type Sample = (Vec<(&'static str, String)>, f64);

/// What an application has of a figure.
fn samples(report: &Report, value: &FigureValue) -> Vec<Sample> {
    match value {
        FigureValue::One(value) => vec![(labels(report), value(report))],
        // No sample for the whole next to them: whoever sums over the family would count everything twice.
        FigureValue::ByClass(value) => value(report)
            .named()
            .into_iter()
            .map(|(class, bytes)| {
                let mut labels = labels(report);
                labels.push(("class", class.to_owned()));
                (labels, bytes as f64)
            })
            .collect(),
    }
}

/// Which application it is.
fn labels(report: &Report) -> Vec<(&'static str, String)> {
    vec![("application", escaped(&report.name)), ("process", report.process.to_string())]
}

/// The name of an application can be that of any file.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

struct Described<'a> {
    name: &'a str,
    meaning: &'a str,
    unit: Unit,
    is_total: bool,
}

impl Described<'_> {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>, samples: &[Sample]) -> fmt::Result {
        let name = format!("{PREFIX}_{}", self.name);
        let suffix = match self.unit {
            Unit::Count => None,
            Unit::Bytes => Some(Suffix::Bytes),
            Unit::Seconds => Some(Suffix::Seconds),
            Unit::Ratio => Some(Suffix::Other("ratio".to_owned())),
        };
        // A line of its own in the text.
        let meaning: Vec<&str> = self.meaning.split_whitespace().collect();
        let meaning = meaning.join(" ");
        let kind = if self.is_total { MetricType::Counter } else { MetricType::Gauge };
        let mut metric = encoder.encode_descriptor(&name, &meaning, suffix.as_ref(), kind)?;
        for (labels, value) in samples {
            // No labels are no pair of braces.
            match labels.as_slice() {
                [] => self.encode_value(&mut metric, *value)?,
                labels => self.encode_value(&mut metric.encode_family(&labels)?, *value)?,
            }
        }
        Ok(())
    }

    fn encode_value(&self, metric: &mut MetricEncoder<'_>, value: f64) -> fmt::Result {
        match self.is_total {
            true => metric.encode_counter::<NoLabelSet, f64, f64>(&value, None),
            false => metric.encode_gauge(&value),
        }
    }
}

#[cfg(test)]
mod tests {
    use farmem_client::ByClass;

    use super::*;

    fn report(name: &str) -> Report {
        let counters = [("stall_ns", 1_500_000_000_u64), ("faults", 7)];
        Report {
            name: name.to_owned(),
            process: 42,
            resident_bytes: 4096,
            counters: counters.map(|(name, value)| (name.to_owned(), value.into())).into_iter().collect(),
            ..Report::default()
        }
    }

    #[test]
    fn names_and_units_follow_the_convention() {
        let text = text(&[report("redis")], &[]);
        for line in [
            "# TYPE farmem_resident_bytes gauge",
            "# UNIT farmem_resident_bytes bytes",
            "farmem_resident_bytes{application=\"redis\",process=\"42\"} 4096.0",
            "# TYPE farmem_stall_seconds counter",
            "# HELP farmem_faults Faults that reached the pager.",
            "farmem_stall_seconds_total{application=\"redis\",process=\"42\"} 1.5",
            "farmem_faults_total{application=\"redis\",process=\"42\"} 7.0",
            "# EOF",
        ] {
            assert!(
                text.lines().any(|found| found.trim_end_matches('.') == line.trim_end_matches('.')),
                "{line}:\n{text}"
            );
        }
    }

    #[test]
    fn a_family_is_described_once_for_all_applications() {
        let text = text(&[report("one"), report("two")], &[]);
        assert_eq!(text.matches("# TYPE farmem_faults counter").count(), 1);
        assert_eq!(text.matches("farmem_faults_total{").count(), 2);
    }

    #[test]
    fn what_goes_over_links_is_told_by_class_and_not_a_second_time_as_a_whole() {
        let by_class = ByClass { demand: 1, ahead: 2, bulk: 3 };
        let report = Report { link_in_class_bytes: by_class, link_in_bytes: 6, ..report("redis") };
        let text = text(&[report], &[]);
        let lines: Vec<&str> =
            text.lines().filter(|line| line.starts_with("farmem_link_in_bytes_total")).collect();
        let line = |class: &str, bytes: u64| {
            format!(
                "farmem_link_in_bytes_total{{application=\"redis\",process=\"42\",class=\"{class}\"}} {bytes}.0"
            )
        };
        assert_eq!(lines, [line("demand", 1), line("ahead", 2), line("bulk", 3)], "{text}");
        assert_eq!(text.matches("# TYPE farmem_link_in_bytes counter").count(), 1);
    }

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        let text = text(&[report("a\"} 1\nx\\")], &[]);
        assert!(text.contains(r#"application="a\"} 1\nx\\","#), "{text}");
    }

    #[test]
    fn measures_of_a_process_have_no_labels() {
        let measure = Measure {
            name: "node_free",
            meaning: "What is free",
            unit: Unit::Bytes,
            is_total: false,
            value: 5.0,
        };
        assert!(text(&[], &[measure]).contains("farmem_node_free_bytes 5.0\n"));
    }
}
