//! Distances of points, and the nearest points. Sums have a fixed order, so that every machine gets
//! the same bits.

use std::cmp::Ordering;

/// Parallel sums, which the compiler vectorises.
const LANES: usize = 16;

/// Returns the square of the Euclidean distance. Coordinates that only one point has don't count.
pub fn squared(a: &[f32], b: &[f32]) -> f32 {
    let (mut sums, mut rest) = ([0.0f32; LANES], 0.0f32);
    let (a_lanes, b_lanes) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    for (a, b) in a_lanes.remainder().iter().zip(b_lanes.remainder()) {
        rest += (a - b) * (a - b);
    }
    for (a, b) in a_lanes.zip(b_lanes) {
        for lane in 0..LANES {
            let difference = a[lane] - b[lane];
            sums[lane] += difference * difference;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// A neighbour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbour {
    /// The point's number.
    pub id: u32,
    /// Square of the distance.
    pub distance: f32,
}

impl Neighbour {
    /// Orders by distance, then by number.
    pub fn order(&self, other: &Self) -> Ordering {
        self.distance.total_cmp(&other.distance).then(self.id.cmp(&other.id))
    }
}

/// The nearest of the offered points, up to a limit: a heap with the farthest on top. Its memory is
/// reused.
#[derive(Clone, Debug, Default)]
pub struct Nearest {
    heap: Vec<Neighbour>,
    most: usize,
}

impl Nearest {
    /// Clears the heap and sets its limit.
    pub fn reset(&mut self, most: usize) {
        self.heap.clear();
        self.most = most;
    }

    /// Offers a candidate.
    pub fn offer(&mut self, candidate: Neighbour) {
        if self.heap.len() < self.most {
            self.heap.push(candidate);
            self.rise(self.heap.len() - 1);
        } else if self.heap.first().is_some_and(|farthest| candidate.order(farthest) == Ordering::Less) {
            self.heap[0] = candidate;
            self.sink();
        }
    }

    /// Returns the nearest points, in ascending distance.
    pub fn sorted(&mut self) -> &[Neighbour] {
        self.heap.sort_unstable_by(Neighbour::order);
        &self.heap
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.heap[at].order(&self.heap[(at - 1) / 2]) == Ordering::Greater {
            self.heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn sink(&mut self) {
        let mut at = 0;
        loop {
            let children = [2 * at + 1, 2 * at + 2].into_iter().filter(|child| *child < self.heap.len());
            let Some(farther) = children.max_by(|a, b| self.heap[*a].order(&self.heap[*b])) else { return };
            if self.heap[farther].order(&self.heap[at]) != Ordering::Greater {
                return;
            }
            self.heap.swap(at, farther);
            at = farther;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_heap_finds_what_sorting_finds(distances in prop::collection::vec(0u8..40, 0..200), most in 0usize..60) {
            let all: Vec<Neighbour> = (0..).zip(&distances)
                .map(|(id, distance)| Neighbour { id, distance: f32::from(*distance) })
                .collect();
            let mut nearest = Nearest::default();
            // Twice, because the second run reuses the memory of the first.
            for _ in 0..2 {
                nearest.reset(most);
                all.iter().rev().for_each(|candidate| nearest.offer(*candidate));
            }
            let mut sorted = all;
            sorted.sort_by(Neighbour::order);
            sorted.truncate(most);
            prop_assert_eq!(nearest.sorted(), &sorted[..]);
        }

        #[test]
        fn distances_are_euclidean(point in prop::collection::vec(-9f32..9.0, 1..70)) {
            let other: Vec<f32> = point.iter().rev().copied().collect();
            let plain: f64 = point.iter().zip(&other).map(|(a, b)| f64::from(a - b).powi(2)).sum();
            prop_assert!((f64::from(squared(&point, &other)) - plain).abs() <= 1e-4 * plain.max(1.0));
        }
    }
}
