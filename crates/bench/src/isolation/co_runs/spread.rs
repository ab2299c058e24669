//! How far figures lie apart (Canvas, Table 3).

use serde::Serialize;

/// Some figures in short.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// Their mean.
    pub mean: f64,
    /// The least of them.
    pub minimum: f64,
    /// The largest.
    pub maximum: f64,
    /// Their standard deviation, as of all figures that there are; 0 of one.
    pub deviation: f64,
}

impl Spread {
    /// Of these; `None` of none.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let minimum = values.iter().copied().reduce(f64::min)?;
        let maximum = values.iter().copied().reduce(f64::max)?;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        Some(Self { mean, minimum, maximum, deviation: variance.sqrt() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_all_figures() {
        let spread = Spread::of(&[1.0, 3.0, 2.0, 2.0]).unwrap();
        assert_eq!((spread.mean, spread.minimum, spread.maximum), (2.0, 1.0, 3.0));
        assert_eq!(spread.deviation, 0.5_f64.sqrt());
        assert_eq!(Spread::of(&[]), None);
    }
}
