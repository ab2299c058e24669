//! A fast Fourier transform in place: butterflies with strides of all powers of two, the widest first
//! (Gentleman and Sande, 1966). The spectrum is left in the order of reversed bits, as where it is only
//! multiplied and transformed back.
//!
//! The signal is the sum of a few waves of known frequencies. All of its spectrum is zero but at these: so
//! every number can be checked.

use std::f64::consts::PI;

use super::Task;

#[derive(Clone, Copy)]
struct Complex {
    re: f64,
    im: f64,
}

impl Complex {
    fn turn(angle: f64) -> Self {
        Self { re: angle.cos(), im: angle.sin() }
    }

    fn times(self, other: Self) -> Self {
        Self { re: self.re * other.re - self.im * other.im, im: self.re * other.im + self.im * other.re }
    }

    fn plus(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }

    fn minus(self, other: Self) -> Self {
        Self { re: self.re - other.re, im: self.im - other.im }
    }
}

/// Waves: how many times each fits into the signal, in so many parts of it, and its height.
const WAVES: [(usize, f64); 3] = [(3, 1.0), (1000, 0.5), (30_001, 0.25)];

/// How often a turn is computed again rather than from the one before.
const EXACT: usize = 64;

pub(super) struct Fourier {
    numbers: Vec<Complex>,
}

impl Fourier {
    pub(super) fn new(bytes: usize) -> Self {
        // The largest power of two that fits.
        let count = 1 << (bytes / size_of::<Complex>()).ilog2();
        let number = |at: usize| {
            WAVES.iter().fold(Complex { re: 0.0, im: 0.0 }, |sum, &(frequency, height)| {
                // Whole turns are left out before they cost precision.
                let part = (at * frequency % count) as f64 / count as f64;
                let Complex { re, im } = Complex::turn(2.0 * PI * part);
                sum.plus(Complex { re: re * height, im: im * height })
            })
        };
        Self { numbers: (0..count).map(number).collect() }
    }

    /// The frequency that is found at a position.
    fn frequency(&self, at: usize) -> usize {
        at.reverse_bits() >> (usize::BITS - self.numbers.len().ilog2())
    }
}

impl Task for Fourier {
    fn work(&mut self) {
        let mut half = self.numbers.len() / 2;
        while half > 0 {
            let angle = -PI / half as f64;
            let step = Complex::turn(angle);
            for block in self.numbers.chunks_exact_mut(2 * half) {
                let (low, high) = block.split_at_mut(half);
                let mut turn = step;
                for (nth, (low, high)) in low.iter_mut().zip(high).enumerate() {
                    // Each product loses some precision.
                    turn =
                        if nth % EXACT == 0 { Complex::turn(angle * nth as f64) } else { turn.times(step) };
                    (*low, *high) = (low.plus(*high), low.minus(*high).times(turn));
                }
            }
            half /= 2;
        }
    }

    fn is_right(&self) -> bool {
        let count = self.numbers.len();
        self.numbers.iter().enumerate().all(|(at, number)| {
            let wave = WAVES.iter().find(|(frequency, _)| *frequency == self.frequency(at));
            let height = wave.map_or(0.0, |(_, height)| height * count as f64);
            let wrong = number.minus(Complex { re: height, im: 0.0 });
            wrong.re.hypot(wrong.im) < 1e-9 * count as f64
        })
    }
}
