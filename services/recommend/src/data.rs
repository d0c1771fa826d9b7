//! Synthetic ratings: a noisy matrix of low rank with few known entries.

use leeward_workload::rng::{Purpose, Rng};

/// A user's rating of an item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rating {
    /// The user.
    pub user: u32,
    /// The item.
    pub item: u32,
    /// The rating.
    pub rating: f32,
}

/// Ratings, with the numbers of users and items.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratings {
    /// Number of users; users are numbered from 0.
    pub users: u32,
    /// Number of items; items are numbered from 0.
    pub items: u32,
    /// Known ratings, each pair at most once.
    pub known: Vec<Rating>,
}

/// Rank of the synthetic matrix, which the factorisation can recover.
const RANK: usize = 5;
/// Standard deviation of the noise.
const NOISE: f64 = 0.5;

impl Ratings {
    /// Draws `tuples` ratings of `users` × `items` from `seed`.
    ///
    /// A rating is a product of non-negative factors, around 3 like stars, with noise. A pair that
    /// is drawn again is skipped.
    pub fn synthetic(users: u32, items: u32, tuples: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed, Purpose::Data);
        let mut factors = |count: u32| -> Vec<[f64; RANK]> {
            (0..count).map(|_| std::array::from_fn(|_| 2.0 * rng.unit())).collect()
        };
        let (of_users, of_items) = (factors(users), factors(items));
        let mut known = Vec::with_capacity(tuples);
        let mut seen = std::collections::BTreeSet::new();
        let pairs = u64::from(users) * u64::from(items);
        while known.len() < tuples.min(pairs as usize / 2) {
            let pair = rng.below(pairs);
            // Less than the number of users, and of items.
            let (user, item) = ((pair / u64::from(items)) as u32, (pair % u64::from(items)) as u32);
            if !seen.insert(pair) {
                continue;
            }
            let product: f64 = of_users[user as usize].iter().zip(&of_items[item as usize]).map(|(a, b)| a * b).sum();
            known.push(Rating { user, item, rating: (product + NOISE * rng.normal()) as f32 });
        }
        Ratings { users, items, known }
    }

    /// Returns the part for leaf `shard` of `shards`: every `shards`-th rating, so that each leaf
    /// knows most users.
    pub fn shard(&self, shard: usize, shards: usize) -> Ratings {
        let known = self.known.iter().skip(shard).step_by(shards.max(1)).copied().collect();
        Ratings { users: self.users, items: self.items, known }
    }
}
