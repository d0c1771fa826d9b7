//! Invariants of a pair after every step, whatever is done to it.

use super::{Client, Pair};
use leeward_control::units::Time;

impl Pair {
    /// The first thing that did not hold, and when.
    pub fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    pub(super) fn check(&mut self) {
        if self.violation.is_none() {
            let Time(now) = self.now;
            self.violation = self.found().map(|found| format!("at {now} ns: {found}"));
        }
    }

    fn found(&self) -> Option<String> {
        self.of_the_clients().or_else(|| self.of_the_calls()).or_else(|| self.of_the_credits())
    }

    /// Requests end once; nobody who keeps the rules is refused or reproached.
    fn of_the_clients(&self) -> Option<String> {
        // A client whose connection is over at both ends was looked at when that came to be.
        self.open.iter().find_map(|id| {
            let link = &self.links[*id];
            let end = link.server.as_ref()?;
            let wrong = match &link.client {
                Client::Honest(honest) => {
                    let reproach = end.reproach.as_ref().filter(|_| !link.is_tampered);
                    let reproach = reproach.filter(|(code, _)| !may_be_said(*code));
                    let refused = (end.refused > 0 && !link.is_tampered).then(|| format!("refused {}", end.refused));
                    honest.violation.clone().or(refused).or(reproach.map(|why| format!("sent away: {why:?}")))
                }
                Client::Raw(raw) => raw.violation.clone().filter(|_| !link.is_tampered),
            };
            wrong.map(|wrong| format!("connection {id}: {wrong}"))
        })
    }

    /// Each admitted call is answered or abandoned once, and no connection has more of them than it may.
    fn of_the_calls(&self) -> Option<String> {
        let ends = || self.open.iter().filter_map(|id| self.links[*id].server.as_ref());
        let most = ends().map(|end| end.connection.unanswered()).max().unwrap_or(0);
        if most > self.config.unanswered_max {
            return Some(format!("{most} calls of one connection are unanswered"));
        }
        let unanswered: u64 = ends().map(|end| end.connection.unanswered() as u64).sum();
        let (tally, counts) = (self.core.tally, self.core.counts());
        if tally.admitted != tally.answered + tally.abandoned + unanswered {
            return Some(format!("{tally:?}, and {unanswered} are unanswered"));
        }
        if counts.received != counts.completed + counts.dropped + counts.abandoned + unanswered {
            return Some(format!("{counts:?}, and {unanswered} are unanswered"));
        }
        None
    }

    /// The controller's books are the sum of its sessions.
    fn of_the_credits(&self) -> Option<String> {
        let windows = self.open.iter().filter_map(|id| self.links[*id].server.as_ref()?.connection.window());
        let (sessions, held) =
            windows.fold((0, 0), |(sessions, held), window| (sessions + 1, held + i64::from(window.0)));
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

    /// Checks the invariants once all clients have gone: no connection is open, every request has ended.
    ///
    /// # Errors
    /// What does not.
    pub fn settled(&self) -> Result<(), String> {
        if let Some(violation) = &self.violation {
            return Err(violation.clone());
        }
        if !self.open.is_empty() {
            return Err(format!("connections {:?} are open", self.open));
        }
        for (id, link) in self.links.iter().enumerate() {
            if let Client::Honest(honest) = &link.client {
                let without_end = honest.ends.iter().filter(|end| end.is_none()).count();
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

/// Whether a client that keeps the rules may be sent away so.
fn may_be_said(code: leeward_wire::ErrorCode) -> bool {
    use leeward_wire::ErrorCode::{ConnectionLimit, ShuttingDown, Timeout};
    matches!(code, ShuttingDown | ConnectionLimit | Timeout)
}
