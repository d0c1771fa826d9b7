//! Prediction from similar users.
//!
//! The distance of two users is the distance of their predicted ratings of all items: with `W` the
//! items' factors and `C Cᵀ = Wᵀ W`, it is ‖Cᵀ (h_u − h_v)‖.

use crate::data::Ratings;
use crate::factors::{Factors, RANK, Row, cholesky};

/// Users whose ratings are averaged, the requested user included.
const NEIGHBOURS: usize = 5;

/// Predictor: factors, and the users' embeddings in a space with Euclidean distances.
#[derive(Clone, Debug)]
pub struct Model {
    factors: Factors,
    /// `Cᵀ h` of each user.
    embeddings: Vec<Row>,
    rated: Vec<bool>,
    users: Vec<bool>,
}

impl Model {
    /// Learns from ratings, starting with factors drawn from `seed`.
    pub fn learn(ratings: &Ratings, seed: u64) -> Self {
        let factors = Factors::factorize(ratings, seed);
        let user_embeddings = embeddings(&factors);
        let (mut rated, mut users) = (vec![false; ratings.items as usize], vec![false; ratings.users as usize]);
        for known in &ratings.known {
            rated[known.item as usize] = true;
            users[known.user as usize] = true;
        }
        Model { factors, embeddings: user_embeddings, rated, users }
    }

    /// Predicts a rating as the mean of similar users; `None` if no rating of the user or the item
    /// is known.
    pub fn predict(&self, user: u32, item: u32) -> Option<f32> {
        self.predict_among(user, item, &self.embeddings)
    }

    /// Predicts the same, but recomputes everything that does not depend on the request, as the
    /// published service does.
    pub fn predict_uncached(&self, user: u32, item: u32) -> Option<f32> {
        self.predict_among(user, item, &embeddings(&self.factors))
    }

    fn predict_among(&self, user: u32, item: u32, user_embeddings: &[Row]) -> Option<f32> {
        if !*self.users.get(user as usize)? || !*self.rated.get(item as usize)? {
            return None;
        }
        let item = &self.factors.items[item as usize];
        let nearest = nearest(user_embeddings, &self.users, &user_embeddings[user as usize]);
        let found = nearest.iter().filter(|(_, user)| *user != u32::MAX);
        let (sum, count) = found.fold((0.0, 0), |(sum, count), (_, user)| {
            (sum + product(item, &self.factors.users[*user as usize]), count + 1)
        });
        Some((sum / f64::from(count)) as f32)
    }
}

fn embeddings(factors: &Factors) -> Vec<Row> {
    let mut gram = [[0.0; RANK]; RANK];
    for row in &factors.items {
        for at in 0..RANK {
            for to in 0..RANK {
                gram[at][to] += row[at] * row[to];
            }
        }
    }
    let lower = cholesky(&gram);
    let embedding = |row: &Row| std::array::from_fn(|at| (0..RANK).map(|from| lower[from][at] * row[from]).sum());
    factors.users.iter().map(embedding).collect()
}

/// Finds the users nearest to an embedding, by distance and then by number. `u32::MAX` marks free
/// entries.
fn nearest(embeddings: &[Row], is_user: &[bool], target: &Row) -> [(f64, u32); NEIGHBOURS] {
    let mut nearest = [(f64::INFINITY, u32::MAX); NEIGHBOURS];
    for (user, embedding) in embeddings.iter().enumerate() {
        let distance: f64 = embedding.iter().zip(target).map(|(a, b)| (a - b) * (a - b)).sum();
        if !is_user[user] || distance >= nearest[NEIGHBOURS - 1].0 {
            continue;
        }
        let at = nearest.partition_point(|(other, _)| *other <= distance);
        nearest[at..].rotate_right(1);
        // Users have 32-bit numbers.
        nearest[at] = (distance, user as u32);
    }
    nearest
}

fn product(a: &Row, b: &Row) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_workload::rng::{Purpose, Rng};

    /// Ratings of the published size: 10,000.
    fn published(seed: u64) -> Ratings {
        Ratings::synthetic(3_000, 1_100, 10_000, seed)
    }

    /// Root mean square errors on a held-out tenth, of the model and of the mean of all others.
    fn errors(ratings: &Ratings) -> (f64, f64) {
        let part = |held: bool| {
            let known = ratings.known.iter().enumerate().filter(|(at, _)| (at % 10 == 0) == held);
            Ratings { known: known.map(|(_, known)| *known).collect(), ..*ratings }
        };
        let (held, rest) = (part(true), part(false));
        let model = Model::learn(&rest, 1);
        let mean = rest.known.iter().map(|known| f64::from(known.rating)).sum::<f64>() / rest.known.len() as f64;
        let (mut ours, mut plain, mut count) = (0.0, 0.0, 0.0);
        for known in &held.known {
            let truth = f64::from(known.rating);
            let Some(predicted) = model.predict(known.user, known.item) else { continue };
            ours += (f64::from(predicted) - truth).powi(2);
            plain += (mean - truth).powi(2);
            count += 1.0;
        }
        assert!(count > 500.0);
        ((ours / count).sqrt(), (plain / count).sqrt())
    }

    #[test]
    fn predictions_are_better_than_the_mean() {
        for seed in 1..4 {
            let (ours, plain) = errors(&published(seed));
            assert!(ours <= 0.95 * plain, "seed {seed}: {ours} against {plain}");
        }
    }

    #[test]
    fn a_prediction_is_the_mean_of_the_five_nearest() {
        let model = Model::learn(&Ratings::synthetic(60, 40, 900, 5), 1);
        let mut rng = Rng::new(9, Purpose::Data);
        for _ in 0..200 {
            let (user, item) = (rng.below(60) as u32, rng.below(40) as u32);
            // Reference: sorts all users by their distance over all items.
            let rating = |user: usize, item: usize| product(&model.factors.users[user], &model.factors.items[item]);
            let distance = |other: usize| -> f64 {
                (0..40).map(|item| (rating(user as usize, item) - rating(other, item)).powi(2)).sum()
            };
            let mut users: Vec<usize> = (0..60).filter(|other| model.users[*other]).collect();
            users.sort_by(|a, b| distance(*a).total_cmp(&distance(*b)));
            let mean = users[..5].iter().map(|other| rating(*other, item as usize)).sum::<f64>() / 5.0;
            let predicted = model.predict(user, item).unwrap();
            assert!((f64::from(predicted) - mean).abs() < 1e-4, "{predicted} {mean}");
            assert_eq!(model.predict_uncached(user, item), Some(predicted));
        }
    }

    #[test]
    fn unknown_users_have_no_neighbours() {
        let ratings = Ratings::synthetic(10, 10, 5, 1);
        let model = Model::learn(&ratings, 1);
        let unknown = (0..10).find(|user| ratings.known.iter().all(|known| known.user != *user)).unwrap();
        assert_eq!(model.predict(unknown, ratings.known[0].item), None);
        assert_eq!(model.predict(10, 0), None);
        assert_eq!(model.predict(ratings.known[0].user, u32::MAX), None);
        assert!(model.predict(ratings.known[0].user, ratings.known[0].item).is_some());
    }
}
