//! Weighted draws of indices in constant time (Walker's alias method, built as by Vose 1991).

use crate::rng::Rng;

/// A table of the indices `0..n`, each drawn with a probability proportional to its weight.
#[derive(Clone, Debug)]
pub struct AliasTable {
    /// Per index: the probability that a draw of it stays, and the alias otherwise.
    entries: Vec<(f64, u32)>,
}

impl AliasTable {
    /// Creates a table of weights that are not negative and not all zero. Without weights, every
    /// draw is 0.
    pub fn new(weights: &[f64]) -> Self {
        let scale = weights.len() as f64 / weights.iter().sum::<f64>();
        let mut left: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
        let mut table: Vec<(f64, u32)> = (0..left.len() as u32).map(|index| (1.0, index)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..left.len()).partition(|index| left[*index] < 1.0);
        while let (Some(from), Some(to)) = (small.pop(), large.last().copied()) {
            table[from] = (left[from], to as u32);
            left[to] -= 1.0 - left[from];
            if left[to] < 1.0 {
                large.pop();
                small.push(to);
            }
        }
        // Entries that rounding has left over keep probability 1.
        AliasTable { entries: table }
    }

    /// Draws an index.
    pub fn draw(&self, rng: &mut Rng) -> u32 {
        let drawn = rng.unit() * self.entries.len() as f64;
        let index = (drawn as usize).min(self.entries.len().saturating_sub(1));
        match self.entries.get(index) {
            Some((keep, other)) if drawn - index as f64 >= *keep => *other,
            _ => index as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Purpose;
    use proptest::prelude::*;

    proptest! {
        /// Adds up the exact share of each index instead of drawing.
        #[test]
        fn every_index_gets_its_share(weights in prop::collection::vec(0.0f64..10.0, 1..50)) {
            prop_assume!(weights.iter().sum::<f64>() > 0.1);
            let alias = AliasTable::new(&weights);
            let mut shares = vec![0.0; weights.len()];
            for (index, (keep, other)) in alias.entries.iter().enumerate() {
                prop_assert!((0.0..=1.0).contains(keep));
                shares[index] += keep;
                shares[*other as usize] += 1.0 - keep;
            }
            let scale = weights.len() as f64 / weights.iter().sum::<f64>();
            for (share, weight) in shares.iter().zip(&weights) {
                prop_assert!((share - weight * scale).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn draws_follow_the_shares() {
        let alias = AliasTable::new(&[1.0, 0.0, 3.0]);
        let mut rng = crate::rng::Rng::new(1, Purpose::Service);
        let mut counts = [0u32; 3];
        (0..40_000).for_each(|_| counts[alias.draw(&mut rng) as usize] += 1);
        assert_eq!(counts[1], 0);
        assert!((f64::from(counts[2]) / 30_000.0 - 1.0).abs() < 0.02, "{counts:?}");
    }
}
