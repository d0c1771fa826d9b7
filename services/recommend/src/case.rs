//! Recommend in the catalogue: its data, how its mid-tier and its leaves are served, and what clients ask.

use crate::data::Ratings;
use crate::neighbours::Model;
use crate::wire::{PREDICT, Question, Told};
use crate::{Recommend, RecommendLeaf, Work};
use leeward_control::units::UnitError;
use leeward_load::ask::Ask;
use leeward_rpc::wire::Method;
use leeward_services::arguments::{Argument, Elsewhere, Kind, Values};
use leeward_services::case::{Case, CaseError, Notice, Progress, Requests, Target};
use leeward_services::served::{Backend, Served};
use leeward_services::tiers::{DATA, LeafOf, MidTierOf, OF_MID_TIERS, SHARD, Shard, Way, sizes};
use leeward_workload::rng::{Purpose, Rng};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// The mid-tier in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct RecommendCase;

/// A leaf in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct RecommendLeafCase;

/// Questions that are made ready.
const READY: u64 = 4_096;
const EXPECTED: &str = "synthetic:USERS:ITEMS:RATINGS:SEED with up to 1000000 users and items and 10000000 ratings, such as synthetic:3000:1100:10000:1";

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

/// Ratings that are made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Data {
    users: u32,
    items: u32,
    ratings: u32,
    seed: u64,
}

/// As many ratings as µSuite's.
const DEFAULT: Data = Data { users: 3_000, items: 1_100, ratings: 10_000, seed: 1 };

impl Data {
    fn parse(text: &str) -> Result<Self, String> {
        let bounds = [(1, 1_000_000), (1, 1_000_000), (1, 10_000_000), (0, u64::MAX)];
        let [users, items, ratings, seed] = sizes(text, bounds, EXPECTED)?;
        // Within their bounds.
        Ok(Data { users: users as u32, items: items as u32, ratings: ratings as u32, seed })
    }

    fn of(values: &Values) -> Result<Self, CaseError> {
        let data = values.text(DATA.name).map_or(Ok(DEFAULT), Data::parse);
        data.map_err(|refused| CaseError::input(format!("--data {refused}")))
    }

    fn draw(&self) -> Ratings {
        Ratings::synthetic(self.users, self.items, self.ratings as usize, self.seed)
    }
}

impl Display for Data {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "synthetic:{}:{}:{}:{}", self.users, self.items, self.ratings, self.seed)
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
        const { &OF_MID_TIERS }
    }

    fn open(&self, values: &Values, _: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, CaseError> {
        let way = Way::of(values, self.name())?;
        let _ = progress;
        let service = Recommend;
        Ok(Box::new(MidTierOf { way, service }))
    }

    fn requests_help(&self) -> &'static str {
        "how users rate items: recommend, or recommend:synthetic:3000:1100:10000:1 for other data"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        let data = match text.split_once(':') {
            None if text == self.name() => Some(DEFAULT),
            Some((name, data)) if name == self.name() => Data::parse(data).ok(),
            _ => None,
        };
        let expected = "`recommend`, or its data behind it as in `recommend:synthetic:3000:1100:10000:1`";
        let data = data.ok_or_else(|| UnitError { written: text.chars().take(40).collect(), expected })?;
        Ok(Arc::new(Questions(data)))
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

    fn open(&self, values: &Values, _: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, CaseError> {
        let (data, part) = (Data::of(values)?, Shard::of(values)?);
        let work = work(values.text(WORK.name).or(WORK.default).unwrap_or_default()).map_err(CaseError::input)?;
        progress(Notice::Step(&format!("learning from a part of {} ratings", data.ratings)));
        let ratings = data.draw().shard(part.at as usize, part.of as usize);
        Ok(Box::new(LeafOf(RecommendLeaf::new(Model::learn(&ratings, data.seed), work))))
    }

    fn requests_help(&self) -> &'static str {
        "nothing: ask the mid-tier, recommend"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        Err(UnitError { written: text.chars().take(40).collect(), expected: "the mid-tier's requests: `recommend`" })
    }
}

/// Questions about these data.
#[derive(Clone, Copy, Debug)]
struct Questions(Data);

impl Display for Questions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == DEFAULT { f.write_str("recommend") } else { write!(f, "recommend:{}", self.0) }
    }
}

impl Requests for Questions {
    fn prepare(&self, _: &Target<'_>) -> Result<Option<Arc<dyn Ask>>, CaseError> {
        let ratings = self.0.draw();
        let mut rng = Rng::new(self.0.seed, Purpose::Clients);
        let mut question = |turn: u64| {
            // Half of them are of pairs whose rating is known.
            let known = ratings.known[rng.below(ratings.known.len() as u64) as usize];
            let (user, item) = (rng.below(ratings.users.into()) as u32, rng.below(ratings.items.into()) as u32);
            let question = if turn.is_multiple_of(2) {
                Question { user: known.user, item: known.item }
            } else {
                Question { user, item }
            };
            let mut argument = Vec::new();
            question.append(&mut argument);
            argument
        };
        Ok(Some(Arc::new(Ready((0..READY).map(&mut question).collect()))))
    }

    fn both_ends(&self, _: &Progress<'_>) -> Result<Served, CaseError> {
        Err(CaseError::input("a tier has leaves; a scenario describes them in [tier]"))
    }
}

/// Questions that are ready to be asked.
#[derive(Debug)]
struct Ready(Vec<Vec<u8>>);

impl Ask for Ready {
    fn ask(&self, random: u64, payload: &mut Vec<u8>) -> Method {
        payload.extend_from_slice(&self.0[(random % READY) as usize]);
        PREDICT
    }

    fn is_answer(&self, _: u64, _: Method, answer: &[u8]) -> bool {
        // Partial answers count as failed: a load test of leaves that are away measures nothing.
        Told::read(answer).is_some_and(|told| told.asked == told.answered)
    }
}
