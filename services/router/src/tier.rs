//! The mid-tier: which leaves hold a key, which of them is asked, and what is made of their answers.

use crate::spooky;
use crate::wire::{GET, Pair, SET, check};
use leeward_rpc::server::{HandlerError, Request};
use leeward_rpc::tier::{Calls, GatherCondition, LeafId, MidTier, Replies, Reply, RequiredLeaves, Step};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Copies of each key, unless there are fewer leaves (µTune §6: three replicas).
const REPLICAS: usize = 3;

/// How many copies a `set` waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acks {
    /// More than half of them: a leaf that is slow or gone delays nobody.
    #[default]
    Most,
    /// All that still can be had.
    All,
}

/// The mid-tier.
#[derive(Clone, Debug)]
pub struct Router {
    /// Gets under way at each leaf.
    outstanding: Arc<[AtomicU32]>,
    acks: Acks,
}

/// A request on its way.
#[derive(Debug, Default)]
pub struct RouteState {
    /// The key of a get.
    key: Vec<u8>,
    /// Leaves that hold the key, in the order in which a get asks them.
    replicas: Vec<LeafId>,
    /// How many of them have been asked; 0 for a set.
    attempts: usize,
    /// The leaf that a get is under way at.
    at: Option<LeafId>,
}

impl Router {
    /// For so many leaves.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(leaves: usize, acks: Acks) -> Self {
        assert!(leaves > 0, "a router without leaves");
        Router { outstanding: (0..leaves).map(|_| AtomicU32::new(0)).collect(), acks }
    }

    /// Leaves that hold `key`: the one that it hashes to, and the next ones.
    pub fn replicas(&self, key: &[u8]) -> impl Iterator<Item = LeafId> + use<> {
        let leaves = self.outstanding.len();
        let first = spooky::hash32(key, 0) as usize % leaves;
        // Leaves are numbered by 16 bits.
        (0..REPLICAS.min(leaves)).map(move |replica| LeafId(((first + replica) % leaves) as u16))
    }

    fn under_way(&self, leaf: LeafId) -> &AtomicU32 {
        &self.outstanding[usize::from(leaf.0)]
    }

    /// The better of the first two comes first: the one with less under way.
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
        // A replica that takes long is not waited for.
        if let Some(next) = state.replicas.get(state.attempts) {
            call.or(*next);
        }
        Step::Gather(GatherCondition::All)
    }

    /// Goes on with a get: a leaf that has no answer is no reason not to ask another.
    fn got(&self, state: &mut RouteState, came: &Replies<'_>, calls: &mut Calls<'_>, reply: &mut Vec<u8>) -> Step {
        self.finish_call(state);
        match came.get(0) {
            Reply::Result(found) if !found.is_empty() => {
                reply.extend_from_slice(&[1, 1]);
                reply.extend_from_slice(found);
                Step::Done
            }
            _ if state.attempts < state.replicas.len() => self.call_next(state, calls),
            _ => {
                // Nobody knows whether there is one.
                reply.extend_from_slice(&[1, 0, 0]);
                Step::Done
            }
        }
    }
}

impl MidTier for Router {
    type State = RouteState;

    fn required_leaves(&self, request: &Request<'_>, needs: &mut RequiredLeaves<'_>) {
        match request.method {
            // The better of two is asked; the first will mostly do.
            GET => self.replicas(request.payload).take(1).for_each(|leaf| needs.leaf(leaf)),
            SET => {
                if let Ok(pair) = Pair::read(request.payload) {
                    self.replicas(pair.key).for_each(|leaf| needs.leaf(leaf));
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
        // Of a request that was given up on the way.
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
        came: &Replies<'_>,
        calls: &mut Calls<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        if state.attempts > 0 {
            return Ok(self.got(state, came, calls, reply));
        }
        let stored = came.iter().filter(|reply| matches!(reply, Reply::Result([1]))).count() as u8;
        reply.extend_from_slice(&[state.replicas.len() as u8, stored, stored]);
        Ok(Step::Done)
    }
}
