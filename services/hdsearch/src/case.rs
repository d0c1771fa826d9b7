//! HDSearch in the catalogue: its data, how its mid-tier and its leaves are served, and what clients ask.

use crate::data::{Synthetic, shard};
use crate::hashing::Tables;
use crate::wire::{NEAREST, append_question, read_found};
use crate::{HdSearch, HdSearchLeaf};
use leeward_control::units::UnitError;
use leeward_load::ask::Ask;
use leeward_rpc::wire::Method;
use leeward_services::arguments::{Argument, Values};
use leeward_services::case::{Case, CaseError, Notice, Progress, Requests, Target};
use leeward_services::served::{Backend, Served};
use leeward_services::tiers::{DATA, LeafOf, MidTierOf, OF_MID_TIERS, SHARD, Shard, Way, sizes};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// The mid-tier in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct HdSearchCase;

/// A leaf in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct HdSearchLeafCase;

/// Neighbours that clients ask for.
const WANTED: u16 = 10;
/// Questions that are made ready: drawing a point for each request would make the clients the bottleneck.
const READY: u64 = 1_024;
/// Half a million points in 2,000 clusters: what µSuite's images are, in size.
const DEFAULT: Synthetic = Synthetic { dimensions: 128, count: 500_000, seed: 1 };
const EXPECTED: &str = "synthetic:DIMENSIONS:POINTS:SEED with 1 to 2048 dimensions and 1 to 10000000 points, such as synthetic:128:500000:1";

impl Synthetic {
    /// Reads `synthetic:128:500000:1`.
    ///
    /// # Errors
    /// Anything else; says what is accepted.
    pub fn parse(text: &str) -> Result<Self, String> {
        let [dimensions, count, seed] = sizes(text, [(1, 2_048), (1, 10_000_000), (0, u64::MAX)], EXPECTED)?;
        // Within their bounds.
        Ok(Synthetic { dimensions: dimensions as usize, count: count as u32, seed })
    }

    fn of(values: &Values) -> Result<Self, CaseError> {
        let data = values.text(DATA.name).map_or(Ok(DEFAULT), Synthetic::parse);
        data.map_err(|refused| CaseError::input(format!("--data {refused}")))
    }
}

impl Display for Synthetic {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "synthetic:{}:{}:{}", self.dimensions, self.count, self.seed)
    }
}

impl Case for HdSearchCase {
    fn name(&self) -> &'static str {
        "hdsearch"
    }

    fn summary(&self) -> &'static str {
        "Finds the nearest of many points: asks leaves about candidates"
    }

    fn arguments(&self) -> &'static [Argument] {
        const { &[OF_MID_TIERS[0], OF_MID_TIERS[1], OF_MID_TIERS[2], DATA] }
    }

    fn open(&self, values: &Values, _: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, CaseError> {
        let way = Way::of(values, self.name())?;
        let data = Synthetic::of(values)?;
        progress(Notice::Step(&format!("drawing {} points", data.count)));
        let points = data.points(0..data.count);
        progress(Notice::Step("hashing them into tables"));
        let service = HdSearch::new(Tables::new(&points, data.seed), way.count);
        Ok(Box::new(MidTierOf { way, service }))
    }

    fn requests_help(&self) -> &'static str {
        "noisy copies of points: hdsearch, or hdsearch:synthetic:128:500000:1 for other data"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        let data = match text.split_once(':') {
            None if text == self.name() => Some(DEFAULT),
            Some((name, data)) if name == self.name() => Synthetic::parse(data).ok(),
            _ => None,
        };
        let expected = "`hdsearch`, or its data behind it as in `hdsearch:synthetic:128:500000:1`";
        let data = data.ok_or_else(|| UnitError { written: text.chars().take(40).collect(), expected })?;
        Ok(Arc::new(Questions(data)))
    }
}

impl Case for HdSearchLeafCase {
    fn name(&self) -> &'static str {
        "hdsearch-leaf"
    }

    fn summary(&self) -> &'static str {
        "Measures how far points are: a leaf of hdsearch"
    }

    fn arguments(&self) -> &'static [Argument] {
        const { &[DATA, SHARD] }
    }

    fn open(&self, values: &Values, _: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, CaseError> {
        let (data, part) = (Synthetic::of(values)?, Shard::of(values)?);
        let numbers = shard(data.count, part.at, part.of);
        progress(Notice::Step(&format!("drawing {} of {} points", numbers.len(), data.count)));
        let first = numbers.start;
        Ok(Box::new(LeafOf(HdSearchLeaf::new(data.points(numbers), first))))
    }

    fn requests_help(&self) -> &'static str {
        "nothing: ask the mid-tier, hdsearch"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        Err(UnitError { written: text.chars().take(40).collect(), expected: "the mid-tier's requests: `hdsearch`" })
    }
}

/// Questions about these data.
#[derive(Clone, Copy, Debug)]
struct Questions(Synthetic);

impl Display for Questions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == DEFAULT { f.write_str("hdsearch") } else { write!(f, "hdsearch:{}", self.0) }
    }
}

impl Requests for Questions {
    fn prepare(&self, _: &Target<'_>) -> Result<Option<Arc<dyn Ask>>, CaseError> {
        let question = |turn| {
            let mut argument = Vec::new();
            append_question(WANTED, &self.0.question(turn), &mut argument);
            argument
        };
        Ok(Some(Arc::new(Ready((0..READY).map(question).collect()))))
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
        NEAREST
    }

    fn is_answer(&self, _: u64, _: Method, answer: &[u8]) -> bool {
        // Partial answers count as failed: a load test of leaves that are away measures nothing.
        let [asked, answered, found @ ..] = answer else { return false };
        let is_list = |found: &[u8]| read_found(found).is_some_and(|found| found.count() <= usize::from(WANTED));
        asked == answered && is_list(found)
    }
}
