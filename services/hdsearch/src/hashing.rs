//! Locality-sensitive hashing by hyperplanes: points on the same sides of 16 random planes share a
//! bucket.
//!
//! A query probes several tables, and in each also the buckets across the nearest planes
//! (multi-probe). The data bound all sizes.

use crate::data::Points;
use leeward_workload::rng::{Purpose, Rng};

/// Number of tables, each with its own planes.
const TABLES: usize = 8;
/// Planes per table, and bits of a bucket's number.
const PLANES: usize = 16;
const BUCKETS: usize = 1 << PLANES;
/// Number of candidates at which a query stops.
const CANDIDATES_MAX: usize = 4_000;

/// Tables over all points; the points themselves are stored elsewhere.
#[derive(Clone, Debug)]
pub struct Tables {
    dimensions: usize,
    planes: Vec<f32>,
    tables: Vec<Table>,
    count: u32,
}

/// Numbers of points, grouped by bucket.
#[derive(Clone, Debug)]
struct Table {
    begins: Vec<u32>,
    ids: Vec<u32>,
}

/// Memory of a search, reused by later searches.
#[derive(Clone, Debug, Default)]
pub struct SearchScratch {
    seen: Vec<u64>,
    found: Vec<u32>,
    margins: Vec<(f32, usize)>,
}

impl Tables {
    /// Builds tables over `points`, with planes drawn from `seed`.
    pub fn new(points: &Points, seed: u64) -> Self {
        let dimensions = points.dimensions();
        let mut rng = Rng::new(seed, Purpose::Data);
        let planes = (0..TABLES * PLANES * dimensions).map(|_| rng.normal() as f32).collect();
        // Points have 32-bit numbers.
        let mut built = Tables { dimensions, planes, tables: Vec::new(), count: points.len() as u32 };
        for table in 0..TABLES {
            let buckets: Vec<u16> = points.iter().map(|point| built.bucket(table, point)).collect();
            built.tables.push(Table::new(&buckets));
        }
        built
    }

    /// Returns the dimensions of each point.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Returns the number of points.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the signed distance of a point from a table's plane.
    fn side(&self, table: usize, plane: usize, point: &[f32]) -> f32 {
        let first = (table * PLANES + plane) * self.dimensions;
        self.planes[first..first + self.dimensions].iter().zip(point).map(|(a, b)| a * b).sum()
    }

    fn bucket(&self, table: usize, point: &[f32]) -> u16 {
        (0..PLANES).fold(0, |bucket, plane| bucket | u16::from(self.side(table, plane, point) > 0.0) << plane)
    }

    /// Returns the numbers of points that may be near, each once, in the order of discovery.
    pub fn candidates<'a>(&self, point: &[f32], scratch: &'a mut SearchScratch) -> &'a [u32] {
        scratch.begin(self.count);
        for table in 0..TABLES {
            let mut bucket = 0;
            scratch.margins.clear();
            for plane in 0..PLANES {
                let side = self.side(table, plane, point);
                bucket |= usize::from(side > 0.0) << plane;
                scratch.margins.push((side.abs(), plane));
            }
            scratch.margins.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            scratch.take(self.tables[table].bucket(bucket));
            for at in 0..PLANES {
                if scratch.found.len() >= CANDIDATES_MAX {
                    return &scratch.found;
                }
                let plane = scratch.margins[at].1;
                scratch.take(self.tables[table].bucket(bucket ^ 1 << plane));
            }
        }
        &scratch.found
    }
}

impl Table {
    /// Builds the table by counting sort; `buckets` has the bucket of each point, in order.
    fn new(buckets: &[u16]) -> Self {
        let mut begins = vec![0u32; BUCKETS + 1];
        for bucket in buckets {
            begins[usize::from(*bucket) + 1] += 1;
        }
        for bucket in 0..BUCKETS {
            begins[bucket + 1] += begins[bucket];
        }
        let (mut next, mut ids) = (begins.clone(), vec![0; buckets.len()]);
        for (id, bucket) in (0..).zip(buckets) {
            let slot = &mut next[usize::from(*bucket)];
            ids[*slot as usize] = id;
            *slot += 1;
        }
        Table { begins, ids }
    }

