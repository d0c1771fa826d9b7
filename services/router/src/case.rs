//! Router in the catalogue: its data, how its mid-tier and its leaves are served, and what clients ask.

use crate::wire::{GET, Pair, SET, Told};
use crate::{Acks, Router, RouterLeaf, StoreLeaf};
use leeward_core::units::UnitError;
use leeward_kv::case::{MEMORY, PairService, Pairs, memory, store_all};
use leeward_kv::service::Kv;
use leeward_kv::store::{Store, StoreConfig};
use leeward_rpc::ask::Ask;
use leeward_rpc::wire::Method;
use leeward_services::arguments::{Argument, Elsewhere, Kind, Values};
use leeward_services::case::{Case, CaseError, Notice, Progress, Requests, Target};
use leeward_services::served::{Backend, Served};
use leeward_services::tiers::questions::{has_leaves, refused};
use leeward_services::tiers::{LeafOf, MidTierOf, OF_MID_TIERS, Way};
use std::fmt::{self, Display, Formatter};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// The mid-tier in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct RouterCase;

/// A leaf in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct RouterLeafCase;

const ACKS: Argument = Argument {
    name: "acks",
    value_name: "most|all",
    help: "With `--service router`: how many copies a set waits for",
    kind: Kind::Checked(|text| acks(text).map(|_| ())),
    default: Some("most"),
    elsewhere: Elsewhere::Refused,
};

/// A memcached server that has a leaf's pairs.
const STORE: Argument = Argument {
    name: "store",
    value_name: "ADDRESS",
    help: "With `--service router-leaf`: a memcached server that keeps the pairs, in the place of the leaf's own memory",
    kind: Kind::Text,
    default: None,
    elsewhere: Elsewhere::Refused,
};

fn acks(text: &str) -> Result<Acks, String> {
    match text {
        "most" => Ok(Acks::Most),
        "all" => Ok(Acks::All),
        _ => Err("accepted: `most` or `all`".into()),
    }
}

impl Case for RouterCase {
    fn name(&self) -> &'static str {
        "router"
    }

    fn summary(&self) -> &'static str {
        "Routes gets and sets to replicated key-value leaves"
    }

    fn arguments(&self) -> &'static [Argument] {
        const { &[OF_MID_TIERS[0], OF_MID_TIERS[1], OF_MID_TIERS[2], OF_MID_TIERS[3], OF_MID_TIERS[4], ACKS] }
    }

    fn open(&self, values: &Values, _: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, CaseError> {
        let way = Way::of(values, self.name())?;
        let acks = acks(values.text(ACKS.name).or(ACKS.default).unwrap_or_default()).map_err(CaseError::input)?;
        progress(Notice::Step(&format!("routing to {} leaves", way.count)));
        let service = Router::new(way.count as usize, acks);
        Ok(Box::new(MidTierOf::new(way, service)))
    }

    fn requests_help(&self) -> &'static str {
        "pairs through a router, such as router (YCSB A), router:etc or router:usr"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        let expected = "`router`, `router:ycsb-a`, `router:etc`, `router:usr` or `router:var`";
        Questions::of(self.name(), Asked::MidTier, text).ok_or_else(|| refused(text, expected))
    }
}

impl Case for RouterLeafCase {
    fn name(&self) -> &'static str {
        "router-leaf"
    }

    fn summary(&self) -> &'static str {
        "Keeps pairs of keys and values: a leaf of router"
    }

    fn arguments(&self) -> &'static [Argument] {
        const { &[MEMORY, STORE] }
    }

    fn open(&self, values: &Values, cores: usize, _: &Progress<'_>) -> Result<Box<dyn Backend>, CaseError> {
        if let Some(address) = values.text(STORE.name) {
            let leaf = StoreLeaf::new(address).map_err(|problem| CaseError::input(format!("--store: {problem}")))?;
            return Ok(Box::new(LeafOf::new(self.name(), leaf)));
        }
        let memory = memory(values.text(MEMORY.name).or(MEMORY.default).unwrap_or_default());
        let config = StoreConfig {
            memory: memory.map_err(|problem| CaseError::input(format!("--memory {problem}")))?,
            threads: cores,
            // Keys that collide here shall not be known outside.
            seed: RandomState::new().hash_one(()),
            ..StoreConfig::default()
        };
        let store = Store::new(&config).map_err(|error| CaseError::input(format!("--memory: {error}")))?;
        Ok(Box::new(LeafOf::new(self.name(), RouterLeaf::new(Kv::new(Arc::new(store))))))
    }

    fn requests_help(&self) -> &'static str {
        "pairs of a single leaf: router-leaf (YCSB A), router-leaf:etc or router-leaf:usr"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        let expected = "`router-leaf`, `router-leaf:ycsb-a`, `router-leaf:etc`, `router-leaf:usr` or `router-leaf:var`";
        Questions::of(self.name(), Asked::Leaf, text).ok_or_else(|| refused(text, expected))
    }
}

/// Tier that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// The mid-tier, whose results say how many leaves have answered.
    MidTier,
    /// A leaf.
    Leaf,
}

/// Pairs of a mix.
#[derive(Clone, Copy, Debug)]
struct Questions {
    name: &'static str,
    asked: Asked,
    service: PairService,
}

impl Questions {
    /// Reads `name`, or `name:mix`.
    fn of(name: &'static str, asked: Asked, text: &str) -> Option<Arc<dyn Requests>> {
        let mix = match text.strip_prefix(name)? {
            "" => "kv:ycsb-a".into(),
            rest => format!("kv{rest}"),
        };
        let service = PairService::parse(&mix).ok().filter(|service| service.keys == 1)?;
        Some(Arc::new(Questions { name, asked, service }))
    }
}

impl Display for Questions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, self.service.to_string().trim_start_matches("kv"))
    }
}

impl Requests for Questions {
    fn prepare(&self, server: &Target<'_>) -> Result<Option<Arc<dyn Ask>>, CaseError> {
        let pairs = Pairs::new(self.service);
        store_all(server, &pairs, self.name, |number, length, argument| {
            Pair { key: pairs.key(number), value: &[] }.append(argument);
            argument.resize(argument.len() + length, 0);
        })?;
        Ok(Some(Arc::new(Asks { pairs, asked: self.asked })))
    }

    fn both_ends(&self, _: &Progress<'_>) -> Result<Served, CaseError> {
        Err(has_leaves())
    }
}

/// Asks for a pair, or stores one, as the request's bits say.
#[derive(Debug)]
struct Asks {
    pairs: Pairs,
    asked: Asked,
}

impl Ask for Asks {
    fn ask(&self, random: u64, payload: &mut Vec<u8>) -> Method {
        let request = self.pairs.draw(random);
        let key = self.pairs.key(request.number);
        match request.write {
            None => {
                payload.extend_from_slice(key);
                GET
            }
            Some(length) => {
                Pair { key, value: &[] }.append(payload);
                payload.resize(payload.len() + length, random as u8);
                SET
            }
        }
    }

    fn is_answer(&self, _: u64, method: Method, answer: &[u8]) -> bool {
        if self.asked == Asked::Leaf {
            // Whether a pair is there is the store's affair, which may have had to evict it.
            return if method == SET { answer == [1] } else { matches!(answer, [0] | [1, ..]) };
        }
        let Some(told) = Told::read(answer) else { return false };
        match method {
            SET => matches!(told.rest, [stored] if *stored == told.answered && *stored > 0),
            // Whether a pair is there is the stores' affair, which may have had to evict it.
            _ => told.asked == told.answered && matches!(told.rest, [0] | [1, ..]),
        }
    }
}
