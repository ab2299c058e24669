//! A scale, and where it is marked.

/// Figures of which the largest is so many times what the lower ones are are drawn on a logarithmic scale.
const WIDE: f64 = 40.0;

/// From figures to places on a line.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Axis {
    from: f64,
    to: f64,
    is_logarithmic: bool,
}

impl Axis {
    /// An axis on which all of these lie; from 0 unless most of them lie far apart. What `beside` holds, such
    /// as programs without a limit, may lie near 0.
    pub(super) fn over(values: &[f64], beside: &[f64]) -> Self {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| *value > 0.0).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let all = || values.iter().chain(beside).copied();
        let most = all().fold(0.0, f64::max);
        let low = sorted.get(sorted.len() / 5).copied().unwrap_or(most);
        if most > low * WIDE {
            let least = all().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
            Self { from: 10_f64.powf(least.log10().floor()), to: most * 1.15, is_logarithmic: true }
        } else {
            Self { from: 0.0, to: if most > 0.0 { most * 1.08 } else { 1.0 }, is_logarithmic: false }
        }
    }

    pub(super) fn is_logarithmic(self) -> bool {
        self.is_logarithmic
    }

    /// Where a figure lies, from 0 to 1.
    pub(super) fn place(self, value: f64) -> f64 {
        let share = if self.is_logarithmic {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            value / self.to
        };
        share.clamp(0.0, 1.0)
    }

    /// Round figures along it.
    pub(super) fn ticks(self) -> Vec<f64> {
        if self.is_logarithmic {
            let powers = (0..).map(|power| self.from * 10_f64.powi(power));
            return powers.take_while(|tick| *tick <= self.to).collect();
        }
        let rough = self.to / 6.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|round| round * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        (0..).map(|at| f64::from(at) * step).take_while(|tick| *tick <= self.to).collect()
    }
}

/// A round figure.
pub(super) fn round_words(value: f64) -> String {
    let words = format!("{value:.4}");
    words.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A figure with as many digits as it is worth.
pub(super) fn words(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_near_each_other_lie_on_a_line_from_zero() {
        let axis = Axis::over(&[5.0, 10.0], &[0.02]);
        assert!(!axis.is_logarithmic());
        assert_eq!(axis.place(0.0), 0.0);
        assert_eq!(axis.ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
    }

    #[test]
    fn figures_far_apart_lie_on_powers_of_ten() {
        let axis = Axis::over(&[0.02, 15.0], &[]);
        assert!(axis.is_logarithmic());
        assert_eq!(axis.ticks().len(), 4);
        assert!(axis.place(0.02) < axis.place(0.2) && axis.place(15.0) <= 1.0);
    }

    #[test]
    fn round_figures_have_no_zeros_at_the_end() {
        assert_eq!([0.0, 0.01, 10.0, 2.5].map(round_words), ["0", "0.01", "10", "2.5"]);
    }

    #[test]
    fn nothing_at_all_has_an_axis() {
        assert_eq!(Axis::over(&[], &[]).place(0.0), 0.0);
        assert_eq!(Axis::over(&[0.0], &[]).place(0.0), 0.0);
    }
}
