//! Recommend in the catalogue: its data, backends of its mid-tier and its leaves, and client
//! requests.

use crate::data::Ratings;
use crate::file;
use crate::neighbours::Model;
use crate::wire::{self, PREDICT, Query, TierResult};
use crate::{Recommend, RecommendLeaf, Work};
use leeward_core::units::UnitError;
use leeward_services::arguments::{Argument, Kind, UnsupportedPolicy, Values};
use leeward_services::backend::Backend;
use leeward_services::definition::{Notice, PrepareError, Progress, Requests, ServiceDefinition};
use leeward_services::tiers::queries::{
    DataShard, DataSource, LeafQuerySource, PreparedQueries, QuerySource, parse_requests,
};
use leeward_services::tiers::shard::{Shard, sizes};
use leeward_services::tiers::{
    DATA, LeafBackend, LeafSharding, MID_TIER_ARGUMENTS, MidTierBackend, MidTierConfig, REPLICAS, SHARD,
};
use leeward_workload::rng::{Purpose, Rng};
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::sync::Arc;

/// The mid-tier in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct RecommendDefinition;

/// A leaf in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct RecommendLeafDefinition;

/// Small data that load in a moment.
const SMALL: &str = "synthetic:1000:500:5000:1";
/// Prepared queries to a single leaf; preparing one takes a pass over all users.
const LEAF_QUERIES: u64 = 512;
/// Prepared queries.
const READY: u64 = 4_096;
const EXPECTED: &str = "synthetic:USERS:ITEMS:RATINGS:SEED with up to 1000000 users and items and 10000000 ratings, such as synthetic:3000:1100:10000:1, or a file with USER,ITEM,RATING on each line";

const WORK: Argument = Argument {
    name: "work",
    value_name: "needed|published",
    help: "With `--service recommend-leaf`: compute per request what it needs, or all that the published service computes",
    kind: Kind::Checked(|text| work(text).map(|_| ())),
    default: Some("needed"),
    unsupported: UnsupportedPolicy::Refused,
};

fn work(text: &str) -> Result<Work, String> {
    match text {
        "needed" => Ok(Work::Needed),
        "published" => Ok(Work::Published),
        _ => Err("accepted: `needed` or `published`".into()),
    }
}

/// Ratings of a tier.
#[derive(Clone, Debug, PartialEq)]
enum Source {
    /// Synthetic ratings.
    Synthetic { users: u32, items: u32, ratings: u32, seed: u64 },
    /// Ratings from a file.
    File { path: String, ratings: Arc<Ratings> },
}

/// Seed for the model of ratings from a file, and for queries about them.
const SEED: u64 = 1;

impl Source {
    fn ratings(&self) -> Arc<Ratings> {
        match self {
            Source::Synthetic { users, items, ratings, seed } => {
                Arc::new(Ratings::synthetic(*users, *items, *ratings as usize, *seed))
            }
            Source::File { ratings, .. } => Arc::clone(ratings),
        }
    }

    fn seed(&self) -> u64 {
        if let Source::Synthetic { seed, .. } = self { *seed } else { SEED }
    }
}

impl Default for Source {
    /// As many ratings as in µSuite.
    fn default() -> Self {
        Source::Synthetic { users: 3_000, items: 1_100, ratings: 10_000, seed: 1 }
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Source::Synthetic { users, items, ratings, seed } => {
                write!(f, "synthetic:{users}:{items}:{ratings}:{seed}")
            }
            Source::File { path, .. } => f.write_str(path),
        }
    }
}

impl DataSource for Source {
    fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with("synthetic") {
            let ratings = file::read(Path::new(text)).map_err(|wrong| format!("{wrong}; accepted: {EXPECTED}"))?;
            return Ok(Source::File { path: text.into(), ratings: Arc::new(ratings) });
        }
        let bounds = [(1, 1_000_000), (1, 1_000_000), (1, 10_000_000), (0, u64::MAX)];
        let [users, items, ratings, seed] = sizes(text, bounds, EXPECTED)?;
        // Checked against the bounds above.
        Ok(Source::Synthetic { users: users as u32, items: items as u32, ratings: ratings as u32, seed })
    }
}

impl QuerySource for Source {
    fn prepare_queries(&self) -> Result<PreparedQueries, PrepareError> {
        let ratings = self.ratings();
        if ratings.known.is_empty() {
            return Err(PrepareError::input(format!("{self}: no rating to ask for; accepted: {EXPECTED}")));
        }
        let mut rng = Rng::new(self.seed(), Purpose::Clients);
        let is_answer = |answer: &[u8]| TierResult::read(answer).is_some();
        Ok(PreparedQueries::new(PREDICT, READY, is_answer, |turn, argument| {
            draw(&ratings, turn, &mut rng).append(argument)
        }))
    }
}

