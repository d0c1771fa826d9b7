//! Client requests to services with leaves: queries about a service's data, prepared in advance.
//!
//! Does not contain the queries of any service.

use super::DATA;
use super::shard::Shard;
use crate::arguments::Values;
use crate::backend::InProcessService;
use crate::definition::{Notice, PrepareError, Progress, Requests, Target};
use leeward_core::units::UnitError;
use leeward_rpc::generator::RequestGenerator;
use leeward_rpc::wire::Method;
use std::fmt::{self, Debug, Display, Formatter};
use std::sync::Arc;

/// Data that a service has and clients query. `Display` writes text that [`DataSource::parse`]
/// reads.
pub trait DataSource: Clone + Debug + Default + Display + PartialEq + Send + Sync + 'static {
    /// Parses the text of `--data`.
    ///
    /// # Errors
    /// Any other text; the message lists the accepted forms.
    fn parse(text: &str) -> Result<Self, String>;

    /// Loads the data that `--data` names, or the default.
    ///
    /// Reading a large file takes seconds; `progress` gets a notice first.
    ///
    /// # Errors
    /// The text can't be parsed, or names a file that can't be used.
    fn from_values(values: &Values, progress: &Progress<'_>) -> Result<Self, PrepareError> {
        if let Some(file) = values.text(DATA.name).filter(|text| !text.starts_with("synthetic")) {
            progress(Notice::Step(&format!("reading {file}")));
        }
        let data = values.text(DATA.name).map_or_else(|| Ok(Self::default()), Self::parse);
        data.map_err(|error| PrepareError::input(format!("--data {error}")))
    }
}

/// Data about which clients can send queries.
pub trait QuerySource: DataSource {
    /// Prepares the queries: drawing one per request would make the clients the bottleneck.
    ///
    /// # Errors
    /// The data contain nothing to query.
    fn prepare_queries(&self) -> Result<PreparedQueries, PrepareError>;
}

/// Data whose leaves can be queried directly.
pub trait LeafQuerySource: DataSource {
    /// Prepares queries to the leaf with this part, with the correct answers.
    ///
    /// # Errors
    /// The data contain nothing to query.
    fn prepare_leaf_queries(&self, part: Shard) -> Result<PreparedQueries, PrepareError>;
}

/// A leaf's part of data: `2/4:data`, or `data` for a leaf that has all of it.
#[derive(Clone, Debug, PartialEq)]
pub struct DataShard<D> {
    shard: Shard,
    data: D,
}

impl<D: Default> Default for DataShard<D> {
    fn default() -> Self {
        DataShard { shard: Shard { index: 0, count: 1 }, data: D::default() }
    }
}

impl<D: LeafQuerySource> Display for DataShard<D> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let DataShard { shard: Shard { index: at, count: of }, data } = self;
        match (*of, *data == D::default()) {
            (1, _) => Display::fmt(data, f),
            (_, true) => write!(f, "{}/{of}", at + 1),
            (_, false) => write!(f, "{}/{of}:{data}", at + 1),
        }
    }
}

impl<D: LeafQuerySource> DataSource for DataShard<D> {
    fn parse(text: &str) -> Result<Self, String> {
        let (first, rest) = text.split_once(':').map_or((text, None), |(first, rest)| (first, Some(rest)));
        match Shard::parse(first) {
            Ok(part) => Ok(DataShard { shard: part, data: rest.map_or_else(|| Ok(D::default()), D::parse)? }),
            Err(_) => Ok(DataShard { data: D::parse(text)?, ..DataShard::default() }),
        }
    }
}

impl<D: LeafQuerySource> QuerySource for DataShard<D> {
    fn prepare_queries(&self) -> Result<PreparedQueries, PrepareError> {
        self.data.prepare_leaf_queries(self.shard)
    }
}

/// Parses `name`, for the default data, or `name:data`.
///
/// # Errors
/// Any other text; the message shows `expected`.
pub fn parse_requests<Q: QuerySource>(
    name: &'static str,
    text: &str,
    expected: &'static str,
) -> Result<Arc<dyn Requests>, UnitError> {
    let data = match text.split_once(':') {
        None if text == name => Some(Q::default()),
        Some((before, data)) if before == name => Q::parse(data).ok(),
        _ => None,
    };
    match data {
        Some(data) => Ok(Arc::new(DataRequests { name, data })),
        None => Err(parse_error(text, expected)),
    }
}

/// Reports a text that names no requests.
pub fn parse_error(text: &str, expected: &'static str) -> UnitError {
    UnitError { written: text.chars().take(40).collect(), expected }
}

/// Reports that a tier can't run with its clients in one process: a tier is more than one server.
pub fn in_process_error() -> PrepareError {
    PrepareError::input("a tier has leaves; a scenario describes them in [tier]")
}

/// Queries about these data.
#[derive(Clone, Debug)]
struct DataRequests<Q> {
    name: &'static str,
    data: Q,
}

impl<Q: QuerySource> Display for DataRequests<Q> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let DataRequests { name, data } = self;
        if *data == Q::default() { f.write_str(name) } else { write!(f, "{name}:{data}") }
    }
}

impl<Q: QuerySource> Requests for DataRequests<Q> {
    fn prepare(&self, _: &Target<'_>) -> Result<Option<Arc<dyn RequestGenerator>>, PrepareError> {
        Ok(Some(Arc::new(self.data.prepare_queries()?)))
    }

