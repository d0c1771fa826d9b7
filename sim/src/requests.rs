//! The requests that are under way: one record each, from issue to end, in a slab whose slots are reused.

use leeward_control::units::{CreditId, Nanos, Priority, Time};

/// A request's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestId(u32);

impl RequestId {
    /// Its slot: small numbers, reused.
    pub(crate) fn slot(self) -> usize {
        self.0 as usize
    }
}

/// What is known about a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// When the application issued it.
    pub(crate) issued: Time,
    /// When it left the client.
    pub(crate) sent: Time,
    /// When its packet reached the server.
    pub(crate) arrived: Time,
    /// How long it takes on a core.
    pub(crate) service: Nanos,
    /// By whom.
    pub(crate) session: u32,
    /// Requests that waited behind it when it left.
    pub(crate) demand: u32,
    /// How important it is.
    pub(crate) priority: Priority,
    /// The newest grant that its client knew when it left.
    pub(crate) credit: CreditId,
}

/// All requests under way.
pub(crate) struct Requests {
    slots: Vec<Request>,
    free: Vec<u32>,
}

impl Requests {
    pub(crate) fn new() -> Self {
        Requests { slots: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, request: Request) -> RequestId {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = request;
                RequestId(slot)
            }
            None => {
                self.slots.push(request);
                RequestId(self.slots.len() as u32 - 1)
            }
        }
    }

    /// Ends a request.
    pub(crate) fn remove(&mut self, id: RequestId) -> Request {
        self.free.push(id.0);
        self.slots[id.0 as usize]
    }

    /// Requests under way.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl std::ops::Index<RequestId> for Requests {
    type Output = Request;
    fn index(&self, id: RequestId) -> &Request {
        &self.slots[id.0 as usize]
    }
}

impl std::ops::IndexMut<RequestId> for Requests {
    fn index_mut(&mut self, id: RequestId) -> &mut Request {
        &mut self.slots[id.0 as usize]
    }
}
