//! Conservation checks of a pair, after every step.

use super::server::ServerEnd;
use super::{Client, Pair};
use leeward_core::units::Time;
use leeward_wire::{ErrorCode, Version};

/// Sums over all sessions of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SessionTotals {
    unanswered: u64,
    credits_held: i64,
    sessions: i64,
}

impl SessionTotals {
    /// The contribution of one session.
    pub(super) fn of(end: &ServerEnd) -> SessionTotals {
        let window = end.connection.window();
        SessionTotals {
            unanswered: end.connection.unanswered() as u64,
            credits_held: window.map_or(0, |window| i64::from(window.0)),
            sessions: i64::from(window.is_some()),
        }
    }

    /// Applies a change of a session's contribution.
    pub(super) fn change(&mut self, before: &SessionTotals, after: &SessionTotals) {
        self.unanswered = self.unanswered + after.unanswered - before.unanswered;
        self.credits_held += after.credits_held - before.credits_held;
        self.sessions += after.sessions - before.sessions;
    }
}

impl Pair {
    /// The first violation, with its time.
    pub fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    pub(super) fn check(&mut self) {
        if self.violation.is_none() {
            let Time(now) = self.now;
            self.violation = self.find_violation().map(|violation| format!("at {now} ns: {violation}"));
        }
    }

    fn find_violation(&self) -> Option<String> {
        self.check_calls().or_else(|| self.check_credits())
    }

    /// Checks that each request ends once, and that the server's frames are valid.
    pub(super) fn check_client(&mut self, id: usize) {
        let link = &self.links[id];
        let violation = match &link.client {
            Client::Honest(honest) => honest.violation.as_ref(),
            Client::Raw(raw) => raw.violation.as_ref().filter(|_| !link.is_tampered),
        };
        if let Some(violation) = violation {
            self.violation.get_or_insert_with(|| format!("connection {id}: {violation}"));
        }
    }

    /// Checks the server's treatment of a client. No honest client's call is rejected for missing
    /// credit, and its connection is not closed for a violation. The number of unanswered calls is
    /// within its limit.
    pub(super) fn check_server(&mut self, id: usize) {
        let link = &self.links[id];
        let Some(end) = &link.server else { return };
        let is_honest = matches!(link.client, Client::Honest(_)) && !link.is_tampered;
        let is_old = self.config.max_version < Version::NEWEST;
        let closed_for = end.close_reason.as_ref().filter(|(code, _)| !is_expected_code(*code, is_old));
        let unanswered = end.connection.unanswered();
        let violation = match closed_for {
            Some(why) if is_honest => format!("an honest client was sent away: {why:?}"),
            _ if is_honest && end.rejected_uncredited > 0 => {
                format!("an honest client was refused {} calls", end.rejected_uncredited)
            }
            _ if unanswered > self.config.unanswered_max => format!("{unanswered} calls are unanswered"),
            _ => return,
        };
        self.violation.get_or_insert_with(|| format!("connection {id}: {violation}"));
    }

    /// Checks that each admitted call is answered or abandoned once.
    fn check_calls(&self) -> Option<String> {
        let unanswered = self.totals.unanswered;
        let (tally, counts) = (self.core.tally, self.core.counts());
        if tally.admitted != tally.answered + tally.abandoned + unanswered {
            return Some(format!("{tally:?}, and {unanswered} are unanswered"));
        }
        if counts.received != counts.completed + counts.rejected + counts.abandoned + unanswered {
            return Some(format!("{counts:?}, and {unanswered} are unanswered"));
        }
        None
    }

    /// Checks that the controller's totals are the sums over its sessions.
    fn check_credits(&self) -> Option<String> {
        let SessionTotals { credits_held: held, sessions, .. } = self.totals;
        let gauges = self.core.gauges();
        if let Some(issued) = gauges.credits_issued
            && issued != held
        {
            return Some(format!("{issued} credits issued, but sessions hold {held}"));
        }
        if let Some(known) = gauges.sessions
            && known != sessions
        {
            return Some(format!("{known} sessions known, but {sessions} are open"));
        }
        None
    }

    /// Checks that the incrementally updated sums are those of all connections.
    pub(super) fn check_sums(&mut self) {
        let mut all = SessionTotals::default();
        for end in self.open.iter().filter_map(|id| self.links[*id].server.as_ref()) {
            all.change(&SessionTotals::default(), &SessionTotals::of(end));
        }
        if all != self.totals {
            self.violation.get_or_insert_with(|| format!("summed up as {:?}, but it is {all:?}", self.totals));
        }
    }

    /// Checks the invariants once all clients have gone: no connection is open, every request has
    /// ended.
    ///
    /// # Errors
    /// The first violation.
    pub fn check_settled(&self) -> Result<(), String> {
        if let Some(violation) = &self.violation {
            return Err(violation.clone());
        }
        if !self.open.is_empty() {
            return Err(format!("connections {:?} are open", self.open));
        }
        for (id, link) in self.links.iter().enumerate() {
            if let Client::Honest(honest) = &link.client {
                let without_end = honest.outcomes.iter().filter(|end| end.is_none()).count();
                if let Some(violation) = &honest.violation {
                    return Err(format!("connection {id}: {violation}"));
                }
                if without_end > 0 || honest.open > 0 {
                    return Err(format!("connection {id}: {without_end} requests without an end"));
                }
            }
        }
        Ok(())
    }
}

/// Whether a server may close an honest client's connection with this code. `is_old`: the server is
/// older than the client.
fn is_expected_code(code: ErrorCode, is_old: bool) -> bool {
    match code {
        ErrorCode::ShuttingDown | ErrorCode::ConnectionLimit | ErrorCode::Timeout => true,
        ErrorCode::Version => is_old,
        _ => false,
    }
}
