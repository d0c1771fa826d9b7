//! The requests that are under way: one record each, from issue to end, in a slab whose slots are reused. Beside it lies
//! the controller's ticket, from a request's verdict to its answer.

use leeward_core::client::LocalReason;
use leeward_core::server::Ticket;
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
    pub(crate) of: RequestId,
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
pub(crate) enum End {
    /// Its client has the response.
    Completed,
    /// Its client has the drop.
    Dropped,
    /// The request never left its client.
    AtClient(LocalReason),
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Its last record.
    pub(crate) attempt: Request,
    /// How.
    pub(crate) end: End,
}

/// All requests under way.
pub(crate) struct Requests {
    slots: Vec<Request>,
    tickets: Vec<Option<Ticket>>,
    free: Vec<u32>,
    /// Requests that have ended, where they are asked for.
    ended: Option<Vec<Ended>>,
}

impl Requests {
    pub(crate) fn new() -> Self {
        Requests { slots: Vec::new(), tickets: Vec::new(), free: Vec::new(), ended: None }
    }

    /// Keeps what ends until it is asked for with [`ended`](Self::ended).
    pub(crate) fn noting_ends(mut self) -> Self {
        self.ended = Some(Vec::new());
        self
    }

    /// Requests that have ended since the last call.
    pub(crate) fn ended(&mut self) -> impl Iterator<Item = Ended> + '_ {
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
                self.tickets.push(None);
                RequestId(self.slots.len() as u32 - 1)
            }
        }
    }

    /// Keeps the controller's ticket of a request that is in the server.
    pub(crate) fn keep_ticket(&mut self, id: RequestId, ticket: Ticket) {
        self.tickets[id.slot()] = Some(ticket);
    }

    /// The controller's ticket of a request that is answered now.
    ///
    /// # Panics
    /// If the request was answered before, or never decided on.
    pub(crate) fn take_ticket(&mut self, id: RequestId) -> Ticket {
        self.tickets[id.slot()].take().expect("a request is answered once")
    }

    /// Ends a request.
    pub(crate) fn remove(&mut self, id: RequestId, end: End) -> Request {
        self.free.push(id.0);
        let attempt = self.slots[id.0 as usize];
        if let Some(ended) = &mut self.ended {
            ended.push(Ended { attempt, end });
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
