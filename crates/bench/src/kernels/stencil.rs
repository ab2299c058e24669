//! Sweeps over a grid of three dimensions, in each of which a point becomes the average of its six neighbours
//! (Jacobi's method).
//!
//! The grid begins as a product of three sine waves that are zero at its faces. A sweep multiplies each point
//! of such a wave by one known factor: so every point can be checked.

use std::f64::consts::PI;

use super::Task;

const SWEEPS: i32 = 4;
const GRIDS: usize = 2;

pub(super) struct Stencil {
    /// Points along an edge.
    edge: usize,
    /// What the sweep before has made, and what this one makes.
    grids: [Vec<f64>; GRIDS],
    /// A sine wave along an edge.
    wave: Vec<f64>,
}

impl Stencil {
    pub(super) fn new(bytes: usize) -> Self {
        let points = bytes / (GRIDS * size_of::<f64>());
        let edge = (points as f64).cbrt() as usize;
        let wave: Vec<f64> = (0..edge).map(|at| (PI * at as f64 / (edge - 1) as f64).sin()).collect();
        let mut grid = Vec::with_capacity(edge * edge * edge);
        for z in &wave {
            for y in &wave {
                grid.extend(wave.iter().map(|x| x * y * z));
            }
        }
        let next = vec![0.0; grid.len()];
        Self { edge, grids: [grid, next], wave }
    }
}

impl Task for Stencil {
    fn work(&mut self) {
        let (edge, inner) = (self.edge, 1..self.edge - 1);
        for _ in 0..SWEEPS {
            let [from, to] = &mut self.grids;
            for z in inner.clone() {
                for y in inner.clone() {
                    let row = (z * edge + y) * edge;
                    for at in row + 1..row + edge - 1 {
                        let beside = from[at - 1] + from[at + 1];
                        let around = from[at - edge] + from[at + edge];
                        let above = from[at - edge * edge] + from[at + edge * edge];
                        to[at] = (beside + around + above) / 6.0;
                    }
                }
            }
            self.grids.swap(0, 1);
        }
    }

    fn is_right(&self) -> bool {
        let factor = (PI / (self.edge - 1) as f64).cos().powi(SWEEPS);
        let mut points = self.grids[0].iter();
        // At the faces, where a sine is not exactly zero, nothing is computed.
        self.wave.iter().all(|z| {
            self.wave.iter().all(|y| {
                self.wave
                    .iter()
                    .all(|x| points.next().is_some_and(|point| (point - factor * x * y * z).abs() < 1e-12))
            })
        })
    }
}
