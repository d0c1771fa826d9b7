//! Choice of the connection for a call.
//!
//! Takes the better of two random connections (Mitzenmacher, The Power of Two Choices in Randomized
//! Load Balancing, 2001). That is nearly as even as a scan of all, and clients do not all take the
//! same best one. If neither could send at once, takes any that could: credit must not lie idle
//! at one connection while a call waits at another.

use std::cmp::Reverse;

use super::random::Random;

/// Rank of an open connection. Smaller is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinkRank {
    /// The server has just rejected a call, has asked for a pause, or is about to stop.
    pub(super) is_avoided: bool,
    /// A call would have to wait: the algorithm's gate is closed, or other calls wait.
    pub(super) held: bool,
    /// Number of waiting calls.
    pub(super) waiting: u32,
    /// Number of calls that could leave besides the unanswered ones.
    pub(super) headroom: Reverse<u32>,
    /// Number of unanswered calls.
    pub(super) in_flight: u32,
}

impl LinkRank {
    fn is_sendable(&self) -> bool {
        !self.is_avoided && !self.held
    }
}

/// Chooses one of `candidates`; `None` if the list is empty.
pub(super) fn choose(
    candidates: &[usize],
    random: &mut Random,
    mut rank: impl FnMut(usize) -> LinkRank,
) -> Option<usize> {
    let count = candidates.len();
    let first = random.below(count as u64) as usize;
    let mut best = *candidates.get(first)?;
    if count == 1 {
        return Some(best);
    }
    // Another one than the first, each equally likely.
    let second = candidates[(first + 1 + random.below(count as u64 - 1) as usize) % count];
    let (mut best_rank, second_rank) = (rank(best), rank(second));
    if second_rank < best_rank {
        (best, best_rank) = (second, second_rank);
    }
    if !best_rank.is_sendable()
        && let Some(better) =
            (1..count).map(|step| candidates[(first + step) % count]).find(|at| rank(*at).is_sendable())
    {
        return Some(better);
    }
    Some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: LinkRank = LinkRank { is_avoided: false, held: false, waiting: 0, headroom: Reverse(4), in_flight: 0 };

    /// Choices of each of four connections, out of a thousand.
    fn shares(ranks: [LinkRank; 4]) -> [u32; 4] {
        let mut random = Random::new(1);
        let mut shares = [0; 4];
        for _ in 0..1_000 {
            shares[choose(&[0, 1, 2, 3], &mut random, |at| ranks[at]).unwrap()] += 1;
        }
        shares
    }

    #[test]
    fn equal_connections_share_calls_and_the_worst_gets_none() {
        assert!(shares([IDLE; 4]).iter().all(|share| (200..300).contains(share)));
        let busy = LinkRank { headroom: Reverse(1), ..IDLE };
        assert_eq!(shares([IDLE, IDLE, busy, IDLE])[2], 0, "one of two is always better");
        assert!(shares([busy, IDLE, busy, busy])[1] > 400, "a half, and not all");
    }

    #[test]
    fn the_only_connection_with_credit_is_chosen() {
        let held = LinkRank { held: true, waiting: 1, ..IDLE };
        assert_eq!(shares([held, held, held, IDLE]), [0, 0, 0, 1_000]);
        let avoided = LinkRank { is_avoided: true, ..IDLE };
        assert_eq!(shares([avoided, avoided, IDLE, avoided]), [0, 0, 1_000, 0]);
        let longer = LinkRank { waiting: 5, ..held };
        let shares = shares([held, longer, longer, longer]);
        assert!(shares[0] > 400 && shares[0] < 600, "where all wait, the shorter queue of two: {shares:?}");
    }

    #[test]
    fn a_single_connection_is_always_chosen() {
        let mut random = Random::new(1);
        let held = LinkRank { held: true, is_avoided: true, ..IDLE };
        assert_eq!(choose(&[7], &mut random, |_| held), Some(7));
        assert_eq!(choose(&[], &mut random, |_| held), None);
    }
}
