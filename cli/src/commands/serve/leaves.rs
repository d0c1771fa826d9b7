//! Reports on the standard error when a leaf of the served tier goes away or comes back. Does not
//! contain leaves that do not fit (the service's warnings).

use std::time::{Duration, Instant};

use leeward_rpc::server::Server;
use leeward_rpc::statistics::TierStatistics;

/// Interval of the looks. The first one gives the tier the same time to connect.
const INTERVAL: Duration = Duration::from_secs(1);

/// Leaves that were away at the last look.
pub(super) struct LeafWatch {
    away: Vec<String>,
    /// Time of the next look; `None` for a server without leaves.
    next: Option<Instant>,
}

impl LeafWatch {
    pub(super) fn new(server: &Server) -> Self {
        let next = server.statistics().tier.map(|_| Instant::now() + INTERVAL);
        LeafWatch { away: Vec::new(), next }
    }

    /// Returns a line for each leaf that went away or came back since the last look.
    pub(super) fn take_messages(&mut self, server: &Server) -> Vec<String> {
        let now = Instant::now();
        if self.next.is_none_or(|next| now < next) {
            return Vec::new();
        }
        self.next = Some(now + INTERVAL);
        self.changes(server.statistics().tier.unwrap_or_default())
    }

    fn changes(&mut self, TierStatistics { leaves, away, .. }: TierStatistics) -> Vec<String> {
        let gone = away.iter().filter(|leaf| !self.away.contains(leaf));
        let gone = gone.map(|leaf| format!("warning: leaf {leaf} is away; {} of {leaves} are", away.len()));
        let back = self.away.iter().filter(|leaf| !away.contains(leaf));
        let messages = gone.chain(back.map(|leaf| format!("leaf {leaf} is back"))).collect();
        self.away = away;
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_of_a_leaf_is_reported_once() {
        let mut watch = LeafWatch { away: Vec::new(), next: None };
        let mut look = |away: &[&str]| {
            let away = away.iter().map(|leaf| leaf.to_string()).collect();
            watch.changes(TierStatistics { leaves: 3, away, partial: 0 })
        };
        assert!(look(&[]).is_empty());
        assert_eq!(look(&["a:1"]), ["warning: leaf a:1 is away; 1 of 3 are"]);
        assert!(look(&["a:1"]).is_empty());
        assert_eq!(look(&["b:2"]), ["warning: leaf b:2 is away; 1 of 3 are", "leaf a:1 is back"]);
        assert_eq!(look(&[]), ["leaf b:2 is back"]);
    }
}
