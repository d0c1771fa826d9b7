//! Set Algebra in the catalogue: its data, backends of its mid-tier and its leaves, and client
//! requests.

use crate::data::{Documents, VOCABULARY, name, zipf};
use crate::postings::Postings;
use crate::stop::StopWords;
use crate::wire::{ALL, SearchResult, append_result, append_words};
use crate::{Sets, SetsLeaf};
use leeward_core::units::UnitError;
use leeward_services::arguments::{Argument, Values};
use leeward_services::backend::Backend;
use leeward_services::definition::{Notice, PrepareError, Progress, Requests, ServiceDefinition};
use leeward_services::tiers::file;
use leeward_services::tiers::queries::{
    DataShard, DataSource, LeafQuerySource, PreparedQueries, QuerySource, parse_requests,
};
use leeward_services::tiers::shard::{Shard, sizes};
use leeward_services::tiers::{
    DATA, LeafBackend, LeafSharding, MID_TIER_ARGUMENTS, MidTierBackend, MidTierConfig, REPLICAS, SHARD,
};
use leeward_workload::rng::{Purpose, Rng};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::sync::Arc;

/// The mid-tier in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct SetsDefinition;

/// A leaf in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct SetsLeafDefinition;

/// Prepared queries.
const READY: u64 = 4_096;
const EXPECTED: &str = "synthetic:DOCUMENTS:WORDS:SEED with up to 10000000 documents of up to 1000 words, such as synthetic:200000:30:1, small, or the file of `leeward corpus`";

impl Default for Documents {
    fn default() -> Self {
        Documents::Synthetic { count: 200_000, words: 30, seed: 1 }
    }
}

impl Display for Documents {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Documents::Synthetic { count, words, seed } => write!(f, "synthetic:{count}:{words}:{seed}"),
            Documents::Texts { source: path, .. } => f.write_str(path),
        }
    }
}

impl DataSource for Documents {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "small" {
            return Ok(Documents::small());
        }
        if !text.starts_with("synthetic") {
            file::check(Path::new(text), file::BYTES_MAX).map_err(|wrong| format!("{wrong}; accepted: {EXPECTED}"))?;
            return Documents::read(Path::new(text)).map_err(|error| format!("{error}; accepted: {EXPECTED}"));
        }
        let [count, words, seed] = sizes(text, [(1, 10_000_000), (1, 1_000), (0, u64::MAX)], EXPECTED)?;
        // Checked against the bounds above.
        Ok(Documents::Synthetic { count: count as u32, words: words as u32, seed })
    }
}

impl ServiceDefinition for SetsDefinition {
    fn name(&self) -> &'static str {
        "sets"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["set-algebra"]
    }

    fn summary(&self) -> &'static str {
        "Finds the documents that contain all of some words: merges the lists of its leaves"
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
        let data = Documents::from_values(values, progress)?;
        progress(Notice::Step("looking for words that are in too many documents"));
        let service = Sets::new(StopWords::build(&data));
        let config = config.with_sharding(LeafSharding::NamedData(data.to_string()));
        Ok(Box::new(MidTierBackend::new(config, service)))
    }

    fn requests_help(&self) -> &'static str {
        "documents with all of some words: sets (1 to 4 words), or sets:words=1-10"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        let expected = "`sets`, or with other numbers of words up to 1-100 as in `sets:words=1-10`";
        parse_requests::<WordQueries>(self.name(), text, expected)
    }
}

impl ServiceDefinition for SetsLeafDefinition {
    fn name(&self) -> &'static str {
        "sets-leaf"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["set-algebra-leaf"]
    }

    fn summary(&self) -> &'static str {
        "Intersects lists of a share of the documents: a leaf of sets"
    }

    fn arguments(&self) -> &'static [Argument] {
        const { &[DATA, SHARD] }
    }

    fn small_data(&self) -> Option<&'static str> {
        Some(SMALL)
    }

    fn open(&self, values: &Values, _: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, PrepareError> {
        let (data, part) = (Documents::from_values(values, progress)?, Shard::from_values(values)?);
        let numbers = part.range(data.count());
        progress(Notice::Step(&format!("indexing {} of {} documents", numbers.len(), data.count())));
        let leaf = SetsLeaf::new(Postings::build(&data, numbers));
        Ok(Box::new(LeafBackend::new(self.name(), leaf).with_shard(part, &data)))
    }

    fn requests_help(&self) -> &'static str {
        "documents of a leaf's part with all of 1 to 4 words: sets-leaf, or sets-leaf:2/4:synthetic:200000:30:1"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        let expected = "`sets-leaf`, or with a part and data as in `sets-leaf:2/4:synthetic:200000:30:1`";
        parse_requests::<DataShard<Documents>>(self.name(), text, expected)
    }
}

