//! Parts that services of a tier share in the catalogue: arguments, and how mid-tiers and leaves are started. Never here: what any
//! of them computes.

use crate::arguments::{Argument, Elsewhere, Kind, Values};
use crate::case::CaseError;
use crate::served::Backend;
use crate::tier::{LEAVES, THREADING, TIMEOUT};
use leeward_control::threading::Threading;
use leeward_control::units::parse_duration;
use leeward_rpc::server::{Builder, Handler, Server, ServerError};
use leeward_rpc::tier::{Leaves, MidTier, Options, Tier, TierError};
use std::io;

/// Arguments of every mid-tier.
pub const OF_MID_TIERS: [Argument; 3] = [LEAVES, THREADING, TIMEOUT];

/// Data that a service holds, or finds its way by.
pub const DATA: Argument = Argument {
    name: "data",
    value_name: "DATA",
    help: "Data of a tier and its leaves: synthetic with the service's sizes and a seed; the same for all of them",
    kind: Kind::Text,
    default: None,
    elsewhere: Elsewhere::Refused,
};

/// The part of the data that a leaf has.
pub const SHARD: Argument = Argument {
    name: "shard",
    value_name: "K/N",
    help: "Which part of the data a leaf has: the K-th of N",
    kind: Kind::Checked(|text| Shard::parse(text).map(|_| ())),
    default: Some("1/1"),
    elsewhere: Elsewhere::Refused,
};

/// A part of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which part, from 0.
    pub at: u32,
    /// How many there are.
    pub of: u32,
}

impl Shard {
    /// Reads `2/4`, the second of four.
    ///
    /// # Errors
    /// Anything else; says what is accepted.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(at, of)| Some((at.parse::<u32>().ok()?, of.parse::<u32>().ok()?)));
        match parts {
            Some((at, of)) if (1..=of).contains(&at) && of <= 255 => Ok(Shard { at: at - 1, of }),
            _ => Err("accepted: K/N with K from 1 to N, and N up to 255, such as 2/4".into()),
        }
    }

    /// The argument's.
    ///
    /// # Errors
    /// The argument is none.
    pub fn of(values: &Values) -> Result<Self, CaseError> {
        let text = values.text(SHARD.name).or(SHARD.default).unwrap_or_default();
        Shard::parse(text).map_err(|accepted| CaseError::input(format!("--shard {text}: {accepted}")))
    }
}

/// Numbers of `synthetic:3000:1100`, with colons between them, each within its bounds.
///
/// # Errors
/// Says what is accepted: `expected`.
pub fn sizes<const N: usize>(text: &str, bounds: [(u64, u64); N], expected: &str) -> Result<[u64; N], String> {
    let refused = || format!("`{}`; accepted: {expected}", text.chars().take(60).collect::<String>());
    let mut parts = text.strip_prefix("synthetic:").ok_or_else(refused)?.split(':');
    let mut sizes = [0; N];
    for (size, (least, most)) in sizes.iter_mut().zip(bounds) {
        let part = parts.next().and_then(|part| part.parse().ok());
        *size = part.filter(|size| (least..=most).contains(size)).ok_or_else(refused)?;
    }
    if parts.next().is_some() { Err(refused()) } else { Ok(sizes) }
}

/// Leaves that a mid-tier asks, and its model.
#[derive(Clone, Debug)]
pub struct Way {
    /// Its leaves.
    pub leaves: Leaves,
    /// Its threading model.
    pub threading: Threading,
    /// How many leaves there are.
    pub count: u32,
}

impl Way {
    /// Reads the arguments of `service`.
    ///
    /// # Errors
    /// There are no leaves, or an argument can't be used.
    pub fn of(values: &Values, service: &str) -> Result<Self, CaseError> {
        let text = |argument: &Argument| values.text(argument.name).or(argument.default).unwrap_or_default();
        let addresses = values.text(LEAVES.name).filter(|text| !text.is_empty()).ok_or_else(|| {
            let accepted = "accepted: addresses such as 127.0.0.1:5301,127.0.0.1:5302";
            CaseError::input(format!("--service {service} needs --leaves; {accepted}"))
        })?;
        let timeout = parse_duration(text(&TIMEOUT)).map_err(CaseError::input)?;
        let leaves = Leaves::resolve(addresses.split(',').map(str::trim)).map_err(CaseError::input)?;
        let threading = text(&THREADING).parse().map_err(|error| CaseError::input(format!("--threading: {error}")))?;
        // As many as were resolved.
        let count = addresses.split(',').count() as u32;
        Ok(Way { leaves: leaves.timeout(timeout), threading, count })
    }
}

/// A mid-tier that can be started.
#[derive(Debug)]
pub struct MidTierOf<M> {
    /// Its leaves and its model.
    pub way: Way,
    /// Its computation.
    pub service: M,
}

impl<M: MidTier + Clone> Backend for MidTierOf<M> {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        let options = Options::new(self.way.leaves.clone(), self.way.threading);
        let started = builder.start_tier(address, options, self.service.clone());
        started.map(Tier::into_server).map_err(|error| match error {
            TierError::Server(error) => error,
            other => ServerError::Cores(io::Error::other(other.to_string())),
        })
    }
}

/// A leaf that can be started.
#[derive(Debug)]
pub struct LeafOf<H>(pub H);

impl<H: Handler + Clone> Backend for LeafOf<H> {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        builder.start(address, self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_read_or_refused_in_words() {
        assert_eq!(Shard::parse("2/4"), Ok(Shard { at: 1, of: 4 }));
        for wrong in ["5/4", "0/4", "1/0", "1", "1/", "-1/4", "1/256", "1/4/2"] {
            assert!(Shard::parse(wrong).unwrap_err().contains("2/4"), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_read_or_refused_in_words() {
        let read = |text| sizes(text, [(1, 10), (0, u64::MAX)], "synthetic:N:SEED");
        assert_eq!(read("synthetic:3:18446744073709551615"), Ok([3, u64::MAX]));
        for wrong in ["synthetic", "synthetic:0:1", "synthetic:11:1", "synthetic:1", "synthetic:1:1:1", "other:1:1"] {
            assert!(read(wrong).unwrap_err().ends_with("accepted: synthetic:N:SEED"), "{wrong}");
        }
    }
}
