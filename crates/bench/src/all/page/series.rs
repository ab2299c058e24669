//! Records, sorted into what is drawn side by side: a chart for each measure of a benchmark, a row for
//! each case, a mark for each peer.

use crate::median::median;
use crate::record::{Better, Record};

/// The repetitions of one figure.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Series {
    pub(super) peer: String,
    pub(super) values: Vec<f64>,
}

impl Series {
    pub(super) fn median(&self) -> f64 {
        median(self.values.clone())
    }

    pub(super) fn range(&self) -> [f64; 2] {
        [
            self.values.iter().copied().fold(f64::INFINITY, f64::min),
            self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        ]
    }
}

/// One case under all peers.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Row {
    pub(super) case: String,
    pub(super) series: Vec<Series>,
}

impl Row {
    pub(super) fn of(&self, peer: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.peer == peer)
    }
}

/// One measure of a benchmark.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Chart {
    pub(super) bench: String,
    pub(super) measure: String,
    pub(super) unit: String,
    pub(super) better: Better,
    pub(super) rows: Vec<Row>,
    /// In the order in which they came.
    pub(super) peers: Vec<String>,
    /// What papers say: of which cases, which figure, which number.
    pub(super) papers: Vec<(String, String)>,
}

/// All charts, in the order in which their first records came.
pub(super) fn charts(records: &[Record]) -> Vec<Chart> {
    let mut charts: Vec<Chart> = Vec::new();
    for record in records {
        let at = charts
            .iter()
            .position(|chart| chart.bench == record.bench && chart.measure == record.measure)
            .unwrap_or_else(|| {
                charts.push(Chart {
                    bench: record.bench.clone(),
                    measure: record.measure.clone(),
                    unit: record.unit.clone(),
                    better: record.better,
                    rows: Vec::new(),
                    peers: Vec::new(),
                    papers: Vec::new(),
                });
                charts.len() - 1
            });
        charts[at].add(record);
    }
    charts
}

impl Chart {
    fn add(&mut self, record: &Record) {
        if !self.peers.contains(&record.peer) {
            self.peers.push(record.peer.clone());
        }
        if let Some(paper) = &record.paper {
            let paper = (paper.figure.clone(), paper.number.clone());
            if !self.papers.contains(&paper) {
                self.papers.push(paper);
            }
        }
        let row = self.rows.iter().position(|row| row.case == record.case).unwrap_or_else(|| {
            self.rows.push(Row { case: record.case.clone(), series: Vec::new() });
            self.rows.len() - 1
        });
        let series = &mut self.rows[row].series;
        let at = series.iter().position(|series| series.peer == record.peer).unwrap_or_else(|| {
            series.push(Series { peer: record.peer.clone(), values: Vec::new() });
            series.len() - 1
        });
        series[at].values.push(record.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn repetitions_of_a_case_under_a_peer_are_one_series() {
        let records = [
            record("zipf", "farmem", 1, 3.0),
            record("zipf", "native", 1, 1.0),
            record("chase", "farmem", 1, 9.0),
            record("zipf", "farmem", 2, 5.0),
        ];
        let charts = charts(&records);
        assert_eq!(charts.len(), 1);
        assert_eq!(charts[0].peers, ["farmem", "native"]);
        let zipf = charts[0].rows[0].of("farmem").unwrap();
        assert_eq!((zipf.median(), zipf.range()), (4.0, [3.0, 5.0]));
        assert_eq!(charts[0].rows[1].series.len(), 1);
    }
}
