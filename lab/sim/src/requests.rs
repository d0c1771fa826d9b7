//! The requests that are under way: one record each, from issue to end, in a slab whose slots are reused. Beside it lies
//! the controller's ticket, from a request's verdict to its answer.

use leeward_core::client::LocalReason;
use leeward_core::server::PendingRequest;
use leeward_core::units::{CreditId, Nanos, Priority, Time};

/// A request's slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestId(u32);

impl RequestId {
    /// Its slot: small numbers, reused.
    pub(crate) fn slot(self) -> usize {
        self.0 as usize
    }
}

/// Record of a request.
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
    /// Session that issued it.
    pub(crate) session: u32,
    /// Requests that waited behind it when it left.
    pub(crate) demand: u32,
    /// How important it is.
    pub(crate) priority: Priority,
    /// Index of its kind; 0 where all are alike.
    pub(crate) kind: u8,
    /// The newest grant that its client knew when it left.
    pub(crate) credit: CreditId,
    /// The request of the whole service that this is an attempt of, where there are several servers.
    pub(crate) attempt_of: RequestId,
}

/// Attempt of a request at one of several servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    /// The request of the whole service.
    pub(crate) request: RequestId,
    /// Client that issued it.
    pub(crate) client: u32,
    /// How long it takes on a core.
    pub(crate) service: Nanos,
    /// How important it is.
    pub(crate) priority: Priority,
    /// Index of its kind; 0 where all are alike.
    pub(crate) kind: u8,
    /// Its path through the application.
    pub(crate) path: u8,
}

/// How a request ended at a server, or at its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    /// Its client has the response.
    Completed,
    /// Its client has the drop.
    Rejected,
    /// The request never left its client.
    AtClient(LocalReason),
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedRequest {
    /// Its last record.
    pub(crate) request: Request,
    /// How.
    pub(crate) outcome: RequestOutcome,
}

/// All requests under way.
pub(crate) struct Requests {
    slots: Vec<Request>,
    permits: Vec<Option<PendingRequest>>,
    free: Vec<u32>,
    /// Requests that have ended, where they are asked for.
    ended: Option<Vec<EndedRequest>>,
}

impl Requests {
    pub(crate) fn new() -> Self {
        Requests { slots: Vec::new(), permits: Vec::new(), free: Vec::new(), ended: None }
    }

    /// Keeps what ends until it is asked for with [`ended`](Self::ended).
    pub(crate) fn with_end_log(mut self) -> Self {
        self.ended = Some(Vec::new());
        self
    }

    /// Requests that have ended since the last call.
    pub(crate) fn take_ended(&mut self) -> impl Iterator<Item = EndedRequest> + '_ {
        self.ended.iter_mut().flat_map(|ended| ended.drain(..))
    }

    pub(crate) fn insert(&mut self, request: Request) -> RequestId {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = request;
                RequestId(slot)
            }
            None => {
                self.slots.push(request);
                self.permits.push(None);
                RequestId(self.slots.len() as u32 - 1)
            }
        }
    }

    /// Keeps the controller's ticket of a request that is in the server.
    pub(crate) fn store_permit(&mut self, id: RequestId, ticket: PendingRequest) {
        self.permits[id.slot()] = Some(ticket);
    }

    /// The controller's ticket of a request that is answered now.
    ///
    /// # Panics
    /// If the request was answered before, or never decided on.
    pub(crate) fn take_permit(&mut self, id: RequestId) -> PendingRequest {
        self.permits[id.slot()].take().expect("a request is answered once")
    }

    /// Ends a request.
    pub(crate) fn remove(&mut self, id: RequestId, end: RequestOutcome) -> Request {
        self.free.push(id.0);
        let attempt = self.slots[id.0 as usize];
        if let Some(ended) = &mut self.ended {
            ended.push(EndedRequest { request: attempt, outcome: end });
        }
        attempt
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
