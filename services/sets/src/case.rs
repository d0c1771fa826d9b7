//! Set Algebra in the catalogue: its data, how its mid-tier and its leaves are served, and what clients ask.

use crate::data::{Data, VOCABULARY, name, shard, zipf};
use crate::postings::Postings;
use crate::stop::StopWords;
use crate::wire::{ALL, Found, append_words};
use crate::{Sets, SetsLeaf};
use leeward_control::units::UnitError;
use leeward_load::ask::Ask;
use leeward_rpc::wire::Method;
use leeward_services::arguments::{Argument, Values};
use leeward_services::case::{Case, CaseError, Notice, Progress, Requests, Target};
use leeward_services::served::{Backend, Served};
use leeward_services::tiers::{DATA, LeafOf, MidTierOf, OF_MID_TIERS, SHARD, Shard, Way, sizes};
use leeward_workload::rng::{Purpose, Rng};
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::sync::Arc;

/// The mid-tier in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct SetsCase;

/// A leaf in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct SetsLeafCase;

/// Questions that are made ready.
const READY: u64 = 4_096;
const EXPECTED: &str = "synthetic:DOCUMENTS:WORDS:SEED with up to 10000000 documents of up to 1000 words, such as synthetic:200000:30:1, small, or the file of `leeward corpus`";
const DEFAULT: Data = Data::Synthetic { count: 200_000, words: 30, seed: 1 };

impl Data {
    /// Reads `synthetic:200000:30:1`, `small`, or a file's path.
    ///
    /// # Errors
    /// Anything else; says what is accepted.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "small" {
            return Ok(Data::small());
        }
        if !text.starts_with("synthetic") {
            return Data::read(Path::new(text)).map_err(|error| format!("{error}; accepted: {EXPECTED}"));
        }
        let [count, words, seed] = sizes(text, [(1, 10_000_000), (1, 1_000), (0, u64::MAX)], EXPECTED)?;
        // Within their bounds.
        Ok(Data::Synthetic { count: count as u32, words: words as u32, seed })
    }

    fn of(values: &Values) -> Result<Self, CaseError> {
        let data = values.text(DATA.name).map_or(Ok(DEFAULT), Data::parse);
        data.map_err(|refused| CaseError::input(format!("--data {refused}")))
    }
}

impl Case for SetsCase {
    fn name(&self) -> &'static str {
        "sets"
    }

    fn summary(&self) -> &'static str {
        "Finds the documents with all of some words: puts lists of leaves together"
    }

    fn arguments(&self) -> &'static [Argument] {
        const { &[OF_MID_TIERS[0], OF_MID_TIERS[1], OF_MID_TIERS[2], DATA] }
    }

    fn open(&self, values: &Values, _: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, CaseError> {
        let way = Way::of(values, self.name())?;
        let data = Data::of(values)?;
        progress(Notice::Step("looking for words that are in too many documents"));
        let service = Sets::new(StopWords::of(&data));
        Ok(Box::new(MidTierOf { way, service }))
    }

    fn requests_help(&self) -> &'static str {
        "documents with all of some words: sets (1 to 4 words), or sets:words=1-10"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        let most = match text.strip_prefix(self.name()) {
            Some("") => Some(4),
            Some(rest) => rest.strip_prefix(":words=1-").and_then(|most| most.parse().ok()),
            None => None,
        };
        let expected = "`sets`, or with other numbers of words up to 1-100 as in `sets:words=1-10`";
        let most = most.filter(|most| (1..=100).contains(most));
        let most = most.ok_or_else(|| UnitError { written: text.chars().take(40).collect(), expected })?;
        Ok(Arc::new(Questions { most }))
    }
}

impl Case for SetsLeafCase {
    fn name(&self) -> &'static str {
        "sets-leaf"
    }

    fn summary(&self) -> &'static str {
        "Intersects lists of a share of the documents: a leaf of sets"
    }

    fn arguments(&self) -> &'static [Argument] {
        const { &[DATA, SHARD] }
    }

    fn open(&self, values: &Values, _: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, CaseError> {
        let (data, part) = (Data::of(values)?, Shard::of(values)?);
        let numbers = shard(data.count(), part.at, part.of);
        progress(Notice::Step(&format!("indexing {} of {} documents", numbers.len(), data.count())));
        Ok(Box::new(LeafOf(SetsLeaf::new(Postings::of(&data, numbers)))))
    }

    fn requests_help(&self) -> &'static str {
        "nothing: ask the mid-tier, sets"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        Err(UnitError { written: text.chars().take(40).collect(), expected: "the mid-tier's requests: `sets`" })
    }
}

/// Questions with one word up to so many, as frequent as in made-up documents.
#[derive(Clone, Copy, Debug)]
struct Questions {
    most: u64,
}

impl Display for Questions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.most == 4 { f.write_str("sets") } else { write!(f, "sets:words=1-{}", self.most) }
    }
}

impl Requests for Questions {
    fn prepare(&self, _: &Target<'_>) -> Result<Option<Arc<dyn Ask>>, CaseError> {
        let mut rng = Rng::new(1, Purpose::Clients);
        let mut question = |_| {
            let words: Vec<String> = (0..=rng.below(self.most)).map(|_| name(zipf(&mut rng).min(VOCABULARY))).collect();
            let mut argument = Vec::new();
            append_words(words.iter().map(String::as_bytes), &mut argument);
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
        ALL
    }

    fn is_answer(&self, _: u64, _: Method, answer: &[u8]) -> bool {
        // Partial answers count as failed: a load test of leaves that are away measures nothing.
        let [asked, answered, found @ ..] = answer else { return false };
        asked == answered && Found::read(found).is_some()
    }
}