    fn prepare_in_process(&self, _: &Progress<'_>) -> Result<InProcessService, PrepareError> {
        Err(in_process_error())
    }
}

/// Prepared queries.
#[derive(Debug)]
pub struct PreparedQueries {
    method: Method,
    arguments: Vec<Vec<u8>>,
    check: Check,
}

/// Method of checking answers.
#[derive(Debug)]
enum Check {
    /// Answers of mid-tiers, which must be complete; the function checks the content.
    Complete(fn(&[u8]) -> bool),
    /// Each query has exactly this answer.
    Expected(Vec<Vec<u8>>),
}

impl PreparedQueries {
    /// Prepares `count` queries with this `method`; `write` makes the argument of each.
    ///
    /// `is_answer` checks a complete answer.
    pub fn new(
        method: Method,
        count: u64,
        is_answer: fn(&[u8]) -> bool,
        mut write: impl FnMut(u64, &mut Vec<u8>),
    ) -> Self {
        let argument = |turn| {
            let mut argument = Vec::new();
            write(turn, &mut argument);
            argument
        };
        PreparedQueries {
            method,
            arguments: (0..count.max(1)).map(argument).collect(),
            check: Check::Complete(is_answer),
        }
    }

    /// Prepares queries with the answer of each.
    ///
    /// # Errors
    /// `questions` is empty.
    pub fn with_answers(
        method: Method,
        questions: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Result<Self, PrepareError> {
        let (arguments, answers): (Vec<_>, Vec<_>) = questions.into_iter().unzip();
        if arguments.is_empty() {
            return Err(PrepareError::input("no question to ask about these data"));
        }
        Ok(PreparedQueries { method, arguments, check: Check::Expected(answers) })
    }

    fn index(&self, random: u64) -> usize {
        (random % self.arguments.len() as u64) as usize
    }
}

impl RequestGenerator for PreparedQueries {
    fn generate(&self, random: u64, payload: &mut Vec<u8>) -> Method {
        payload.extend_from_slice(&self.arguments[self.index(random)]);
        self.method
    }

    fn is_answer(&self, random: u64, _: Method, answer: &[u8]) -> bool {
        match &self.check {
            // A partial answer counts as a failure: a load test with absent leaves measures
            // nothing.
            Check::Complete(is_answer) => {
                matches!(answer, [asked, answered, ..] if asked == answered) && is_answer(answer)
            }
            Check::Expected(answers) => answers[self.index(random)] == answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, Default, PartialEq)]
    struct Numbers(u64);

    impl Display for Numbers {
        fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
            write!(f, "{}", self.0)
        }
    }

    impl DataSource for Numbers {
        fn parse(text: &str) -> Result<Self, String> {
            text.parse().map(Numbers).map_err(|_| "accepted: a number".into())
        }
    }

    impl QuerySource for Numbers {
        fn prepare_queries(&self) -> Result<PreparedQueries, PrepareError> {
            let write = |turn: u64, argument: &mut Vec<u8>| argument.extend((self.0 + turn).to_le_bytes());
            Ok(PreparedQueries::new(Method(3), 4, |answer| answer.len() == 3, write))
        }
    }

    #[test]
    fn requests_name_their_data_and_round_trip() {
        for text in ["numbers", "numbers:7"] {
            assert_eq!(parse_requests::<Numbers>("numbers", text, "`numbers`").unwrap().to_string(), text);
        }
        for wrong in ["number", "numbers:", "numbers:x", "numberss:7"] {
            let error = parse_requests::<Numbers>("numbers", wrong, "`numbers`").unwrap_err();
            assert_eq!((&*error.written, error.expected), (wrong, "`numbers`"));
        }
    }

    impl LeafQuerySource for Numbers {
        fn prepare_leaf_queries(&self, part: Shard) -> Result<PreparedQueries, PrepareError> {
            PreparedQueries::with_answers(
                Method(3),
                (0..4).map(|turn| (vec![turn, part.index as u8], vec![turn, self.0 as u8])),
            )
        }
    }

    #[test]
    fn leaf_queries_stay_within_their_shard() {
        for text in ["leaf", "leaf:7", "leaf:2/4", "leaf:2/4:7"] {
            assert_eq!(parse_requests::<DataShard<Numbers>>("leaf", text, "`leaf`").unwrap().to_string(), text);
        }
        for wrong in ["leaf:5/4", "leaf:2/4:", "leaf:2/4:x"] {
            assert!(parse_requests::<DataShard<Numbers>>("leaf", wrong, "`leaf`").is_err(), "{wrong}");
        }
        let ready = DataShard::<Numbers>::parse("2/4:7").unwrap().prepare_queries().unwrap();
        let mut payload = Vec::new();
        ready.generate(6, &mut payload);
        assert_eq!(payload, [2, 1]);
        assert!(ready.is_answer(6, Method(3), &[2, 7]) && !ready.is_answer(6, Method(3), &[3, 7]));
    }

    #[test]
    fn equal_bits_give_equal_queries_and_partial_answers_do_not_count() {
        let ready = Numbers(5).prepare_queries().unwrap();
        let mut payload = Vec::new();
        assert_eq!(ready.generate(u64::MAX, &mut payload), Method(3));
        assert_eq!(payload, 8u64.to_le_bytes());
        assert!(ready.is_answer(0, Method(3), &[2, 2, 0]));
        for other in [&[2, 1, 0][..], &[2, 2], &[2], &[]] {
            assert!(!ready.is_answer(0, Method(3), other), "{other:?}");
        }
    }
}
