//! How work and cores find each other: where a message goes, and how a core without work looks for some. Names and
//! meaning only; the looking is `super::search`.

use leeward_core::units::{Nanos, parse_duration};

/// Where a message goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placing {
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
pub enum Finding {
    /// Not at all.
    Nothing,
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
    pub placing: Placing,
    /// How a core without work finds some.
    pub finding: Finding,
}

/// How the policies are written.
pub const NAMES: &str = "none, steal-in-order, steal-random, steal-sibling, flags, flags:500ns, oracle, choice:2, \
                         choice-steal:2, jbsq:2";

/// More is no sample, and no bound.
const MOST: u32 = 128;
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
            Some(rest) => rest.parse().ok().filter(|number| (1..=MOST).contains(number)),
        };
        let plain = |finding| rest.is_none().then_some(Balancing { finding, ..Balancing::default() });
        match name {
            "none" => plain(Finding::Nothing),
            "steal-in-order" => plain(Finding::InOrder),
            "steal-random" => plain(Finding::Random),
            "steal-sibling" => plain(Finding::SiblingFirst),
            "oracle" => plain(Finding::Oracle),
            "flags" => {
                let from = rest.map_or(Ok(FLAGGED_FROM), parse_duration).ok()?;
                Some(Balancing { finding: Finding::Flagged(from), ..Balancing::default() })
            }
            "choice" => Some(Balancing { placing: Placing::ShortestOf(number()?), finding: Finding::Nothing }),
            "choice-steal" => Some(Balancing { placing: Placing::ShortestOf(number()?), finding: Finding::Random }),
            "jbsq" => Some(Balancing { placing: Placing::Bounded(number()?), finding: Finding::Nothing }),
            _ => None,
        }
    }
}

impl std::fmt::Display for Balancing {
    /// As [`Balancing::parse`] reads it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.placing, self.finding) {
            (Placing::ShortestOf(sample), Finding::Nothing) => write!(f, "choice:{sample}"),
            (Placing::ShortestOf(sample), _) => write!(f, "choice-steal:{sample}"),
            (Placing::Bounded(bound), _) => write!(f, "jbsq:{bound}"),
            (Placing::Random, Finding::Nothing) => f.write_str("none"),
            (Placing::Random, Finding::InOrder) => f.write_str("steal-in-order"),
            (Placing::Random, Finding::Random) => f.write_str("steal-random"),
            (Placing::Random, Finding::SiblingFirst) => f.write_str("steal-sibling"),
            (Placing::Random, Finding::Flagged(from)) => write!(f, "flags:{}ns", from.0),
            (Placing::Random, Finding::Oracle) => f.write_str("oracle"),
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
        assert_eq!(Balancing::parse("choice:3").unwrap().placing, Placing::ShortestOf(3));
        assert_eq!(Balancing::parse("flags:2us").unwrap().finding, Finding::Flagged(Nanos(2_000)));
    }
}
