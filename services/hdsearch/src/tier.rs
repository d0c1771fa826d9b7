//! The mid-tier: finds candidates, asks the leaves that hold them, and merges what they found.

use crate::distance::{Nearest, Neighbour};
use crate::hashing::{SearchScratch, Tables};
use crate::wire::{NEAREST, Query, append_candidates, append_neighbours, read_neighbours};
use leeward_rpc::server::{HandlerError, Request};
use leeward_rpc::tier::{Calls, GatherCondition, LeafId, MidTier, Replies, Reply, Step};
use leeward_services::tiers::shard::Shard;
use std::sync::Arc;

/// The mid-tier.
#[derive(Clone, Debug)]
pub struct HdSearch {
    tables: Arc<Tables>,
    /// Number of the first point that each leaf does not hold any more.
    ends: Box<[u32]>,
}

/// A search on its way.
#[derive(Debug, Default)]
pub struct SearchState {
    count: usize,
    point: Vec<f32>,
    scratch: SearchScratch,
    /// Candidates of each leaf.
    candidates: Vec<Vec<u32>>,
    nearest: Nearest,
}

impl HdSearch {
    /// For `leaves` that each hold a share of the points that `tables` are over.
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
        let (question, rest) = Query::read(request.payload, self.tables.dimensions())?;
        if !rest.is_empty() {
            return Err(HandlerError::Message(format!("{} bytes behind the question", rest.len())));
        }
        state.count = question.count.into();
        state.point.clear();
        state.point.extend(question.coordinates());
        state.candidates.resize(self.ends.len(), Vec::new());
        state.candidates.iter_mut().for_each(Vec::clear);
        for id in self.tables.candidates(&state.point, &mut state.scratch) {
            state.candidates[self.leaf_of(*id)].push(*id);
        }
        for (leaf, ids) in (0..).map(LeafId).zip(&state.candidates) {
            if !ids.is_empty() {
                let write = |argument: &mut Vec<u8>| {
                    question.append(argument);
                    append_candidates(ids, argument);
                };
                calls.call(leaf, NEAREST, write).repeatable();
            }
        }
        Ok(Step::Gather(GatherCondition::All))
    }

    fn resume(
        &self,
        state: &mut SearchState,
        came: &Replies<'_>,
        _: &mut Calls<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        let mut answered = 0;
        state.nearest.reset(state.count);
        for said in came.iter() {
            // An answer that is none counts as missing.
            let Reply::Result(bytes) = said else { continue };
            let Some(found) = read_neighbours(bytes).filter(|_| self.are_valid(bytes)) else { continue };
            answered += 1;
            found.for_each(|neighbour: Neighbour| state.nearest.offer(neighbour));
        }
        // There are fewer leaves than a byte says (`Leaves`).
        reply.extend_from_slice(&[came.len() as u8, answered]);
        append_neighbours(state.nearest.sorted(), reply);
        Ok(Step::Done)
    }
}

impl HdSearch {
    fn are_valid(&self, bytes: &[u8]) -> bool {
        read_neighbours(bytes).is_some_and(|mut found| found.all(|neighbour| neighbour.id < self.tables.count()))
    }
}
