//! HDSearch in the catalogue: its data, backends of its mid-tier and its leaves, and client
//! requests.

use crate::data::{Source, Synthetic};
use crate::distance::{Neighbour, squared};
use crate::file;
use crate::hashing::Tables;
use crate::wire::{NEAREST, append_candidates, append_neighbours, append_query, read_neighbours};
use crate::{HdSearch, HdSearchLeaf};
use leeward_core::units::UnitError;
use leeward_services::arguments::{Argument, Values};
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
pub struct HdSearchDefinition;

/// A leaf in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct HdSearchLeafDefinition;

/// Neighbours per query.
const NEIGHBOURS: u16 = 10;
/// Small data that load in a moment.
const SMALL: &str = "synthetic:64:20000:1";
/// Candidates of a query to a single leaf: about as many as from a mid-tier with four leaves.
const LEAF_CANDIDATES: u32 = 330;
/// Prepared queries: drawing a point for each request would make the clients the bottleneck.
const READY: u64 = 1_024;
const EXPECTED: &str = "synthetic:DIMENSIONS:POINTS:SEED with 1 to 2048 dimensions and 1 to 10000000 points, such as synthetic:128:500000:1, or a file with a point on each line";

impl Default for Source {
    /// Half a million points in 2,000 clusters: the size of µSuite's images.
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

impl DataSource for Source {
    fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with("synthetic") {
            let points = file::read(Path::new(text)).map_err(|wrong| format!("{wrong}; accepted: {EXPECTED}"))?;
            return Ok(Source::File { path: text.into(), points: Arc::new(points) });
        }
        let [dimensions, count, seed] = sizes(text, [(1, 2_048), (1, 10_000_000), (0, u64::MAX)], EXPECTED)?;
        // Checked against the bounds above.
        Ok(Source::Synthetic(Synthetic { dimensions: dimensions as usize, count: count as u32, seed }))
    }
}

impl QuerySource for Source {
    fn prepare_queries(&self) -> Result<PreparedQueries, PrepareError> {
        let is_answer = |answer: &[u8]| {
            let found = answer.get(2..).and_then(read_neighbours);
            found.is_some_and(|found| found.count() <= usize::from(NEIGHBOURS))
        };
        let write = |turn, argument: &mut Vec<u8>| append_query(NEIGHBOURS, &self.query(turn), argument);
        Ok(PreparedQueries::new(NEAREST, READY, is_answer, write))
    }
}

impl LeafQuerySource for Source {
    fn prepare_leaf_queries(&self, part: Shard) -> Result<PreparedQueries, PrepareError> {
        let numbers = part.range(self.count());
        let points = self.points(numbers.clone());
        let mut rng = Rng::new(self.seed(), Purpose::Clients);
        let query = |turn| {
            let near = self.query(turn);
            let count = u64::from(LEAF_CANDIDATES).min(numbers.len() as u64);
            let mut ids: Vec<u32> =
                (0..count).map(|_| numbers.start + rng.below(numbers.len() as u64) as u32).collect();
            ids.sort_unstable();
            ids.dedup();
            let (mut argument, mut answer) = (Vec::new(), Vec::new());
            append_query(NEIGHBOURS, &near, &mut argument);
            append_candidates(&ids, &mut argument);
            let there = |id: &u32| Some((*id, points.get((id - numbers.start) as usize)?));
            let far = |(id, point): (u32, &[f32])| Neighbour { id, distance: squared(&near, point) };
            // Sorts all candidates by distance, then number: independent of the heap under test.
            let mut found: Vec<Neighbour> = ids.iter().filter_map(there).map(far).collect();
            found.sort_by(|one, two| one.distance.total_cmp(&two.distance).then(one.id.cmp(&two.id)));
            found.truncate(NEIGHBOURS.into());
            append_neighbours(&found, &mut answer);
            (argument, answer)
        };
        PreparedQueries::with_answers(NEAREST, (0..READY).map(query))
    }
}

impl ServiceDefinition for HdSearchDefinition {
    fn name(&self) -> &'static str {
        "hdsearch"
    }

    fn summary(&self) -> &'static str {
        "Finds the nearest of many points: asks leaves about candidates"
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
                DATA,
            ]
        }
    }

    fn small_data(&self) -> Option<&'static str> {
        Some(SMALL)
    }

    fn open(&self, values: &Values, _: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, PrepareError> {
        let config = MidTierConfig::from_values(values, self.name())?;
        let data = Source::from_values(values, progress)?;
        progress(Notice::Step(&format!("loading {} points", data.count())));
        let points = data.points(0..data.count());
        progress(Notice::Step("hashing them into tables"));
        let service = HdSearch::new(Tables::new(&points, data.seed()), config.shards);
        let config = config.with_sharding(LeafSharding::NamedData(data.to_string()));
        Ok(Box::new(MidTierBackend::new(config, service)))
    }

    fn requests_help(&self) -> &'static str {
        "noisy copies of points: hdsearch, or hdsearch:synthetic:128:500000:1 for other data"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        parse_requests::<Source>(
            self.name(),
            text,
            "`hdsearch`, or its data behind it as in `hdsearch:synthetic:128:500000:1`",
        )
    }
}

impl ServiceDefinition for HdSearchLeafDefinition {
    fn name(&self) -> &'static str {
        "hdsearch-leaf"
    }

    fn summary(&self) -> &'static str {
        "Measures distances between points: a leaf of hdsearch"
    }

    fn arguments(&self) -> &'static [Argument] {
        const { &[DATA, SHARD] }
    }

    fn small_data(&self) -> Option<&'static str> {
        Some(SMALL)
    }

    fn open(&self, values: &Values, _: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, PrepareError> {
        let (data, part) = (Source::from_values(values, progress)?, Shard::from_values(values)?);
        let numbers = part.range(data.count());
        progress(Notice::Step(&format!("loading {} of {} points", numbers.len(), data.count())));
        let first = numbers.start;
        let leaf = HdSearchLeaf::new(data.points(numbers), first);
        Ok(Box::new(LeafBackend::new(self.name(), leaf).with_shard(part, &data)))
    }

    fn requests_help(&self) -> &'static str {
        "candidates for points near to those of a leaf's part: hdsearch-leaf, or hdsearch-leaf:2/4:synthetic:128:500000:1"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        let expected = "`hdsearch-leaf`, or with a part and data as in `hdsearch-leaf:2/4:synthetic:128:500000:1`";
        parse_requests::<DataShard<Source>>(self.name(), text, expected)
    }
}
