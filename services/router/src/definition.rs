//! Router in the catalogue: backends of its mid-tier and its leaves, and client requests.

use crate::wire::{GET, Pair, SET, TierResult};
use crate::{Acks, Router, RouterLeaf, StoreLeaf};
use leeward_core::units::UnitError;
use leeward_kv::definition::{MEMORY, PairWorkload, Pairs, memory, store_all};
use leeward_kv::service::Kv;
use leeward_kv::store::{Store, StoreConfig};
use leeward_rpc::generator::RequestGenerator;
use leeward_rpc::wire::Method;
use leeward_services::arguments::{Argument, Kind, UnsupportedPolicy, Values};
use leeward_services::backend::{Backend, InProcessService};
use leeward_services::definition::{Notice, PrepareError, Progress, Requests, ServiceDefinition, Target};
use leeward_services::tiers::queries::{in_process_error, parse_error};
use leeward_services::tiers::{LeafBackend, MID_TIER_ARGUMENTS, MidTierBackend, MidTierConfig};
use std::fmt::{self, Display, Formatter};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// The mid-tier in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct RouterDefinition;

/// A leaf in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct RouterLeafDefinition;

const ACKS: Argument = Argument {
    name: "acks",
    value_name: "most|all",
    help: "With `--service router`: number of copies that a set waits for",
    kind: Kind::Checked(|text| acks(text).map(|_| ())),
    default: Some("most"),
    unsupported: UnsupportedPolicy::Refused,
};

/// Argument with the memcached server that keeps a leaf's pairs.
const STORE: Argument = Argument {
    name: "store",
    value_name: "ADDRESS",
    help: "With `--service router-leaf`: a memcached server that stores the pairs, instead of the leaf's own memory",
    kind: Kind::Text,
    default: None,
    unsupported: UnsupportedPolicy::Refused,
};

fn acks(text: &str) -> Result<Acks, String> {
    match text {
        "most" => Ok(Acks::Most),
        "all" => Ok(Acks::All),
        _ => Err("accepted: `most` or `all`".into()),
    }
}

impl ServiceDefinition for RouterDefinition {
    fn name(&self) -> &'static str {
        "router"
    }

    fn summary(&self) -> &'static str {
        "Routes gets and sets to replicated key-value leaves"
    }

    fn arguments(&self) -> &'static [Argument] {
        const {
            &[
                MID_TIER_ARGUMENTS[0],
                MID_TIER_ARGUMENTS[1],
                MID_TIER_ARGUMENTS[2],
                MID_TIER_ARGUMENTS[3],
                MID_TIER_ARGUMENTS[4],
                ACKS,
            ]
        }
    }

    fn open(&self, values: &Values, _: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, PrepareError> {
        let config = MidTierConfig::from_values(values, self.name())?;
        let acks = acks(values.text(ACKS.name).or(ACKS.default).unwrap_or_default()).map_err(PrepareError::input)?;
        progress(Notice::Step(&format!("routing to {} leaves", config.shards)));
        let service = Router::new(config.shards as usize, acks);
        Ok(Box::new(MidTierBackend::new(config, service)))
    }

    fn requests_help(&self) -> &'static str {
        "pairs through a router, such as router (YCSB A), router:etc or router:usr"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        let expected = "`router`, `router:ycsb-a`, `router:etc`, `router:usr` or `router:var`";
        RouterRequests::parse(self.name(), TargetTier::MidTier, text).ok_or_else(|| parse_error(text, expected))
    }
}

