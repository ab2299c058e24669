//! Quickhull: the points beyond a line are divided by the one that is farthest from it, and those within the
//! triangle are dropped.

use super::Task;
use super::numbers::mixed;

/// Whole numbers, so that everything is exact: products of differences fit 64 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Point {
    x: i64,
    y: i64,
}

const RADIUS: i64 = 1 << 28;

impl Point {
    /// Somewhere in a disc.
    fn of(nth: u64) -> Self {
        let draws = (0..)
            .map(|draw| mixed(mixed(nth) ^ draw))
            .map(|word| Self { x: (word as u32 >> 3) as i64 - RADIUS, y: (word >> 35) as i64 - RADIUS });
        let mut within = draws.filter(|point| point.x * point.x + point.y * point.y <= RADIUS * RADIUS);
        // Three draws of four are within.
        within.next().unwrap_or(Self { x: 0, y: 0 })
    }

    /// Twice the area of the triangle with a line: above zero to the left of it.
    fn beside(self, from: Self, to: Self) -> i64 {
        (to.x - from.x) * (self.y - from.y) - (to.y - from.y) * (self.x - from.x)
    }

    fn order(self) -> (i64, i64) {
        (self.x, self.y)
    }
}

pub(super) struct Hull {
    points: Vec<Point>,
    /// Corners, the leftmost first, to the left around the points.
    hull: Vec<Point>,
}

impl Hull {
    pub(super) fn new(bytes: usize) -> Self {
        let count = bytes / size_of::<Point>();
        Self { points: (0..count as u64).map(Point::of).collect(), hull: Vec::new() }
    }
}

/// Adds the corners to the right of a line, without its ends.
fn corners(points: &mut [Point], from: Point, to: Point, hull: &mut Vec<Point>) {
    // Of several on one line an end is a corner.
    let distance = |point: &&Point| (point.beside(from, to), point.order());
    let Some(&farthest) = points.iter().min_by_key(distance) else { return };
    if farthest.beside(from, to) >= 0 {
        return;
    }
    let first = divide(points, |point| point.beside(from, farthest) < 0);
    let (before, rest) = points.split_at_mut(first);
    corners(before, from, farthest, hull);
    hull.push(farthest);
    let second = divide(rest, |point| point.beside(farthest, to) < 0);
    corners(&mut rest[..second], farthest, to, hull);
}

/// Brings those for which it holds to the front; how many they are.
fn divide(points: &mut [Point], holds: impl Fn(Point) -> bool) -> usize {
    let mut count = 0;
    for at in 0..points.len() {
        if holds(points[at]) {
            points.swap(at, count);
            count += 1;
        }
    }
    count
}

impl Task for Hull {
    fn work(&mut self) {
        let leftmost = self.points.iter().copied().min_by_key(|point| point.order());
        let rightmost = self.points.iter().copied().max_by_key(|point| point.order());
        let (Some(left), Some(right)) = (leftmost, rightmost) else { return };
        let below = divide(&mut self.points, |point| point.beside(left, right) < 0);
        let (below, above) = self.points.split_at_mut(below);
        self.hull.push(left);
        corners(below, left, right, &mut self.hull);
        self.hull.push(right);
        corners(above, right, left, &mut self.hull);
    }

    /// Each corner is one of the points, the hull turns left at each, and each point lies to the left of the
    /// edges below and above it.
    fn is_right(&self) -> bool {
        let Some(turn) =
            self.hull.iter().enumerate().max_by_key(|(_, point)| point.order()).map(|(at, _)| at)
        else {
            return false;
        };
        let count = self.hull.len();
        let corner = |nth: usize| self.hull[nth % count];
        let turns_left = (0..count).all(|nth| corner(nth + 2).beside(corner(nth), corner(nth + 1)) > 0);
        let (below, above) = (&self.hull[..=turn], &self.hull[turn..]);
        let within = |point: &Point| {
            let low = below.partition_point(|corner| corner.order() < point.order()).clamp(1, turn);
            let high = above.partition_point(|corner| corner.order() > point.order());
            point.beside(below[low - 1], below[low]) >= 0
                && (high == 0 || point.beside(above[high - 1], corner(turn + high)) >= 0)
        };
        let mut corners: Vec<(i64, i64)> = self.hull.iter().map(|point| point.order()).collect();
        corners.sort_unstable();
        let is_corner = |point: &&Point| corners.binary_search(&point.order()).is_ok();
        let mut found: Vec<(i64, i64)> =
            self.points.iter().filter(is_corner).map(|point| point.order()).collect();
        found.sort_unstable();
        found.dedup();
        turns_left && self.points.iter().all(within) && found == corners
    }
}
