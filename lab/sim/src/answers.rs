//! Answers of sessions that have several under way share writes, behind sockets: which answer is written as soon as it is there, and what
//! sending costs the core that made it. Never here: what is read together (`server::sockets`).

use crate::config::{ServerModel, Sockets};
use leeward_core::units::Nanos;

/// Requests that were admitted and have no answer, by session.
pub(crate) struct Answers {
    /// CPU time of a write.
    send: Nanos,
    /// `None`: no answer shares a write with another.
    shared: Option<Shared>,
}

struct Shared {
    costs: Sockets,
    /// A session is known once it has sent something.
    owed: Vec<u32>,
}

impl Answers {
    /// Where requests take locks, each answer is written by itself: their steps end on any core.
    pub(crate) fn new(model: &ServerModel, takes_steps: bool) -> Self {
        let sockets = model.sockets.filter(|_| !takes_steps);
        Answers { send: model.costs.send, shared: sockets.map(|costs| Shared { costs, owed: Vec::new() }) }
    }

    /// A request of this session was admitted.
    pub(crate) fn owed(&mut self, session: u32) {
        let Some(shared) = &mut self.shared else { return };
        let place = session as usize;
        if shared.owed.len() <= place {
            shared.owed.resize(place + 1, 0);
        }
        shared.owed[place] += 1;
    }

    /// A request of this session has been answered, or dropped after all.
    pub(crate) fn settled(&mut self, session: u32) {
        if let Some(owed) = self.shared.as_mut().and_then(|shared| shared.owed.get_mut(session as usize)) {
            *owed -= 1;
        }
    }

    /// Whether the answer to a request of this service, executed now, is written as soon as it is there: no other of its session could
    /// share the write, and it took too long to wait for those of other sessions.
    pub(crate) fn leaves_at_once(&self, session: u32, service: Nanos) -> bool {
        self.shared.as_ref().is_none_or(|shared| {
            shared.owed.get(session as usize).is_none_or(|owed| *owed <= 1) && service >= Sockets::SLOW
        })
    }

    /// CPU time of the core for the answer to a request of this service, executed now.
    pub(crate) fn cost(&self, session: u32, service: Nanos) -> Nanos {
        match &self.shared {
            Some(shared) if !self.leaves_at_once(session, service) => shared.costs.send,
            _ => self.send,
        }
    }
}
