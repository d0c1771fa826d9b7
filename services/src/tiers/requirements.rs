//! Leaves that a mid-tier may ask: leaves of its service, with parts of the same data, in order.
//!
//! With other leaves the mid-tier would answer, and answer wrongly. Does not contain the request
//! for a leaf's description.

use leeward_rpc::statistics::ServiceInfo;
use leeward_rpc::tier::{LeafValidator, Leaves};
use std::sync::{Mutex, PoisonError};

/// Characters of a leaf's own text that a message repeats.
const EXCERPT_MAX: usize = 60;

/// Requirements of a mid-tier on its leaves.
#[derive(Debug)]
pub struct LeafRequirements {
    /// The leaves' service.
    pub service: String,
    /// Number of parts of the data; `None` for leaves without parts.
    pub shards: Option<u32>,
    /// Required data; `None` accepts any.
    pub data: Option<String>,
    /// Controller that the mid-tier runs.
    pub controller: &'static str,
    leaves: Leaves,
    /// Parts that leaves have reported.
    reported_shards: Mutex<Vec<Option<(u32, u32)>>>,
}

impl LeafRequirements {
    /// Creates requirements on these leaves; the connections speak to the controller that `leaves`
    /// names.
    pub fn new(leaves: &Leaves, service: String, controller: &'static str) -> Self {
        let known = Mutex::new(vec![None; leaves.count()]);
        LeafRequirements {
            service,
            shards: None,
            data: None,
            controller,
            leaves: leaves.clone(),
            reported_shards: known,
        }
    }

    fn name(&self, leaf: usize) -> String {
        let address = self.leaves.addresses(leaf).first().map(ToString::to_string).unwrap_or_default();
        format!("leaf {} ({address})", leaf + 1)
    }

    /// Returns the reason why a leaf's part does not fit; records the part.
    fn misfit(&self, leaf: usize, reported: Option<(u32, u32)>, parts: u32) -> Option<String> {
        let mut known = self.reported_shards.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = (leaf as u32 % parts.max(1) + 1, parts);
        if let Some(entry) = known.get_mut(leaf) {
            *entry = reported;
        }
        let (at, of) = match reported {
            Some(reported) if reported == expected => return None,
            Some(reported) => reported,
            None => return Some(format!("has no part of the data; accepted: --shard {}/{parts}", expected.0)),
        };
        let replicas = self.leaves.count() as u32 / parts.max(1);
        let of_others = known.iter().enumerate().filter(|(other, part)| *other != leaf && **part == Some((at, of)));
        if of != parts {
            let replicas = if replicas > 1 { format!(" with {replicas} replicas") } else { String::new() };
            return Some(format!(
                "has shard {at}/{of}, and {} leaves{replicas} have {parts} shards; accepted: --shard {}/{parts}",
                self.leaves.count(),
                expected.0
            ));
        }
        let duplicate = of_others.map(|(other, _)| other).next().filter(|_| replicas <= 1);
        let as_duplicate = duplicate.map(|duplicate| format!(", as {} has", self.name(duplicate))).unwrap_or_default();
        Some(format!(
            "has shard {at}/{of}{as_duplicate}; accepted at this place of --leaves: --shard {}/{parts}",
            expected.0
        ))
    }
}

fn excerpt(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(EXCERPT_MAX).collect()
}

