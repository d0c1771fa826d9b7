//! Shared writes of responses at a server with sockets: which response is written immediately, and
//! the sending cost for its core.
//!
//! Does not contain shared reads (`server::sockets`).

use crate::config::{ServerModel, SocketCosts};
use leeward_core::units::Nanos;

/// Admitted requests without a response, by session.
pub(crate) struct PendingResponses {
    /// CPU time of a write.
    send: Nanos,
    /// `None`: each response has its own write.
    shared: Option<SharedWrites>,
}

struct SharedWrites {
    costs: SocketCosts,
    /// By session; grows with a session's first request.
    pending: Vec<u32>,
}

impl PendingResponses {
    /// If requests take locks, each response has its own write, because their steps end on any
    /// core.
    pub(crate) fn new(model: &ServerModel, takes_steps: bool) -> Self {
        let sockets = model.sockets.filter(|_| !takes_steps);
        PendingResponses {
            send: model.costs.send,
            shared: sockets.map(|costs| SharedWrites { costs, pending: Vec::new() }),
        }
    }

    /// Counts an admitted request of this session.
    pub(crate) fn add(&mut self, session: u32) {
        let Some(shared) = &mut self.shared else { return };
        let index = session as usize;
        if shared.pending.len() <= index {
            shared.pending.resize(index + 1, 0);
        }
        shared.pending[index] += 1;
    }

    /// Removes a request of this session that was answered or rejected.
    pub(crate) fn remove(&mut self, session: u32) {
        if let Some(pending) = self.shared.as_mut().and_then(|shared| shared.pending.get_mut(session as usize)) {
            *pending -= 1;
        }
    }

    /// Whether the response to a request of this service time, executed now, is written
    /// immediately.
    ///
    /// It is if no other response of the session is pending and the request took too long to hold
    /// its response for other sessions.
    pub(crate) fn is_written_immediately(&self, session: u32, service: Nanos) -> bool {
        self.shared.as_ref().is_none_or(|shared| {
            shared.pending.get(session as usize).is_none_or(|pending| *pending <= 1) && service >= SocketCosts::SLOW
        })
    }

    /// CPU time that the core spends to send the response to a request of this service time,
    /// executed now.
    pub(crate) fn cost(&self, session: u32, service: Nanos) -> Nanos {
        match &self.shared {
            Some(shared) if !self.is_written_immediately(session, service) => shared.costs.send,
            _ => self.send,
        }
    }
}