impl ServiceDefinition for RouterLeafDefinition {
    fn name(&self) -> &'static str {
        "router-leaf"
    }

    fn summary(&self) -> &'static str {
        "Stores pairs of keys and values: a leaf of router"
    }

    fn arguments(&self) -> &'static [Argument] {
        const { &[MEMORY, STORE] }
    }

    fn open(&self, values: &Values, cores: usize, _: &Progress<'_>) -> Result<Box<dyn Backend>, PrepareError> {
        if let Some(address) = values.text(STORE.name) {
            let leaf = StoreLeaf::new(address).map_err(|problem| PrepareError::input(format!("--store: {problem}")))?;
            return Ok(Box::new(LeafBackend::new(self.name(), leaf)));
        }
        let memory = memory(values.text(MEMORY.name).or(MEMORY.default).unwrap_or_default());
        let config = StoreConfig {
            memory: memory.map_err(|problem| PrepareError::input(format!("--memory {problem}")))?,
            threads: cores,
            // A random seed hides from clients which keys collide.
            seed: RandomState::new().hash_one(()),
            ..StoreConfig::default()
        };
        let store = Store::new(&config).map_err(|error| PrepareError::input(format!("--memory: {error}")))?;
        Ok(Box::new(LeafBackend::new(self.name(), RouterLeaf::new(Kv::new(Arc::new(store))))))
    }

    fn requests_help(&self) -> &'static str {
        "pairs of a single leaf: router-leaf (YCSB A), router-leaf:etc or router-leaf:usr"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        let expected = "`router-leaf`, `router-leaf:ycsb-a`, `router-leaf:etc`, `router-leaf:usr` or `router-leaf:var`";
        RouterRequests::parse(self.name(), TargetTier::Leaf, text).ok_or_else(|| parse_error(text, expected))
    }
}

/// Tier to which clients send requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetTier {
    /// The mid-tier; its results contain the number of leaves that answered.
    MidTier,
    /// A leaf.
    Leaf,
}

/// Requests for pairs of a mix.
#[derive(Clone, Copy, Debug)]
struct RouterRequests {
    name: &'static str,
    target: TargetTier,
    workload: PairWorkload,
}

impl RouterRequests {
    /// Parses `name` or `name:mix`.
    fn parse(name: &'static str, asked: TargetTier, text: &str) -> Option<Arc<dyn Requests>> {
        let mix = match text.strip_prefix(name)? {
            "" => "kv:ycsb-a".into(),
            rest => format!("kv{rest}"),
        };
        let service = PairWorkload::parse(&mix).ok().filter(|service| service.keys == 1)?;
        Some(Arc::new(RouterRequests { name, target: asked, workload: service }))
    }
}

impl Display for RouterRequests {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, self.workload.to_string().trim_start_matches("kv"))
    }
}

impl Requests for RouterRequests {
    fn prepare(&self, server: &Target<'_>) -> Result<Option<Arc<dyn RequestGenerator>>, PrepareError> {
        let pairs = Pairs::new(self.workload);
        store_all(server, &pairs, |number, length, argument| {
            Pair { key: pairs.key(number), value: &[] }.append(argument);
            argument.resize(argument.len() + length, 0);
        })?;
        Ok(Some(Arc::new(RouterGenerator { pairs, target: self.target })))
    }

    fn prepare_in_process(&self, _: &Progress<'_>) -> Result<InProcessService, PrepareError> {
        Err(in_process_error())
    }
}

/// Generates a read of one pair, or a write, from random bits.
#[derive(Debug)]
struct RouterGenerator {
    pairs: Pairs,
    target: TargetTier,
}

impl RequestGenerator for RouterGenerator {
    fn generate(&self, random: u64, payload: &mut Vec<u8>) -> Method {
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
        if self.target == TargetTier::Leaf {
            // Checks only the form: the store may have evicted the pair.
            return if method == SET { answer == [1] } else { matches!(answer, [0] | [1, ..]) };
        }
        let Some(result) = TierResult::read(answer) else { return false };
        match method {
            SET => matches!(result.rest, [stored] if *stored == result.answered && *stored > 0),
            // Checks only the form: the stores may have evicted the pair.
            _ => result.asked == result.answered && matches!(result.rest, [0] | [1, ..]),
        }
    }
}
