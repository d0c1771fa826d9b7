//! A leaf: measures how far its candidates are.

use crate::data::Points;
use crate::distance::{Nearest, Neighbour, squared};
use crate::wire::{NEAREST, Query, append_neighbours, read_candidates};
use leeward_rpc::server::{Handler, HandlerError, Request};
use std::cell::RefCell;
use std::sync::Arc;

/// A leaf, with points whose numbers follow each other.
#[derive(Clone, Debug)]
pub struct HdSearchLeaf {
    points: Arc<Points>,
    first: u32,
}

/// Memory of a search, used again by the thread's next one.
#[derive(Default)]
struct Scratch {
    point: Vec<f32>,
    nearest: Nearest,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl HdSearchLeaf {
    /// A leaf with `points`, the first of which has the number `first`.
    pub fn new(points: Points, first: u32) -> Self {
        HdSearchLeaf { points: Arc::new(points), first }
    }

    fn search(&self, argument: &[u8], scratch: &mut Scratch, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
        let (question, rest) = Query::read(argument, self.points.dimensions())?;
        scratch.point.clear();
        scratch.point.extend(question.coordinates());
        scratch.nearest.reset(question.count.into());
        for id in read_candidates(rest)? {
            let place = id.checked_sub(self.first).and_then(|place| self.points.get(place as usize));
            let Some(there) = place else {
                return Err(HandlerError::Message(format!("point {id} is not here")));
            };
            scratch.nearest.offer(Neighbour { id, distance: squared(&scratch.point, there) });
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
