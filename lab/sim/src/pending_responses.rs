//! Answers of sessions that have several under way share writes, behind sockets: which answer is written as soon as it is there, and what
//! sending costs the core that made it. Never here: what is read together (`server::sockets`).

use crate::config::{ServerModel, SocketCosts};
use leeward_core::units::Nanos;

/// Requests that were admitted and have no answer, by session.
pub(crate) struct PendingResponses {
    /// CPU time of a write.
    send: Nanos,
    /// `None`: no answer shares a write with another.
    shared: Option<SharedWrites>,
}

struct SharedWrites {
    costs: SocketCosts,
    /// A session is known once it has sent something.
    pending: Vec<u32>,
}

impl PendingResponses {
    /// Where requests take locks, each answer is written by itself: their steps end on any core.
    pub(crate) fn new(model: &ServerModel, takes_steps: bool) -> Self {
        let sockets = model.sockets.filter(|_| !takes_steps);
        PendingResponses {
            send: model.costs.send,
            shared: sockets.map(|costs| SharedWrites { costs, pending: Vec::new() }),
        }
    }

    /// A request of this session was admitted.
    pub(crate) fn add(&mut self, session: u32) {
        let Some(shared) = &mut self.shared else { return };
        let place = session as usize;
        if shared.pending.len() <= place {
            shared.pending.resize(place + 1, 0);
        }
        shared.pending[place] += 1;
    }

    /// A request of this session has been answered, or dropped after all.
    pub(crate) fn remove(&mut self, session: u32) {
        if let Some(owed) = self.shared.as_mut().and_then(|shared| shared.pending.get_mut(session as usize)) {
            *owed -= 1;
        }
    }

    /// Whether the answer to a request of this service, executed now, is written as soon as it is there: no other of its session could
    /// share the write, and it took too long to wait for those of other sessions.
    pub(crate) fn is_written_immediately(&self, session: u32, service: Nanos) -> bool {
        self.shared.as_ref().is_none_or(|shared| {
            shared.pending.get(session as usize).is_none_or(|owed| *owed <= 1) && service >= SocketCosts::SLOW
        })
    }

    /// CPU time of the core for the answer to a request of this service, executed now.
    pub(crate) fn cost(&self, session: u32, service: Nanos) -> Nanos {
        match &self.shared {
            Some(shared) if !self.is_written_immediately(session, service) => shared.costs.send,
            _ => self.send,
        }
    }
}
