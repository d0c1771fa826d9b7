//! How work and cores find each other: where a message goes, and how a core without work looks for some. Names and
//! meaning only; the looking is `super::search`.

use leeward_core::units::{Nanos, parse_duration};

/// Where a message goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DispatchPolicy {
    /// To any active core.
    #[default]
    Random,
    /// To the active core with the fewest requests of so many that are drawn.
    ShortestOf(u32),
    /// To the active core with the fewest requests; while all have this many, into one queue for all (join the bounded
    /// shortest queue).
    Bounded(u32),
}

/// How a core without work of its own finds some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StealPolicy {
    /// Not at all.
    Never,
    /// The core looks at one core after the other, from the next one on.
    InOrder,
    /// The same from a core that is drawn (Shenango).
    #[default]
    Random,
    /// First at the core that shares its physical core, then as [`Finding::Random`].
    SiblingFirst,
    /// At the cores that say that something has waited for this long there: one look tells which.
    Flagged(Nanos),
    /// The core knows which queue has waited longest: a bound.
    Oracle,
}

/// Both together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balancing {
    /// Where a message goes.
    pub dispatch: DispatchPolicy,
    /// How a core without work finds some.
    pub stealing: StealPolicy,
}

/// How the policies are written.
pub const NAMES: &str = "none, steal-in-order, steal-random, steal-sibling, flags, flags:500ns, oracle, choice:2, \
                         choice-steal:2, jbsq:2";

/// More is no sample, and no bound.
const MAX_SAMPLE: u32 = 128;
/// The delay from which a core is flagged, unless it is said.
const FLAGGED_FROM: Nanos = Nanos(500);

impl Balancing {
    /// Reads one of [`NAMES`]; `None` if it is none.
    pub fn parse(text: &str) -> Option<Balancing> {
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        let number = || match rest {
            None => Some(2),
            Some(rest) => rest.parse().ok().filter(|number| (1..=MAX_SAMPLE).contains(number)),
        };
        let plain = |finding| rest.is_none().then_some(Balancing { stealing: finding, ..Balancing::default() });
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
    /// As [`Balancing::parse`] reads it.
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