/// Draws a query. Every second one is for a pair with a known rating.
fn draw(ratings: &Ratings, turn: u64, rng: &mut Rng) -> Query {
    let known = ratings.known[rng.below(ratings.known.len() as u64) as usize];
    let (user, item) = (rng.below(ratings.users.into()) as u32, rng.below(ratings.items.into()) as u32);
    if turn.is_multiple_of(2) { Query { user: known.user, item: known.item } } else { Query { user, item } }
}

impl LeafQuerySource for Source {
    fn prepare_leaf_queries(&self, part: Shard) -> Result<PreparedQueries, PrepareError> {
        let ratings = self.ratings().shard(part.index as usize, part.count as usize);
        if ratings.known.is_empty() {
            return Err(PrepareError::input(format!("{self}: no rating to ask for; accepted: {EXPECTED}")));
        }
        // The client learns the model again: a leaf with other data, or another part, answers
        // differently.
        let (model, mut rng) = (Model::learn(&ratings, self.seed()), Rng::new(self.seed(), Purpose::Clients));
        let query = |turn| {
            let (mut argument, mut answer) = (Vec::new(), Vec::new());
            let query = draw(&ratings, turn, &mut rng);
            query.append(&mut argument);
            wire::append(model.predict(query.user, query.item), &mut answer);
            (argument, answer)
        };
        PreparedQueries::with_answers(PREDICT, (0..LEAF_QUERIES).map(query))
    }
}

impl ServiceDefinition for RecommendDefinition {
    fn name(&self) -> &'static str {
        "recommend"
    }

    fn summary(&self) -> &'static str {
        "Predicts how a user rates an item: takes the mean of what leaves predict"
    }

    fn arguments(&self) -> &'static [Argument] {
        const {
            &[
                MID_TIER_ARGUMENTS[0],
                MID_TIER_ARGUMENTS[1],
                MID_TIER_ARGUMENTS[2],
                MID_TIER_ARGUMENTS[3],
                MID_TIER_ARGUMENTS[4],
                REPLICAS,
            ]
        }
    }

    fn small_data(&self) -> Option<&'static str> {
        Some(SMALL)
    }

    fn open(&self, values: &Values, _: usize, _: &Progress<'_>) -> Result<Box<dyn Backend>, PrepareError> {
        let config = MidTierConfig::from_values(values, self.name())?.with_sharding(LeafSharding::SameData);
        Ok(Box::new(MidTierBackend::new(config, Recommend)))
    }

    fn requests_help(&self) -> &'static str {
        "how users rate items: recommend, or recommend:synthetic:3000:1100:10000:1 for other data"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        let expected = "`recommend`, or its data behind it as in `recommend:synthetic:3000:1100:10000:1`";
        parse_requests::<Source>(self.name(), text, expected)
    }
}

impl ServiceDefinition for RecommendLeafDefinition {
    fn name(&self) -> &'static str {
        "recommend-leaf"
    }

    fn summary(&self) -> &'static str {
        "Predicts from a share of the ratings: a leaf of recommend"
    }

    fn arguments(&self) -> &'static [Argument] {
        const { &[DATA, SHARD, WORK] }
    }

    fn small_data(&self) -> Option<&'static str> {
        Some(SMALL)
    }

    fn open(&self, values: &Values, _: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, PrepareError> {
        let (data, part) = (Source::from_values(values, progress)?, Shard::from_values(values)?);
        let work = work(values.text(WORK.name).or(WORK.default).unwrap_or_default()).map_err(PrepareError::input)?;
        progress(Notice::Step("loading ratings"));
        let ratings = data.ratings();
        progress(Notice::Step(&format!("learning from a part of {} ratings", ratings.known.len())));
        let ratings = ratings.shard(part.index as usize, part.count as usize);
        let leaf = RecommendLeaf::new(Model::learn(&ratings, data.seed()), work);
        Ok(Box::new(LeafBackend::new(self.name(), leaf).with_shard(part, &data)))
    }

    fn requests_help(&self) -> &'static str {
        "how users rate items, by a leaf's part: recommend-leaf, or recommend-leaf:2/4:synthetic:3000:1100:10000:1"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        let expected =
            "`recommend-leaf`, or with a part and data as in `recommend-leaf:2/4:synthetic:3000:1100:10000:1`";
        parse_requests::<DataShard<Source>>(self.name(), text, expected)
    }
}
