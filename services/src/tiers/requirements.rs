//! Which leaves a mid-tier may ask: those of its service, with the parts of the same data, in their order. With any others it would answer
//! as well, and wrongly. Never here: how leaves are asked about themselves.

use leeward_rpc::statistics::ServiceInfo;
use leeward_rpc::tier::{LeafValidator, Leaves};
use std::sync::{Mutex, PoisonError};

/// Characters of what a leaf tells that are repeated.
const EXCERPT_MAX: usize = 60;

/// Leaves that a mid-tier needs.
#[derive(Debug)]
pub struct LeafRequirements {
    /// The leaves' service.
    pub service: String,
    /// Parts of the data; `None` where leaves have no parts.
    pub shards: Option<u32>,
    /// Data that they have parts of; `None`: whatever it is.
    pub data: Option<String>,
    /// Controller that the mid-tier runs.
    pub controller: &'static str,
    leaves: Leaves,
    /// Parts that leaves have told.
    reported_shards: Mutex<Vec<Option<(u32, u32)>>>,
}

impl LeafRequirements {
    /// Of these leaves, whose connections speak to the controller that they name.
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

    /// Why the part that a leaf has does not fit.
    fn misfit(&self, leaf: usize, told: Option<(u32, u32)>, parts: u32) -> Option<String> {
        let mut known = self.reported_shards.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = (leaf as u32 % parts.max(1) + 1, parts);
        if let Some(place) = known.get_mut(leaf) {
            *place = told;
        }
        let (at, of) = match told {
            Some(told) if told == expected => return None,
            Some(told) => told,
            None => return Some(format!("has no part of the data; accepted: --shard {}/{parts}", expected.0)),
        };
        let copies = self.leaves.count() as u32 / parts.max(1);
        let of_others = known.iter().enumerate().filter(|(other, part)| *other != leaf && **part == Some((at, of)));
        if of != parts {
            let copies = if copies > 1 { format!(" with {copies} replicas") } else { String::new() };
            return Some(format!(
                "has shard {at}/{of}, and {} leaves{copies} have {parts} shards; accepted: --shard {}/{parts}",
                self.leaves.count(),
                expected.0
            ));
        }
        let twin = of_others.map(|(other, _)| other).next().filter(|_| copies <= 1);
        let as_twin = twin.map(|twin| format!(", as {} has", self.name(twin))).unwrap_or_default();
        Some(format!(
            "has shard {at}/{of}{as_twin}; accepted at this place of --leaves: --shard {}/{parts}",
            expected.0
        ))
    }
}

fn excerpt(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(EXCERPT_MAX).collect()
}

impl LeafValidator for LeafRequirements {
    fn validate(&self, leaf: usize, about: &ServiceInfo) -> Result<Option<String>, String> {
        let refuse = |words: String| Err(format!("{} {words}", self.name(leaf)));
        match &about.service {
            Some(service) if *service == self.service => {}
            Some(other) => return refuse(format!("serves {}; accepted: {}", excerpt(other), self.service)),
            None => return refuse(format!("does not tell what it serves; accepted: {}", self.service)),
        }
        // Data that somebody has in a file may have another name there.
        let is_made = |text: &str| text.starts_with("synthetic");
        if let (Some(needed), Some(told)) = (&self.data, &about.data)
            && needed != told
            && (is_made(needed) || is_made(told))
        {
            return refuse(format!("has data {}; accepted: {}", excerpt(told), excerpt(needed)));
        }
        if let Some(words) = self.shards.and_then(|parts| self.misfit(leaf, about.part, parts)) {
            return refuse(words);
        }
        let (spoken, told) = (self.leaves.controller(), about.admission.as_deref().unwrap_or("none"));
        let warning = if told != spoken {
            Some(format!("runs {}, and its clients here are {spoken}'s: see --leaf-admission", excerpt(told)))
        } else if told != self.controller {
            Some(format!("runs {}, and the tier {}", excerpt(told), self.controller))
        } else {
            None
        };
        Ok(warning.map(|words| format!("{} {words}", self.name(leaf))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirements(copies: usize) -> LeafRequirements {
        let addresses = (1..=4).map(|leaf| format!("127.0.0.1:760{leaf}"));
        let leaves = Leaves::resolve(addresses).unwrap().copies(copies).unwrap();
        let needed = LeafRequirements::new(&leaves, "a-leaf".into(), "none");
        LeafRequirements { shards: Some(4 / copies as u32), data: Some("synthetic:1:2:3".into()), ..needed }
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
    fn leaves_that_fit_are_asked() {
        for (copies, parts) in [(1, [1, 2, 3, 4]), (2, [1, 2, 1, 2])] {
            let needed = requirements(copies);
            for (leaf, part) in parts.into_iter().enumerate() {
                assert_eq!(needed.validate(leaf, &about((part, 4 / copies as u32))), Ok(None), "{copies} {leaf}");
            }
        }
    }

    #[test]
    fn leaves_that_do_not_fit_are_refused_in_a_line() {
        let needed = requirements(1);
        assert_eq!(needed.validate(0, &about((1, 4))), Ok(None));
        let check = |leaf: usize, about: ServiceInfo, told: &str| {
            let words = needed.validate(leaf, &about).unwrap_err();
            assert!(words.contains(told) && words.lines().count() == 1, "{words}");
            assert!(words.starts_with(&format!("leaf {} (127.0.0.1:760{})", leaf + 1, leaf + 1)), "{words}");
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
        check(3, ServiceInfo::default(), "does not tell what it serves; accepted: a-leaf");
        check(
            3,
            ServiceInfo { data: Some("synthetic:1:2:4".into()), ..about((4, 4)) },
            "has data synthetic:1:2:4; accepted: synthetic:1:2:3",
        );
    }

    #[test]
    fn another_controller_is_warned_of() {
        let needed = requirements(1);
        let breakwater = ServiceInfo { admission: Some("breakwater".into()), ..about((1, 4)) };
        let words = needed.validate(0, &breakwater).unwrap().unwrap();
        assert!(words.ends_with("runs breakwater, and its clients here are none's: see --leaf-admission"), "{words}");
        let needed = LeafRequirements { controller: "dagor", ..needed };
        assert!(needed.validate(0, &about((1, 4))).unwrap().unwrap().ends_with("runs none, and the tier dagor"));
    }
}
