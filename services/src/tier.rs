//! A tier that asks leaves to send the argument back and reports how many did.
//!
//! It is the smallest service of a tier, for measuring threading models (µTune §7's null service).

use crate::arguments::{Argument, Kind, UnsupportedPolicy, Values};
use crate::backend::{Backend, InProcessService};
use crate::definition::{PrepareError, Progress, Requests, ServiceDefinition, Target};
use crate::tiers::queries::in_process_error;
use crate::tiers::{BEGIN, LEAF_ADMISSION, MidTierConfig};
use leeward_core::units::{Nanos, UnitError, parse_duration};
use leeward_rpc::generator::RequestGenerator;
use leeward_rpc::server::{Builder, HandlerError, Request, Server, ServerError};
use leeward_rpc::tier::{
    Calls, GatherCondition, LeafId, Leaves, Links, MidTier, Options, Replies, Reply, RequiredLeaves, Step, Tier,
    TierError,
};
use leeward_rpc::wire::Method;
use leeward_threading::ThreadingSetup;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// Argument with the addresses of a tier's leaves.
pub const LEAVES: Argument = Argument {
    name: "leaves",
    value_name: "ADDRESSES",
    help: "Addresses of the leaves, separated by commas",
    kind: Kind::Text,
    default: None,
    unsupported: UnsupportedPolicy::Refused,
};

/// Suffix of the name of a curve file.
pub const CURVES: &str = ".toml";

/// Argument with the threading setup of a tier.
pub const THREADING: Argument = Argument {
    name: "threading",
    value_name: "SETUP|FILE.toml",
    help: "Threading model and its pools: SIP1, SDB1-16, AIP1-0-1, ADB1-4-4 or CORE2; or curves of `leeward train`, from which a policy chooses",
    kind: Kind::Checked(|text| match text.ends_with(CURVES) {
        true => Ok(()),
        false => text.parse::<ThreadingSetup>().map(|_| ()).map_err(|error| error.to_string()),
    }),
    default: Some("SDB1-16"),
    unsupported: UnsupportedPolicy::Refused,
};

const ASK: Argument = Argument {
    name: "ask",
    value_name: "all|N",
    help: "Number of leaves that each request calls: all, or this many of them in turn",
    kind: Kind::Checked(|text| parse_ask(text).map(|_| ())),
    default: Some("all"),
    unsupported: UnsupportedPolicy::Refused,
};

const LINKS: Argument = Argument {
    name: "links",
    value_name: "sharded|shared",
    help: "Connections of asynchronous models: of each response thread, or shared by all",
    kind: Kind::Checked(|text| links(text).map(|_| ())),
    default: Some("sharded"),
    unsupported: UnsupportedPolicy::Refused,
};

/// Argument with the time for which a tier waits for leaves.
pub const TIMEOUT: Argument = Argument {
    name: "leaf-timeout",
    value_name: "TIME",
    help: "Longest wait of a request for its leaves; auto: as long as the objective allows (docs/tiers.md)",
    kind: Kind::Checked(|text| timeout(text).map(|_| ())),
    default: Some("auto"),
    unsupported: UnsupportedPolicy::Refused,
};

/// Parses the timeout; `None` if it follows from the objective.
pub(crate) fn timeout(text: &str) -> Result<Option<Nanos>, String> {
    match text {
        "auto" => Ok(None),
        _ => parse_duration(text).map(Some).map_err(|error| format!("{error}, or `auto`")),
    }
}

fn parse_ask(text: &str) -> Result<usize, String> {
    let count =
        if text == "all" { Some(usize::MAX) } else { text.parse().ok().filter(|count| (1..=255).contains(count)) };
    count.ok_or_else(|| "accepted: `all`, or a whole number from 1 to 255".into())
}

fn links(text: &str) -> Result<Links, String> {
    match text {
        "sharded" => Ok(Links::Sharded),
        "shared" => Ok(Links::Shared),
        _ => Err("accepted: `sharded` or `shared`".into()),
    }
}

/// Asks some leaves to send the argument back.
///
/// Result: number of calls (1 byte), number of correct answers (1 byte), and the argument.
#[derive(Debug)]
pub struct FanOut {
    width: usize,
}

impl FanOut {
    /// Creates a tier that asks `ask` leaves, or all leaves if there are fewer.
    pub fn new(ask: usize) -> Self {
        FanOut { width: ask }
    }

    /// Selects the leaves for a request with this argument.
    fn targets(&self, argument: &[u8], leaves: usize) -> impl Iterator<Item = LeafId> + use<> {
        // The argument's bits select the first leaf: equal requests ask the same leaves.
        let bits = argument.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let first = (bits % leaves.max(1) as u64) as usize;
        (0..self.width.min(leaves)).map(move |step| LeafId(((first + step) % leaves) as u16))
    }
}

/// The request's argument, kept between the steps.
#[derive(Debug, Default)]
pub struct FanOutState(Vec<u8>);

impl MidTier for FanOut {
    type State = FanOutState;

    fn required_leaves(&self, request: &Request<'_>, needs: &mut RequiredLeaves<'_>) {
        self.targets(request.payload, needs.leaves().count()).for_each(|leaf| needs.leaf(leaf));
    }

