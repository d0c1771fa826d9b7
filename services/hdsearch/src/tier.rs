//! The mid-tier: selects candidates, asks the leaves that hold them, and merges the neighbours.

use crate::distance::{Nearest, Neighbour};
use crate::hashing::{SearchScratch, Tables};
use crate::wire::{NEAREST, Query, append_candidates, append_neighbours, read_neighbours};
use leeward_rpc::server::{HandlerError, Request};
use leeward_rpc::tier::{Calls, GatherCondition, LeafId, MidTier, Replies, Reply, RequiredLeaves, Step};
use leeward_services::tiers::shard::Shard;
use std::sync::Arc;

/// Part of the leaves that is worth an answer: the nearest points of half of the data are near.
const ENOUGH_PERCENT: u8 = 50;

/// The mid-tier.
#[derive(Clone, Debug)]
pub struct HdSearch {
    tables: Arc<Tables>,
    /// For each leaf, the number after its last point.
    ends: Box<[u32]>,
}

/// State of a search.
#[derive(Debug, Default)]
pub struct SearchState {
    count: usize,
    point: Vec<f32>,
    scratch: SearchScratch,
    /// Candidates by leaf.
    candidates: Vec<Vec<u32>>,
    nearest: Nearest,
}

impl HdSearch {
    /// Creates a mid-tier for `leaves` leaves, each with a share of the points in `tables`.
    pub fn new(tables: Tables, leaves: u32) -> Self {
        let ends = Shard::all(leaves).map(|part| part.range(tables.count()).end).collect();
        HdSearch { tables: Arc::new(tables), ends }
    }

    fn leaf_of(&self, id: u32) -> usize {
        self.ends.partition_point(|end| *end <= id)
    }
}

impl MidTier for HdSearch {
    type State = SearchState;

    fn required_leaves(&self, _: &Request<'_>, required: &mut RequiredLeaves<'_>) {
        required.all();
        required.at_least(ENOUGH_PERCENT);
    }

    fn begin(
        &self,
        request: &Request<'_>,
        state: &mut SearchState,
        calls: &mut Calls<'_>,
        _: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        if request.method != NEAREST {
            return Err(HandlerError::UnknownMethod);
        }
        let (query, rest) = Query::read(request.payload, self.tables.dimensions())?;
        if !rest.is_empty() {
            return Err(HandlerError::Message(format!("{} bytes behind the question", rest.len())));
        }
        state.count = query.count.into();
        state.point.clear();
        state.point.extend(query.coordinates());
        state.candidates.resize(self.ends.len(), Vec::new());
        state.candidates.iter_mut().for_each(Vec::clear);
        for id in self.tables.candidates(&state.point, &mut state.scratch) {
            state.candidates[self.leaf_of(*id)].push(*id);
        }
        for (leaf, ids) in (0..).map(LeafId).zip(&state.candidates) {
            if !ids.is_empty() {
                let write = |argument: &mut Vec<u8>| {
                    query.append(argument);
                    append_candidates(ids, argument);
                };
                calls.call(leaf, NEAREST, write).repeatable();
            }
        }
        Ok(Step::Gather(GatherCondition::AtLeast { percent: ENOUGH_PERCENT }))
    }

    fn resume(
        &self,
        state: &mut SearchState,
        replies: &Replies<'_>,
        _: &mut Calls<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        let mut answered = 0;
        state.nearest.reset(state.count);
        for answer in replies.iter() {
            // A malformed answer counts as missing.
            let Reply::Result(bytes) = answer else { continue };
            let Some(found) = read_neighbours(bytes).filter(|_| self.are_valid(bytes)) else { continue };
            answered += 1;
            found.for_each(|neighbour: Neighbour| state.nearest.offer(neighbour));
        }
        // A tier has at most 255 leaves (`Leaves`).
        reply.extend_from_slice(&[replies.len() as u8, answered]);
        append_neighbours(state.nearest.sorted(), reply);
        Ok(Step::Done)
    }
}

impl HdSearch {
    fn are_valid(&self, bytes: &[u8]) -> bool {
        read_neighbours(bytes).is_some_and(|mut found| found.all(|neighbour| neighbour.id < self.tables.count()))
    }
}