/// Queries of 1 to `most` words, drawn with the frequencies of synthetic documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WordQueries {
    most: u64,
}

impl Default for WordQueries {
    fn default() -> Self {
        WordQueries { most: 4 }
    }
}

impl Display for WordQueries {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "words=1-{}", self.most)
    }
}

impl DataSource for WordQueries {
    fn parse(text: &str) -> Result<Self, String> {
        let most = text.strip_prefix("words=1-").and_then(|most| most.parse().ok());
        let most = most.filter(|most| (1..=100).contains(most));
        most.map(|most| WordQueries { most }).ok_or_else(|| "accepted: words=1-100".into())
    }
}

/// Small data that load in a moment.
const SMALL: &str = "synthetic:20000:30:1";
/// Prepared queries to a single leaf, and the greatest number of words in each.
///
/// All words of a query come from one of the leaf's documents, so that there is a match.
const LEAF_QUERIES: (u64, u64) = (512, 4);

impl LeafQuerySource for Documents {
    fn prepare_leaf_queries(&self, part: Shard) -> Result<PreparedQueries, PrepareError> {
        let (numbers, mut rng) = (part.range(self.count()), Rng::new(1, Purpose::Clients));
        if numbers.is_empty() {
            return Err(PrepareError::input("a part without documents"));
        }
        let queries: Vec<BTreeSet<String>> = (0..LEAF_QUERIES.0)
            .map(|_| {
                let number = numbers.start + rng.below(numbers.len() as u64) as u32;
                let mut words = Vec::new();
                self.words(number..number + 1, |_, word| words.push(word.to_string()));
                // The format stores a word's length in one byte.
                words.retain(|word| (1..=255).contains(&word.len()));
                (0..=rng.below(LEAF_QUERIES.1))
                    .filter_map(|_| words.get(rng.below(words.len().max(1) as u64) as usize).cloned())
                    .collect()
            })
            .filter(|words: &BTreeSet<String>| !words.is_empty())
            .collect();
        let query_words: BTreeSet<&str> = queries.iter().flatten().map(String::as_str).collect();
        // Plain sets of documents, without lists to intersect.
        let mut with: BTreeMap<&str, BTreeSet<u32>> = query_words.iter().map(|word| (*word, BTreeSet::new())).collect();
        self.words(numbers, |number, word| _ = with.get_mut(word).map(|numbers| numbers.insert(number)));
        let answered = queries.iter().map(|words| {
            let (mut argument, mut answer) = (Vec::new(), Vec::new());
            append_words(words.iter().map(String::as_bytes), &mut argument);
            let mut lists = words.iter().filter_map(|word| with.get(word.as_str()));
            let first = lists.next().cloned().unwrap_or_default();
            let found: Vec<u32> =
                lists.fold(first, |found, list| found.intersection(list).copied().collect()).into_iter().collect();
            append_result(found.len() as u32, &found, &mut answer);
            (argument, answer)
        });
        PreparedQueries::with_answers(ALL, answered)
    }
}

impl QuerySource for WordQueries {
    fn prepare_queries(&self) -> Result<PreparedQueries, PrepareError> {
        let mut rng = Rng::new(1, Purpose::Clients);
        let is_answer = |answer: &[u8]| answer.get(2..).and_then(SearchResult::read).is_some();
        Ok(PreparedQueries::new(ALL, READY, is_answer, |_, argument| {
            let words: Vec<String> = (0..=rng.below(self.most)).map(|_| name(zipf(&mut rng).min(VOCABULARY))).collect();
            append_words(words.iter().map(String::as_bytes), argument);
        }))
    }
}