    fn begin(
        &self,
        request: &Request<'_>,
        FanOutState(argument): &mut FanOutState,
        calls: &mut Calls<'_>,
        _: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        argument.clear();
        argument.extend_from_slice(request.payload);
        for leaf in self.targets(request.payload, calls.leaves().count()) {
            calls.call(leaf, Method(0), |bytes| bytes.extend_from_slice(request.payload));
        }
        Ok(Step::Gather(GatherCondition::All))
    }

    fn resume(
        &self,
        FanOutState(argument): &mut FanOutState,
        replies: &Replies<'_>,
        _: &mut Calls<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        let answered = replies.iter().filter(|reply| *reply == Reply::Result(argument)).count();
        reply.extend([replies.len().min(255) as u8, answered.min(255) as u8]);
        reply.extend_from_slice(argument);
        Ok(Step::Done)
    }
}

/// The tier service in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct TierDefinition;

impl ServiceDefinition for TierDefinition {
    fn name(&self) -> &'static str {
        "tier"
    }

    fn summary(&self) -> &'static str {
        "Asks leaves to send the argument back, under a threading model"
    }

    fn arguments(&self) -> &'static [Argument] {
        &[LEAVES, THREADING, ASK, LINKS, TIMEOUT, LEAF_ADMISSION, BEGIN]
    }

    fn open(&self, values: &Values, _: usize, _: &Progress<'_>) -> Result<Box<dyn Backend>, PrepareError> {
        let MidTierConfig { leaves, threading, .. } = MidTierConfig::from_values(values, self.name())?;
        let text =
            |argument: &Argument| values.text(argument.name).or(argument.default).unwrap_or_default().to_string();
        let links = links(&text(&LINKS)).map_err(PrepareError::input)?;
        let ask = parse_ask(&text(&ASK)).map_err(PrepareError::input)?;
        Ok(Box::new(TierBackend { leaves: leaves.links(links), threading, fan_out: ask }))
    }

    fn requests_help(&self) -> &'static str {
        "bytes for the leaves to send back: tier"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        match text {
            "tier" => Ok(Arc::new(TierRequests)),
            _ => Err(UnitError { written: text.chars().take(40).collect(), expected: "`tier`" }),
        }
    }
}

/// A tier that can be started.
pub struct TierBackend {
    /// Leaves that the tier asks.
    pub leaves: Leaves,
    /// The tier's threading setup.
    pub threading: ThreadingSetup,
    /// Number of leaves that each request asks.
    pub fan_out: usize,
}

impl TierBackend {
    /// Starts the tier, for callers that change its threading setup.
    ///
    /// # Errors
    /// See [`TierError`].
    pub fn start_tier(&self, builder: Builder, address: &str, options: Options) -> Result<Tier, TierError> {
        builder.start_tier(address, options, FanOut::new(self.fan_out))
    }
}

impl Backend for TierBackend {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        let options = Options::new(self.leaves.clone(), self.threading);
        let started = self.start_tier(builder, address, options);
        started.map(Tier::into_server).map_err(|error| match error {
            TierError::Server(error) => error,
            other => ServerError::Other(other.to_string()),
        })
    }
}

/// Requests of eight drawn bytes each, which every asked leaf sends back.
#[derive(Clone, Copy, Debug)]
struct TierRequests;

impl Display for TierRequests {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("tier")
    }
}

impl RequestGenerator for TierRequests {
    fn generate(&self, random: u64, payload: &mut Vec<u8>) -> Method {
        payload.extend_from_slice(&random.to_le_bytes());
        Method(0)
    }

    fn is_answer(&self, random: u64, _: Method, answer: &[u8]) -> bool {
        // A partial answer counts as a failure: a load test with absent leaves measures nothing.
        matches!(answer, [asked, answered, rest @ ..] if asked == answered && rest == random.to_le_bytes())
    }
}

impl Requests for TierRequests {
    fn prepare(&self, _: &Target<'_>) -> Result<Option<Arc<dyn RequestGenerator>>, PrepareError> {
        Ok(Some(Arc::new(*self)))
    }

    fn prepare_in_process(&self, _: &Progress<'_>) -> Result<InProcessService, PrepareError> {
        Err(in_process_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Value;

    fn open_error(leaves: &str) -> String {
        let mut values = Values::defaults(TierDefinition.arguments());
        values.set(LEAVES.name, Value::Text(leaves.into()));
        let opened = TierDefinition.open(&values, 1, &|_| ());
        opened.err().unwrap_or_else(|| panic!("{leaves}")).to_string()
    }

    #[test]
    fn leaves_must_be_given_once_each() {
        assert!(open_error("").contains("needs --leaves"));
        assert!(open_error("127.0.0.1:7001,127.0.0.1:7001").contains("twice"));
        assert!(open_error("127.0.0.1:7001,,").contains("accepted: HOST:PORT"));
        let crowd: Vec<String> = (0..300).map(|port| format!("127.0.0.1:{}", 7_000 + port)).collect();
        assert!(open_error(&crowd.join(",")).contains("300 leaves; accepted: 1 to 255"));
    }

    #[test]
    fn arguments_say_what_they_accept() {
        for (argument, wrong, accepted) in
            [(ASK, "0", "from 1 to 255"), (LINKS, "both", "`shared`"), (THREADING, "SIX1", "S"), (TIMEOUT, "1", "")]
        {
            let Kind::Checked(check) = argument.kind else { panic!("{}", argument.name) };
            assert!(check(wrong).unwrap_err().contains(accepted), "{}", argument.name);
            assert!(argument.default.is_some_and(|default| check(default).is_ok()), "{}", argument.name);
        }
    }
}
