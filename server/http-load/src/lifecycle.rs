//! The life of a connection, as its run records it.

use std::error::Error;

use crate::config::HttpLoadError;
use crate::shared::Shared;
use crate::state::Place;

/// End of a connection.
pub(crate) struct ConnectionEnd {
    /// Responses that it has delivered.
    pub(crate) answered: u64,
    /// Why it was lost. `None`: the server closed it in good order, or this end closed it.
    pub(crate) loss: Option<String>,
}

/// Reports of a connection to its run, in the order of its life.
pub(crate) struct Lifecycle<'a> {
    shared: &'a Shared,
    place: Place,
    /// Whether the connection has been open before.
    is_first: bool,
    is_open: bool,
    is_failing: bool,
}

impl<'a> Lifecycle<'a> {
    /// A connection that has not been open yet.
    pub(crate) fn new(shared: &'a Shared, place: Place) -> Self {
        Lifecycle { shared, place, is_first: true, is_open: false, is_failing: false }
    }

    /// Reports the connection as open.
    pub(crate) fn set_open(&mut self) {
        self.is_open = true;
        let mut state = self.shared.state.borrow_mut();
        if std::mem::take(&mut self.is_first) {
            state.connections.opened += 1;
            state.recorder().record_open();
            self.shared.opened.notify_one();
        } else {
            state.recorder().record_reopening();
        }
        if std::mem::take(&mut self.is_failing) {
            state.connections.failing -= 1;
        }
    }

    /// Reports the connection's end. Returns whether to open it again.
    pub(crate) fn set_closed(&mut self, end: &ConnectionEnd) -> bool {
        let mut state = self.shared.state.borrow_mut();
        state.leave(self.place);
        if self.is_first {
            let (endpoint, of) = (self.shared.servers[self.place.endpoint].endpoint.to_string(), self.shared.count);
            let reason = end.loss.clone().unwrap_or_else(|| "the server closed it".into());
            let error = HttpLoadError::Connect { endpoint, number: self.place.slot + 1, of, reason };
            self.shared.open_error.borrow_mut().get_or_insert(error);
            self.shared.opened.notify_one();
            return false;
        }
        let was_open = std::mem::take(&mut self.is_open);
        match &end.loss {
            Some(reason) if was_open => state.recorder().record_loss(reason),
            None if was_open && end.answered == 0 => {
                // After a response it is a server that closes idle connections.
                let totals = *state.recorder().totals();
                if totals.completed + totals.dropped + totals.failed == 0 {
                    state.recorder().record_loss("the server closed it without a response");
                }
            }
            _ => {}
        }
        if !was_open && !std::mem::replace(&mut self.is_failing, true) {
            state.connections.failing += 1;
            state.connections.last_error.clone_from(&end.loss);
        }
        true
    }
}

/// The error and its causes in one line.
pub(crate) fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !line.ends_with(&text) {
            line += &format!(": {text}");
        }
        next = cause.source();
    }
    line
}
