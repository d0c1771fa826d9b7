//! Recommend in the catalogue: its data, how its mid-tier and its leaves are served, and what clients ask.

use crate::data::Ratings;
use crate::file;
use crate::neighbours::Model;
use crate::wire::{self, PREDICT, Question, Told};
use crate::{Recommend, RecommendLeaf, Work};
use leeward_core::units::UnitError;
use leeward_services::arguments::{Argument, Elsewhere, Kind, Values};
use leeward_services::case::{Case, CaseError, Notice, Progress, Requests};
use leeward_services::served::Backend;
use leeward_services::tiers::questions::{Data, OfLeaf, Part, Questions, Ready, about};
use leeward_services::tiers::shard::{Shard, sizes};
use leeward_services::tiers::{DATA, LeafOf, MidTierOf, OF_MID_TIERS, Parts, REPLICAS, SHARD, Way};
use leeward_workload::rng::{Purpose, Rng};
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::sync::Arc;

/// The mid-tier in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct RecommendCase;

/// A leaf in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct RecommendLeafCase;

/// Data that are ready in a moment.
const SMALL: &str = "synthetic:1000:500:5000:1";
/// Questions to a leaf by itself: each takes a pass over the users here, too.
const OF_LEAF: u64 = 512;
/// Questions that are made ready.
const READY: u64 = 4_096;
const EXPECTED: &str = "synthetic:USERS:ITEMS:RATINGS:SEED with up to 1000000 users and items and 10000000 ratings, such as synthetic:3000:1100:10000:1, or a file with USER,ITEM,RATING on each line";

const WORK: Argument = Argument {
    name: "work",
    value_name: "needed|published",
    help: "With `--service recommend-leaf`: compute per request what it needs, or all that the published service computes",
    kind: Kind::Checked(|text| work(text).map(|_| ())),
    default: Some("needed"),
    elsewhere: Elsewhere::Refused,
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
    /// Made up.
    Synthetic { users: u32, items: u32, ratings: u32, seed: u64 },
    /// Of this file.
    File { path: String, ratings: Arc<Ratings> },
}

/// Seed of what is learned from ratings that have none, and of questions about them.
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
    /// As many ratings as µSuite's.
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

impl Data for Source {
    fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with("synthetic") {
            let ratings = file::read(Path::new(text)).map_err(|wrong| format!("{wrong}; accepted: {EXPECTED}"))?;
            return Ok(Source::File { path: text.into(), ratings: Arc::new(ratings) });
        }
        let bounds = [(1, 1_000_000), (1, 1_000_000), (1, 10_000_000), (0, u64::MAX)];
        let [users, items, ratings, seed] = sizes(text, bounds, EXPECTED)?;
        // Within their bounds.
        Ok(Source::Synthetic { users: users as u32, items: items as u32, ratings: ratings as u32, seed })
    }
}

impl Questions for Source {
    fn questions(&self) -> Result<Ready, CaseError> {
        let ratings = self.ratings();
        if ratings.known.is_empty() {
            return Err(CaseError::input(format!("{self}: no rating to ask for; accepted: {EXPECTED}")));
        }
        let mut rng = Rng::new(self.seed(), Purpose::Clients);
        let is_answer = |answer: &[u8]| Told::read(answer).is_some();
        Ok(Ready::new(PREDICT, READY, is_answer, |turn, argument| draw(&ratings, turn, &mut rng).append(argument)))
    }
}

/// A question about ratings. Half of them are of pairs whose rating is known.
fn draw(ratings: &Ratings, turn: u64, rng: &mut Rng) -> Question {
    let known = ratings.known[rng.below(ratings.known.len() as u64) as usize];
    let (user, item) = (rng.below(ratings.users.into()) as u32, rng.below(ratings.items.into()) as u32);
    if turn.is_multiple_of(2) { Question { user: known.user, item: known.item } } else { Question { user, item } }
}

impl OfLeaf for Source {
    fn of_leaf(&self, part: Shard) -> Result<Ready, CaseError> {
        let ratings = self.ratings().shard(part.at as usize, part.of as usize);
        if ratings.known.is_empty() {
            return Err(CaseError::input(format!("{self}: no rating to ask for; accepted: {EXPECTED}")));
        }
        // Learned here once more: a leaf with other data, or another part, answers otherwise.
        let (model, mut rng) = (Model::learn(&ratings, self.seed()), Rng::new(self.seed(), Purpose::Clients));
        let question = |turn| {
            let (mut argument, mut answer) = (Vec::new(), Vec::new());
            let question = draw(&ratings, turn, &mut rng);
            question.append(&mut argument);
            wire::append(model.predict(question.user, question.item), &mut answer);
            (argument, answer)
        };
        Ready::known(PREDICT, (0..OF_LEAF).map(question))
    }
}

impl Case for RecommendCase {
    fn name(&self) -> &'static str {
        "recommend"
    }

    fn summary(&self) -> &'static str {
        "Predicts how a user rates an item: takes the mean of what leaves predict"
    }

    fn arguments(&self) -> &'static [Argument] {
        const { &[OF_MID_TIERS[0], OF_MID_TIERS[1], OF_MID_TIERS[2], OF_MID_TIERS[3], OF_MID_TIERS[4], REPLICAS] }
    }

    fn small_data(&self) -> Option<&'static str> {
        Some(SMALL)
    }

    fn open(&self, values: &Values, _: usize, _: &Progress<'_>) -> Result<Box<dyn Backend>, CaseError> {
        let way = Way::of(values, self.name())?.parts(Parts::Some);
        Ok(Box::new(MidTierOf::new(way, Recommend)))
    }

    fn requests_help(&self) -> &'static str {
        "how users rate items: recommend, or recommend:synthetic:3000:1100:10000:1 for other data"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        let expected = "`recommend`, or its data behind it as in `recommend:synthetic:3000:1100:10000:1`";
        about::<Source>(self.name(), text, expected)
    }
}

impl Case for RecommendLeafCase {
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

    fn open(&self, values: &Values, _: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, CaseError> {
        let (data, part) = (Source::of(values, progress)?, Shard::of(values)?);
        let work = work(values.text(WORK.name).or(WORK.default).unwrap_or_default()).map_err(CaseError::input)?;
        progress(Notice::Step("loading ratings"));
        let ratings = data.ratings();
        progress(Notice::Step(&format!("learning from a part of {} ratings", ratings.known.len())));
        let ratings = ratings.shard(part.at as usize, part.of as usize);
        let leaf = RecommendLeaf::new(Model::learn(&ratings, data.seed()), work);
        Ok(Box::new(LeafOf::new(self.name(), leaf).part(part, &data)))
    }

    fn requests_help(&self) -> &'static str {
        "how users rate items, by a leaf's part: recommend-leaf, or recommend-leaf:2/4:synthetic:3000:1100:10000:1"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        let expected =
            "`recommend-leaf`, or with a part and data as in `recommend-leaf:2/4:synthetic:3000:1100:10000:1`";
        about::<Part<Source>>(self.name(), text, expected)
    }
}
