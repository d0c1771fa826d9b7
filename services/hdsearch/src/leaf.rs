//! A leaf: computes the distances of its candidates.

use crate::data::Points;
use crate::distance::{Nearest, Neighbour, squared};
use crate::wire::{NEAREST, Query, append_neighbours, read_candidates};
use leeward_rpc::server::{Handler, HandlerError, Request};
use std::cell::RefCell;
use std::sync::Arc;

/// A leaf, with points of consecutive numbers.
#[derive(Clone, Debug)]
pub struct HdSearchLeaf {
    points: Arc<Points>,
    first: u32,
}

/// Memory of a search, reused by the thread's next search.
#[derive(Default)]
struct Scratch {
    point: Vec<f32>,
    nearest: Nearest,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl HdSearchLeaf {
    /// Creates a leaf with `points`; the first of them has the number `first`.
    pub fn new(points: Points, first: u32) -> Self {
        HdSearchLeaf { points: Arc::new(points), first }
    }

    fn search(&self, argument: &[u8], scratch: &mut Scratch, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
        let (query, rest) = Query::read(argument, self.points.dimensions())?;
        scratch.point.clear();
        scratch.point.extend(query.coordinates());
        scratch.nearest.reset(query.count.into());
        for id in read_candidates(rest)? {
            let found = id.checked_sub(self.first).and_then(|index| self.points.get(index as usize));
            let Some(point) = found else {
                return Err(HandlerError::Message(format!("point {id} is not here")));
            };
            scratch.nearest.offer(Neighbour { id, distance: squared(&scratch.point, point) });
        }
        append_neighbours(scratch.nearest.sorted(), reply);
        Ok(())
    }
}

impl Handler for HdSearchLeaf {
    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
        if request.method != NEAREST {
            return Err(HandlerError::UnknownMethod);
        }
        SCRATCH.with_borrow_mut(|scratch| self.search(request.payload, scratch, reply))
    }
}
