//! Points: from a file, or synthetic clusters in a space of many dimensions.
//!
//! Each synthetic point is drawn separately, so that a leaf draws only its share.

use leeward_workload::rng::{Purpose, Rng};
use std::ops::Range;
use std::sync::Arc;

/// Points per cluster.
const CLUSTER: u32 = 250;
/// Standard deviation of a cluster around its centre, in each dimension.
const SPREAD: f64 = 0.3;

/// Synthetic points, determined by a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synthetic {
    /// Dimensions of each point.
    pub dimensions: usize,
    /// Number of points.
    pub count: u32,
    /// Seed of the points.
    pub seed: u64,
}

/// Points of a tier.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Synthetic points.
    Synthetic(Synthetic),
    /// Points from a file.
    File {
        /// The file's path.
        path: String,
        /// The file's points.
        points: Arc<Points>,
    },
}

/// Seed for hyperplanes and queries over points from a file.
const SEED: u64 = 1;

impl Source {
    /// Returns the number of points.
    pub fn count(&self) -> u32 {
        match self {
            Source::Synthetic(synthetic) => synthetic.count,
            // A file has at most ten million points.
            Source::File { points, .. } => points.len() as u32,
        }
    }

    /// Returns the seed for hyperplanes over the points.
    pub fn seed(&self) -> u64 {
        if let Source::Synthetic(synthetic) = self { synthetic.seed } else { SEED }
    }

    /// Returns the points with these numbers.
    pub fn points(&self, numbers: Range<u32>) -> Points {
        match self {
            Source::Synthetic(synthetic) => synthetic.points(numbers),
            Source::File { points, .. } => {
                let mut part = Points::new(points.dimensions());
                numbers.filter_map(|number| points.get(number as usize)).for_each(|point| part.push(point));
                part
            }
        }
    }

    /// Returns the query number `turn`: a noisy copy of a point, or sometimes a point outside all
    /// clusters.
    pub fn query(&self, turn: u64) -> Vec<f32> {
        let points = match self {
            Source::Synthetic(synthetic) => return synthetic.query(turn),
            Source::File { points, .. } => points,
        };
        let mut rng = Rng::new(SEED ^ turn.wrapping_mul(0xA24B_AED4_963E_E407), Purpose::Data);
        let near = points.get(rng.below(points.len() as u64) as usize).unwrap_or(&[]);
        // Noise of a tenth of the point's root mean square, as with synthetic points.
        let size = near.iter().map(|value| f64::from(value * value)).sum::<f64>() / near.len().max(1) as f64;
        near.iter().map(|value| value + (0.1 * size.sqrt() * rng.normal()) as f32).collect()
    }
}

/// A list of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Points {
    dimensions: usize,
    values: Vec<f32>,
}

impl Points {
    /// Creates an empty list for points of this many dimensions.
    ///
    /// # Panics
    /// If `dimensions` is 0.
    pub fn new(dimensions: usize) -> Self {
        assert!(dimensions > 0, "points without dimensions");
        Points { dimensions, values: Vec::new() }
    }

    /// Adds a point.
    ///
    /// # Panics
    /// If the point has another number of dimensions.
    pub fn push(&mut self, point: &[f32]) {
        assert_eq!(point.len(), self.dimensions, "a point of another space");
        self.values.extend_from_slice(point);
    }

    /// Returns the dimensions of each point.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Returns the number of points.
    pub fn len(&self) -> usize {
        self.values.len() / self.dimensions
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the point at index `at`.
    pub fn get(&self, at: usize) -> Option<&[f32]> {
        self.values.get(at.checked_mul(self.dimensions)?..)?.get(..self.dimensions)
    }

    /// Iterates over all points.
    pub fn iter(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.dimensions)
    }
}

impl Synthetic {
    /// Returns the points with these numbers.
    pub fn points(&self, numbers: Range<u32>) -> Points {
        let mut points = Points::new(self.dimensions);
        let (mut centre, mut cluster, mut point) = (Vec::new(), None, Vec::new());
        for number in numbers {
            if cluster != Some(number / CLUSTER) {
                cluster = Some(number / CLUSTER);
                centre = self.draw(u64::from(number / CLUSTER) << 32, 1.0);
            }
            let around = self.draw(u64::from(number) | 1 << 63, SPREAD);
            point.clear();
            point.extend(centre.iter().zip(around).map(|(centre, around)| centre + around));
            points.push(&point);
        }
        points
    }

    /// Returns the query number `turn`: a noisy copy of a point, or sometimes a point outside all
    /// clusters.
    pub fn query(&self, turn: u64) -> Vec<f32> {
        let mut rng = Rng::new(self.seed ^ turn.wrapping_mul(0xA24B_AED4_963E_E407), Purpose::Data);
        let misses = rng.unit() < 0.05;
        let near = rng.below(u64::from(self.count)) as u32;
        let point = if misses { vec![0.0; self.dimensions] } else { self.points(near..near + 1).values };
        let noise = if misses { 1.0 } else { 0.1 };
        point.iter().map(|value| value + (noise * rng.normal()) as f32).collect()
    }

    fn draw(&self, which: u64, spread: f64) -> Vec<f32> {
        let mut rng = Rng::new(self.seed.wrapping_add(which.wrapping_mul(0xD1B5_4A32_D192_ED03)), Purpose::Data);
        (0..self.dimensions).map(|_| (spread * rng.normal()) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_services::tiers::shard::Shard;

    #[test]
    fn shards_draw_the_same_points_as_the_whole() {
        let data = Synthetic { dimensions: 16, count: 1_003, seed: 7 };
        let whole = data.points(0..data.count);
        for shards in [1, 2, 3, 7] {
            let mut number = 0;
            for part in Shard::all(shards) {
                let range = part.range(data.count);
                assert_eq!(range.start, number);
                number = range.end;
                let part = data.points(range.clone());
                assert!(part.iter().eq(range.map(|number| whole.get(number as usize).unwrap())));
            }
            assert_eq!(number, data.count);
        }
    }
}
