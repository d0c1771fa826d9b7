//! HDSearch in the catalogue: its data, how its mid-tier and its leaves are served, and what clients ask.

use crate::data::{Source, Synthetic};
use crate::distance::{Neighbour, squared};
use crate::file;
use crate::hashing::Tables;
use crate::wire::{NEAREST, append_candidates, append_found, append_question, read_found};
use crate::{HdSearch, HdSearchLeaf};
use leeward_core::units::UnitError;
use leeward_services::arguments::{Argument, Values};
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
pub struct HdSearchCase;

/// A leaf in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct HdSearchLeafCase;

/// Neighbours that clients ask for.
const WANTED: u16 = 10;
/// Data that are ready in a moment.
const SMALL: &str = "synthetic:64:20000:1";
/// Candidates of a question to a leaf by itself: about as many as a mid-tier with four leaves asks it for.
const OF_LEAF: u32 = 330;
/// Questions that are made ready: drawing a point for each request would make the clients the bottleneck.
const READY: u64 = 1_024;
const EXPECTED: &str = "synthetic:DIMENSIONS:POINTS:SEED with 1 to 2048 dimensions and 1 to 10000000 points, such as synthetic:128:500000:1, or a file with a point on each line";

impl Default for Source {
    /// Half a million points in 2,000 clusters: what µSuite's images are, in size.
    fn default() -> Self {
        Source::Synthetic(Synthetic { dimensions: 128, count: 500_000, seed: 1 })
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Source::Synthetic(Synthetic { dimensions, count, seed }) => {
                write!(f, "synthetic:{dimensions}:{count}:{seed}")
            }
            Source::File { path, .. } => f.write_str(path),
        }
    }
}

impl Data for Source {
    fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with("synthetic") {
            let points = file::read(Path::new(text)).map_err(|wrong| format!("{wrong}; accepted: {EXPECTED}"))?;
            return Ok(Source::File { path: text.into(), points: Arc::new(points) });
        }
        let [dimensions, count, seed] = sizes(text, [(1, 2_048), (1, 10_000_000), (0, u64::MAX)], EXPECTED)?;
        // Within their bounds.
        Ok(Source::Synthetic(Synthetic { dimensions: dimensions as usize, count: count as u32, seed }))
    }
}

impl Questions for Source {
    fn questions(&self) -> Result<Ready, CaseError> {
        let is_answer = |answer: &[u8]| {
            let found = answer.get(2..).and_then(read_found);
            found.is_some_and(|found| found.count() <= usize::from(WANTED))
        };
        let write = |turn, argument: &mut Vec<u8>| append_question(WANTED, &self.question(turn), argument);
        Ok(Ready::new(NEAREST, READY, is_answer, write))
    }
}

impl OfLeaf for Source {
    fn of_leaf(&self, part: Shard) -> Result<Ready, CaseError> {
        let numbers = part.range(self.count());
        let points = self.points(numbers.clone());
        let mut rng = Rng::new(self.seed(), Purpose::Clients);
        let question = |turn| {
            let near = self.question(turn);
            let count = u64::from(OF_LEAF).min(numbers.len() as u64);
            let mut ids: Vec<u32> =
                (0..count).map(|_| numbers.start + rng.below(numbers.len() as u64) as u32).collect();
            ids.sort_unstable();
            ids.dedup();
            let (mut argument, mut answer) = (Vec::new(), Vec::new());
            append_question(WANTED, &near, &mut argument);
            append_candidates(&ids, &mut argument);
            let there = |id: &u32| Some((*id, points.get((id - numbers.start) as usize)?));
            let far = |(id, point): (u32, &[f32])| Neighbour { id, distance: squared(&near, point) };
            // All of them by distance, and then by number: no heap that could lose one.
            let mut found: Vec<Neighbour> = ids.iter().filter_map(there).map(far).collect();
            found.sort_by(|one, two| one.distance.total_cmp(&two.distance).then(one.id.cmp(&two.id)));
            found.truncate(WANTED.into());
            append_found(&found, &mut answer);
            (argument, answer)
        };
        Ready::known(NEAREST, (0..READY).map(question))
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
        const { &[OF_MID_TIERS[0], OF_MID_TIERS[1], OF_MID_TIERS[2], OF_MID_TIERS[3], OF_MID_TIERS[4], REPLICAS, DATA] }
    }

    fn small_data(&self) -> Option<&'static str> {
        Some(SMALL)
    }

    fn open(&self, values: &Values, _: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, CaseError> {
        let way = Way::of(values, self.name())?;
        let data = Source::of(values, progress)?;
        progress(Notice::Step(&format!("loading {} points", data.count())));
        let points = data.points(0..data.count());
        progress(Notice::Step("hashing them into tables"));
        let service = HdSearch::new(Tables::new(&points, data.seed()), way.count);
        let way = way.parts(Parts::Of(data.to_string()));
        Ok(Box::new(MidTierOf::new(way, service)))
    }

    fn requests_help(&self) -> &'static str {
        "noisy copies of points: hdsearch, or hdsearch:synthetic:128:500000:1 for other data"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        about::<Source>(self.name(), text, "`hdsearch`, or its data behind it as in `hdsearch:synthetic:128:500000:1`")
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

    fn small_data(&self) -> Option<&'static str> {
        Some(SMALL)
    }

    fn open(&self, values: &Values, _: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, CaseError> {
        let (data, part) = (Source::of(values, progress)?, Shard::of(values)?);
        let numbers = part.range(data.count());
        progress(Notice::Step(&format!("loading {} of {} points", numbers.len(), data.count())));
        let first = numbers.start;
        let leaf = HdSearchLeaf::new(data.points(numbers), first);
        Ok(Box::new(LeafOf::new(self.name(), leaf).part(part, &data)))
    }

    fn requests_help(&self) -> &'static str {
        "candidates for points near to those of a leaf's part: hdsearch-leaf, or hdsearch-leaf:2/4:synthetic:128:500000:1"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        let expected = "`hdsearch-leaf`, or with a part and data as in `hdsearch-leaf:2/4:synthetic:128:500000:1`";
        about::<Part<Source>>(self.name(), text, expected)
    }
}
