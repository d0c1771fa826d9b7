//! Draws places by weight in constant time, however many there are (Walker's alias method, built as by Vose 1991).

use crate::rng::Rng;

/// Places `0..n`, each as likely as its weight.
#[derive(Clone, Debug)]
pub struct AliasTable {
    /// For each place: how likely a draw that has come to it stays, and where it goes otherwise.
    entries: Vec<(f64, u32)>,
}

impl AliasTable {
    /// Of weights that are not negative and not all zero; without any, only place 0 is drawn.
    pub fn new(weights: &[f64]) -> Self {
        let scale = weights.len() as f64 / weights.iter().sum::<f64>();
        let mut left: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
        let mut places: Vec<(f64, u32)> = (0..left.len() as u32).map(|place| (1.0, place)).collect();
        let (mut poor, mut rich): (Vec<usize>, Vec<usize>) = (0..left.len()).partition(|place| left[*place] < 1.0);
        while let (Some(from), Some(to)) = (poor.pop(), rich.last().copied()) {
            places[from] = (left[from], to as u32);
            left[to] -= 1.0 - left[from];
            if left[to] < 1.0 {
                rich.pop();
                poor.push(to);
            }
        }
        // What rounding has left over is as good as full.
        AliasTable { entries: places }
    }

    /// A place.
    pub fn draw(&self, rng: &mut Rng) -> u32 {
        let drawn = rng.unit() * self.entries.len() as f64;
        let place = (drawn as usize).min(self.entries.len().saturating_sub(1));
        match self.entries.get(place) {
            Some((stays, other)) if drawn - place as f64 >= *stays => *other,
            _ => place as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Purpose;
    use proptest::prelude::*;

    proptest! {
        /// Adds up what each place gets, which is exact, instead of drawing.
        #[test]
        fn every_place_gets_its_share(weights in prop::collection::vec(0.0f64..10.0, 1..50)) {
            prop_assume!(weights.iter().sum::<f64>() > 0.1);
            let alias = AliasTable::new(&weights);
            let mut shares = vec![0.0; weights.len()];
            for (place, (stays, other)) in alias.entries.iter().enumerate() {
                prop_assert!((0.0..=1.0).contains(stays));
                shares[place] += stays;
                shares[*other as usize] += 1.0 - stays;
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
