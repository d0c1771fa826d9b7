//! Ratings, made up by a seed: a matrix of low rank with noise, of which few entries are known.

use leeward_workload::rng::{Purpose, Rng};

/// A user's rating of an item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rating {
    /// The user.
    pub user: u32,
    /// The item.
    pub item: u32,
    /// How the user rates it.
    pub rating: f32,
}

/// Ratings, and how many users and items there are.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratings {
    /// Users have numbers below.
    pub users: u32,
    /// Items have numbers below.
    pub items: u32,
    /// Ratings that are known, each pair at most once.
    pub known: Vec<Rating>,
}

/// Rank of the matrix that is made up: what the factorisation can find again.
const RANK: usize = 5;
/// Standard deviation of what no user and no item explains.
const NOISE: f64 = 0.5;

impl Ratings {
    /// `tuples` ratings of `users` × `items`, drawn from `seed`: non-negative factors, whose products spread around 3 as
    /// stars do, with noise. The same pair may be drawn again; the first counts.
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
            // Below the number of users, and of items.
            let (user, item) = ((pair / u64::from(items)) as u32, (pair % u64::from(items)) as u32);
            if !seen.insert(pair) {
                continue;
            }
            let product: f64 = of_users[user as usize].iter().zip(&of_items[item as usize]).map(|(a, b)| a * b).sum();
            known.push(Rating { user, item, rating: (product + NOISE * rng.normal()) as f32 });
        }
        Ratings { users, items, known }
    }

    /// The part that leaf `shard` of `shards` holds: every so many-th rating, so that each leaf knows most users.
    pub fn shard(&self, shard: usize, shards: usize) -> Ratings {
        let known = self.known.iter().skip(shard).step_by(shards.max(1)).copied().collect();
        Ratings { users: self.users, items: self.items, known }
    }
}
