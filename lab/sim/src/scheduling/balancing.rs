//! Load balancing policies: where a message is queued, and how an idle core finds work.
//!
//! Names and meaning only; `super::search` computes the search times.

use leeward_core::units::{Nanos, parse_duration};

/// Where a message is queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DispatchPolicy {
    /// A random active core.
    #[default]
    Random,
    /// Among this many random active cores, the one with the fewest requests.
    ShortestOf(u32),
    /// The active core with the fewest requests; while all have this many, a shared queue (join the
    /// bounded shortest queue).
    Bounded(u32),
}

/// How an idle core finds work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StealPolicy {
    /// Never: cores don't steal.
    Never,
    /// The core checks one core after the other, from the next one on.
    InOrder,
    /// As [`StealPolicy::InOrder`], from a random core on (Shenango).
    #[default]
    Random,
    /// First the core that shares its physical core, then as [`StealPolicy::Random`].
    SiblingFirst,
    /// A core with a flag. A flag rises when an entry has waited for this long; one check sees all
    /// flags.
    Flagged(Nanos),
    /// The core knows the queue with the oldest entry: a bound.
    Oracle,
}

/// A dispatch policy with a steal policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balancing {
    /// Where a message is queued.
    pub dispatch: DispatchPolicy,
    /// How an idle core finds work.
    pub stealing: StealPolicy,
}

/// Names of the policies.
pub const NAMES: &str = "none, steal-in-order, steal-random, steal-sibling, flags, flags:500ns, oracle, choice:2, \
                         choice-steal:2, jbsq:2";

/// Maximum sample size and queue bound.
const MAX_SAMPLE: u32 = 128;
/// Default waiting time after which a core's flag rises.
const FLAGGED_FROM: Nanos = Nanos(500);

impl Balancing {
    /// Parses one of [`NAMES`]; `None` if `text` is not a policy.
    pub fn parse(text: &str) -> Option<Balancing> {
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        let number = || match rest {
            None => Some(2),
            Some(rest) => rest.parse().ok().filter(|number| (1..=MAX_SAMPLE).contains(number)),
        };
        let plain =
            |steal_policy| rest.is_none().then_some(Balancing { stealing: steal_policy, ..Balancing::default() });
        match name {
            "none" => plain(StealPolicy::Never),
            "steal-in-order" => plain(StealPolicy::InOrder),
            "steal-random" => plain(StealPolicy::Random),
            "steal-sibling" => plain(StealPolicy::SiblingFirst),
            "oracle" => plain(StealPolicy::Oracle),
            "flags" => {
                let from = rest.map_or(Ok(FLAGGED_FROM), parse_duration).ok()?;
                Some(Balancing { stealing: StealPolicy::Flagged(from), ..Balancing::default() })
            }
            "choice" => {
                Some(Balancing { dispatch: DispatchPolicy::ShortestOf(number()?), stealing: StealPolicy::Never })
            }
            "choice-steal" => {
                Some(Balancing { dispatch: DispatchPolicy::ShortestOf(number()?), stealing: StealPolicy::Random })
            }
            "jbsq" => Some(Balancing { dispatch: DispatchPolicy::Bounded(number()?), stealing: StealPolicy::Never }),
            _ => None,
        }
    }
}

impl std::fmt::Display for Balancing {
    /// Writes the name that [`Balancing::parse`] reads.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.dispatch, self.stealing) {
            (DispatchPolicy::ShortestOf(sample), StealPolicy::Never) => write!(f, "choice:{sample}"),
            (DispatchPolicy::ShortestOf(sample), _) => write!(f, "choice-steal:{sample}"),
            (DispatchPolicy::Bounded(bound), _) => write!(f, "jbsq:{bound}"),
            (DispatchPolicy::Random, StealPolicy::Never) => f.write_str("none"),
            (DispatchPolicy::Random, StealPolicy::InOrder) => f.write_str("steal-in-order"),
            (DispatchPolicy::Random, StealPolicy::Random) => f.write_str("steal-random"),
            (DispatchPolicy::Random, StealPolicy::SiblingFirst) => f.write_str("steal-sibling"),
            (DispatchPolicy::Random, StealPolicy::Flagged(from)) => write!(f, "flags:{}ns", from.0),
            (DispatchPolicy::Random, StealPolicy::Oracle) => f.write_str("oracle"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_and_nothing_else() {
        for name in NAMES.split(", ") {
            let read = Balancing::parse(name).unwrap();
            assert_eq!(Balancing::parse(&read.to_string()), Some(read), "{name}");
        }
        for wrong in ["", "steal", "oracle:2", "choice:0", "choice:x", "jbsq:999", "flags:5", "steal-random:2"] {
            assert_eq!(Balancing::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Balancing::parse("choice:3").unwrap().dispatch, DispatchPolicy::ShortestOf(3));
        assert_eq!(Balancing::parse("flags:2us").unwrap().stealing, StealPolicy::Flagged(Nanos(2_000)));
    }
}
