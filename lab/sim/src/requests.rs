//! The requests in flight: one record each, from issue to end, in a slab with reused slots.
//!
//! A parallel array holds the controller's permit of each request, from admission to response.

use leeward_core::client::LocalReason;
use leeward_core::server::PendingRequest;
use leeward_core::units::{CreditId, Nanos, Priority, Time};

/// A request's slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestId(u32);

impl RequestId {
    /// Slot number: small, reused.
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
    /// CPU time on a core.
    pub(crate) service: Nanos,
    /// Session that sent it.
    pub(crate) session: u32,
    /// Requests that waited behind this one at the client when it left.
    pub(crate) demand: u32,
    /// Importance of the request.
    pub(crate) priority: Priority,
    /// Index of its kind; 0 if all requests are alike.
    pub(crate) kind: u8,
    /// Newest grant that the client knew at the time of sending.
    pub(crate) credit: CreditId,
    /// The service's request for which this is an attempt, if there are several servers.
    pub(crate) attempt_of: RequestId,
}

/// An attempt of a request at one of several servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    /// The service's request.
    pub(crate) request: RequestId,
    /// Client that issued it.
    pub(crate) client: u32,
    /// CPU time on a core.
    pub(crate) service: Nanos,
    /// Importance of the request.
    pub(crate) priority: Priority,
    /// Index of its kind; 0 if all requests are alike.
    pub(crate) kind: u8,
    /// Its path through the application.
    pub(crate) path: u8,
}

/// How a request ended, at a server or at its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    /// The client has received the response.
    Completed,
    /// The client has received the rejection.
    Rejected,
    /// The request never left its client.
    AtClient(LocalReason),
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedRequest {
    /// Its final record.
    pub(crate) request: Request,
    /// How it ended.
    pub(crate) outcome: RequestOutcome,
}

/// All requests in flight.
pub(crate) struct Requests {
    slots: Vec<Request>,
    permits: Vec<Option<PendingRequest>>,
    free: Vec<u32>,
    /// Log of ended requests; `None`: not kept.
    ended: Option<Vec<EndedRequest>>,
}

impl Requests {
    pub(crate) fn new() -> Self {
        Requests { slots: Vec::new(), permits: Vec::new(), free: Vec::new(), ended: None }
    }

    /// Logs ended requests for [`take_ended`](Self::take_ended).
    pub(crate) fn with_end_log(mut self) -> Self {
        self.ended = Some(Vec::new());
        self
    }

    /// Returns and clears the requests that have ended since the last call.
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

    /// Stores the controller's permit of an admitted request.
    pub(crate) fn store_permit(&mut self, id: RequestId, permit: PendingRequest) {
        self.permits[id.slot()] = Some(permit);
    }

    /// Takes the controller's permit of a request that is answered now.
    ///
    /// # Panics
    /// If the request was already answered, or never admitted.
    pub(crate) fn take_permit(&mut self, id: RequestId) -> PendingRequest {
        self.permits[id.slot()].take().expect("a request is answered once")
    }

    /// Ends a request and frees its slot.
    pub(crate) fn remove(&mut self, id: RequestId, end: RequestOutcome) -> Request {
        self.free.push(id.0);
        let record = self.slots[id.0 as usize];
        if let Some(ended) = &mut self.ended {
            ended.push(EndedRequest { request: record, outcome: end });
        }
        record
    }

    /// Number of requests in flight.
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