impl LeafValidator for LeafRequirements {
    fn validate(&self, leaf: usize, about: &ServiceInfo) -> Result<Option<String>, String> {
        let reject = |message: String| Err(format!("{} {message}", self.name(leaf)));
        match &about.service {
            Some(service) if *service == self.service => {}
            Some(other) => return reject(format!("serves {}; accepted: {}", excerpt(other), self.service)),
            None => return reject(format!("does not report its service; accepted: {}", self.service)),
        }
        // Data from a file may have another name on the leaf's machine.
        let is_made = |text: &str| text.starts_with("synthetic");
        if let (Some(needed), Some(reported)) = (&self.data, &about.data)
            && needed != reported
            && (is_made(needed) || is_made(reported))
        {
            return reject(format!("has data {}; accepted: {}", excerpt(reported), excerpt(needed)));
        }
        if let Some(message) = self.shards.and_then(|parts| self.misfit(leaf, about.part, parts)) {
            return reject(message);
        }
        let (client_controller, reported) = (self.leaves.controller(), about.admission.as_deref().unwrap_or("none"));
        let warning = if reported != client_controller {
            Some(format!(
                "runs {}, and its clients here are {client_controller}'s: see --leaf-admission",
                excerpt(reported)
            ))
        } else if reported != self.controller {
            Some(format!("runs {}, and the tier {}", excerpt(reported), self.controller))
        } else {
            None
        };
        Ok(warning.map(|message| format!("{} {message}", self.name(leaf))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirements(copies: usize) -> LeafRequirements {
        let addresses = (1..=4).map(|leaf| format!("127.0.0.1:760{leaf}"));
        let leaves = Leaves::resolve(addresses).unwrap().copies(copies).unwrap();
        let base = LeafRequirements::new(&leaves, "a-leaf".into(), "none");
        LeafRequirements { shards: Some(4 / copies as u32), data: Some("synthetic:1:2:3".into()), ..base }
    }

    fn about(part: (u32, u32)) -> ServiceInfo {
        ServiceInfo {
            service: Some("a-leaf".into()),
            part: Some(part),
            data: Some("synthetic:1:2:3".into()),
            admission: None,
        }
    }

    #[test]
    fn matching_leaves_are_accepted() {
        for (copies, parts) in [(1, [1, 2, 3, 4]), (2, [1, 2, 1, 2])] {
            let needed = requirements(copies);
            for (leaf, part) in parts.into_iter().enumerate() {
                assert_eq!(needed.validate(leaf, &about((part, 4 / copies as u32))), Ok(None), "{copies} {leaf}");
            }
        }
    }

    #[test]
    fn mismatching_leaves_are_rejected_in_one_line() {
        let needed = requirements(1);
        assert_eq!(needed.validate(0, &about((1, 4))), Ok(None));
        let check = |leaf: usize, about: ServiceInfo, told: &str| {
            let message = needed.validate(leaf, &about).unwrap_err();
            assert!(message.contains(told) && message.lines().count() == 1, "{message}");
            assert!(message.starts_with(&format!("leaf {} (127.0.0.1:760{})", leaf + 1, leaf + 1)), "{message}");
        };
        check(
            1,
            about((1, 4)),
            "has shard 1/4, as leaf 1 (127.0.0.1:7601) has; accepted at this place of --leaves: --shard 2/4",
        );
        check(1, about((3, 4)), "has shard 3/4; accepted at this place of --leaves: --shard 2/4");
        check(2, about((3, 8)), "has shard 3/8, and 4 leaves have 4 shards; accepted: --shard 3/4");
        check(2, ServiceInfo { part: None, ..about((1, 1)) }, "has no part of the data; accepted: --shard 3/4");
        check(3, ServiceInfo { service: Some("b\nleaf".into()), ..about((4, 4)) }, "serves b");
        check(3, ServiceInfo::default(), "does not report its service; accepted: a-leaf");
        check(
            3,
            ServiceInfo { data: Some("synthetic:1:2:4".into()), ..about((4, 4)) },
            "has data synthetic:1:2:4; accepted: synthetic:1:2:3",
        );
    }

    #[test]
    fn another_controller_gives_a_warning() {
        let needed = requirements(1);
        let breakwater = ServiceInfo { admission: Some("breakwater".into()), ..about((1, 4)) };
        let message = needed.validate(0, &breakwater).unwrap().unwrap();
        assert!(
            message.ends_with("runs breakwater, and its clients here are none's: see --leaf-admission"),
            "{message}"
        );
        let needed = LeafRequirements { controller: "dagor", ..needed };
        assert!(needed.validate(0, &about((1, 4))).unwrap().unwrap().ends_with("runs none, and the tier dagor"));
    }
}
