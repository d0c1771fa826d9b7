//! The mid-tier: selects the leaves of a key, and merges their answers.

use crate::spooky;
use crate::wire::{GET, Pair, SET, check};
use leeward_rpc::server::{HandlerError, Request};
use leeward_rpc::tier::{Calls, GatherCondition, LeafId, MidTier, Replies, Reply, RequiredLeaves, Step};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Copies of each key, if there are enough leaves (µTune §6: three replicas).
const REPLICAS: usize = 3;

/// Number of copies for which a `set` waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acks {
    /// More than half of the copies: a slow or missing leaf delays no request.
    #[default]
    Most,
    /// All copies on available leaves.
    All,
}

/// The mid-tier.
#[derive(Clone, Debug)]
pub struct Router {
    /// Number of gets in flight at each leaf.
    outstanding: Arc<[AtomicU32]>,
    acks: Acks,
}

/// State of a request.
#[derive(Debug, Default)]
pub struct RouteState {
    /// The key of a get.
    key: Vec<u8>,
    /// Leaves that hold the key, in the order of a get's attempts.
    replicas: Vec<LeafId>,
    /// Number of leaves that a get has asked; 0 for a set.
    attempts: usize,
    /// The leaf at which a get is in flight.
    at: Option<LeafId>,
}

impl Router {
    /// Creates a router for `leaves` leaves.
    ///
    /// # Panics
    /// If `leaves` is 0.
    pub fn new(leaves: usize, acks: Acks) -> Self {
        assert!(leaves > 0, "a router without leaves");
        Router { outstanding: (0..leaves).map(|_| AtomicU32::new(0)).collect(), acks }
    }

    /// Selects the leaves for `key`: the one that the key hashes to, and the next ones.
    pub fn replicas(&self, key: &[u8]) -> impl Iterator<Item = LeafId> + use<> {
        let leaves = self.outstanding.len();
        let first = spooky::hash32(key, 0) as usize % leaves;
        // Leaves have 16-bit numbers.
        (0..REPLICAS.min(leaves)).map(move |replica| LeafId(((first + replica) % leaves) as u16))
    }

    fn under_way(&self, leaf: LeafId) -> &AtomicU32 {
        &self.outstanding[usize::from(leaf.0)]
    }

    /// Moves the less busy one of the first two leaves to the front.
    fn prefer_idle(&self, replicas: &mut [LeafId]) {
        if let [first, second, ..] = replicas {
            let load = |leaf: LeafId| self.under_way(leaf).load(Ordering::Relaxed);
            if load(*second) < load(*first) {
                std::mem::swap(first, second);
            }
        }
    }

    fn finish_call(&self, state: &mut RouteState) {
        if let Some(leaf) = state.at.take() {
            self.under_way(leaf).fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn call_next(&self, state: &mut RouteState, calls: &mut Calls<'_>) -> Step {
        let leaf = state.replicas[state.attempts];
        self.under_way(leaf).fetch_add(1, Ordering::Relaxed);
        state.at = Some(leaf);
        state.attempts += 1;
        let call = calls.call(leaf, GET, |argument| argument.extend_from_slice(&state.key));
        // A second replica is asked if the first one takes long.
        if let Some(next) = state.replicas.get(state.attempts) {
            call.or(*next);
        }
        Step::Gather(GatherCondition::All)
    }

    /// Continues a get: asks the next leaf if one has no answer.
    fn got(&self, state: &mut RouteState, replies: &Replies<'_>, calls: &mut Calls<'_>, reply: &mut Vec<u8>) -> Step {
        self.finish_call(state);
        match replies.get(0) {
            Reply::Result(found) if !found.is_empty() => {
                reply.extend_from_slice(&[1, 1]);
                reply.extend_from_slice(found);
                Step::Done
            }
            _ if state.attempts < state.replicas.len() => self.call_next(state, calls),
            _ => {
                // No leaf knows if the pair exists.
                reply.extend_from_slice(&[1, 0, 0]);
                Step::Done
            }
        }
    }
}

impl MidTier for Router {
    type State = RouteState;

    fn required_leaves(&self, request: &Request<'_>, required: &mut RequiredLeaves<'_>) {
        match request.method {
            // The less busy of two leaves is asked; mostly that is the first.
            GET => self.replicas(request.payload).take(1).for_each(|leaf| required.leaf(leaf)),
            SET => {
                if let Ok(pair) = Pair::read(request.payload) {
                    self.replicas(pair.key).for_each(|leaf| required.leaf(leaf));
                }
            }
            _ => {}
        }
    }

    fn begin(
        &self,
        request: &Request<'_>,
        state: &mut RouteState,
        calls: &mut Calls<'_>,
        _: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        // The state may be from a request that was abandoned.
        self.finish_call(state);
        state.attempts = 0;
        state.replicas.clear();
        match request.method {
            GET => {
                let key = check(request.payload)?;
                state.key.clear();
                state.key.extend_from_slice(key);
                state.replicas.extend(self.replicas(key));
                self.prefer_idle(&mut state.replicas);
                Ok(self.call_next(state, calls))
            }
            SET => {
                let pair = Pair::read(request.payload)?;
                for leaf in self.replicas(pair.key) {
                    calls.call(leaf, SET, |argument| pair.append(argument));
                    state.replicas.push(leaf);
                }
                let most = state.replicas.len() / 2 + 1;
                Ok(Step::Gather(match self.acks {
                    // A tier has at most three replicas.
                    Acks::Most => GatherCondition::Quorum(most as u16),
                    Acks::All => GatherCondition::All,
                }))
            }
            _ => Err(HandlerError::UnknownMethod),
        }
    }

    fn resume(
        &self,
        state: &mut RouteState,
        replies: &Replies<'_>,
        calls: &mut Calls<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        if state.attempts > 0 {
            return Ok(self.got(state, replies, calls, reply));
        }
        let stored = replies.iter().filter(|reply| matches!(reply, Reply::Result([1]))).count() as u8;
        reply.extend_from_slice(&[state.replicas.len() as u8, stored, stored]);
        Ok(Step::Done)
    }
}