    fn bucket(&self, bucket: usize) -> &[u32] {
        &self.ids[self.begins[bucket] as usize..self.begins[bucket + 1] as usize]
    }
}

impl SearchScratch {
    fn begin(&mut self, count: u32) {
        // Clears only the marks of the previous search.
        for id in self.found.drain(..) {
            if let Some(word) = self.seen.get_mut(id as usize / 64) {
                *word = 0;
            }
        }
        self.seen.resize(count.div_ceil(64) as usize, 0);
    }

    fn take(&mut self, ids: &[u32]) {
        for id in ids {
            let (word, bit) = (&mut self.seen[*id as usize / 64], 1 << (id % 64));
            if *word & bit == 0 {
                *word |= bit;
                self.found.push(*id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Synthetic;
    use crate::distance::{Nearest, Neighbour, squared};

    const DATA: Synthetic = Synthetic { dimensions: 64, count: 20_000, seed: 3 };

    fn nearest(query: &[f32], points: &Points, among: impl Iterator<Item = u32>) -> Vec<Neighbour> {
        let mut nearest = Nearest::default();
        nearest.reset(10);
        for id in among {
            nearest.offer(Neighbour { id, distance: squared(query, points.get(id as usize).unwrap()) });
        }
        nearest.sorted().to_vec()
    }

    #[test]
    fn most_of_the_ten_nearest_are_among_the_candidates() {
        let points = DATA.points(0..DATA.count);
        let tables = Tables::new(&points, 1);
        let mut search = SearchScratch::default();
        let (mut found, mut expected, mut examined) = (0, 0, 0);
        for turn in 0..200 {
            let query = DATA.query(turn);
            let candidates = tables.candidates(&query, &mut search).to_vec();
            let truth = nearest(&query, &points, 0..DATA.count);
            found += truth.iter().filter(|neighbour| candidates.contains(&neighbour.id)).count();
            (expected, examined) = (expected + truth.len(), examined + candidates.len());
        }
        assert!(found * 10 >= expected * 9, "{found} of {expected}");
        assert!(examined < 200 * CANDIDATES_MAX, "{examined}: nearly as much work as looking at all");
    }

    /// A size at which the limit of candidates alone does not ensure a fiftieth of all distances.
    #[test]
    fn recall_is_90_percent_with_2_percent_of_the_distances() {
        let data = Synthetic { dimensions: 64, count: 150_000, seed: 5 };
        let points = data.points(0..data.count);
        let (tables, mut search) = (Tables::new(&points, 1), SearchScratch::default());
        let (mut found, mut expected, mut examined) = (0, 0, 0);
        for turn in 0..60 {
            let query = data.query(turn);
            let candidates = tables.candidates(&query, &mut search);
            examined += candidates.len();
            let near = nearest(&query, &points, candidates.iter().copied());
            let truth = nearest(&query, &points, 0..data.count);
            found += truth.iter().filter(|neighbour| near.contains(neighbour)).count();
            expected += truth.len();
        }
        assert!(found * 10 >= expected * 9, "{found} of {expected}");
        assert!(examined * 50 <= 60 * data.count as usize, "{examined} distances");
        println!("recall {found} of {expected}, {examined} distances of {}", 60 * data.count);
    }

    #[test]
    fn candidates_are_unique_and_a_search_leaves_no_state() {
        let points = DATA.points(0..2_000);
        let tables = Tables::new(&points, 1);
        let mut search = SearchScratch::default();
        for turn in 0..50 {
            let query = DATA.query(turn);
            let fresh = tables.candidates(&query, &mut SearchScratch::default()).to_vec();
            let found = tables.candidates(&query, &mut search);
            assert_eq!(found, &fresh[..]);
            let distinct: std::collections::BTreeSet<_> = found.iter().collect();
            assert_eq!(distinct.len(), found.len());
        }
    }
}
