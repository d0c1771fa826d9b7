//! A service that calls every leaf, and leaves that return the argument.

use leeward_core::units::Nanos;
use leeward_rpc::server::{Builder, HandlerError, OwnedRequest, Request, Server};
use leeward_rpc::tier::{
    Calls, GatherCondition, Leaves, MidTier, Options, Replies, Reply, RequiredLeaves, Step, ThreadingSetup, Tier,
};
use leeward_rpc::wire::Method;
use leeward_runtime::IdlePolicy;
use leeward_runtime::timers::sleep;

/// Asks every leaf to return the argument. Result: the number of right replies, and the argument.
///
/// | method | behaviour |
/// |---|---|
/// | 2 | calls twice |
/// | 3 | fails |
/// | 4 | panics |
/// | 5 | calls no leaf |
/// | 6 | needs one result |
/// | 7 | takes the results of one millisecond |
/// | 8 and more | calls are repeatable |
/// | 9 | half of the leaves are good enough after a millisecond |
/// | 10 | needs one result |
/// | 11 | half of the leaves are worth an answer |
pub(crate) struct FanoutService;

#[derive(Default)]
pub(crate) struct FanoutState {
    method: u32,
    argument: Vec<u8>,
    rounds: u32,
    right: u8,
}

impl FanoutState {
    fn ask(&self, calls: &mut Calls<'_>) -> Step {
        for leaf in calls.leaves() {
            let call = calls.call(leaf, Method(1), |bytes| bytes.extend_from_slice(&self.argument));
            if self.method >= 8 {
                call.repeatable();
            }
        }
        Step::Gather(match self.method {
            9 => GatherCondition::GoodEnough { percent: 50, within: Nanos::from_millis(1) },
            6 | 10 => GatherCondition::Quorum(1),
            11 => GatherCondition::AtLeast { percent: 50 },
            7 => GatherCondition::Within(Nanos::from_millis(1)),
            _ => GatherCondition::All,
        })
    }
}

impl MidTier for FanoutService {
    type State = FanoutState;

    fn required_leaves(&self, request: &Request<'_>, required: &mut RequiredLeaves<'_>) {
        required.all();
        if request.method == Method(11) {
            required.at_least(50);
        }
    }

    fn begin(
        &self,
        request: &Request<'_>,
        state: &mut FanoutState,
        calls: &mut Calls<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        (state.method, state.rounds, state.right) = (request.method.0, 0, 0);
        state.argument.clear();
        state.argument.extend_from_slice(request.payload);
        match state.method {
            3 => Err(HandlerError::Message("as asked".into())),
            4 => panic!("as asked"),
            5 => {
                reply.push(0);
                reply.extend_from_slice(request.payload);
                Ok(Step::Done)
            }
            _ => Ok(state.ask(calls)),
        }
    }

    fn resume(
        &self,
        state: &mut FanoutState,
        replies: &Replies<'_>,
        calls: &mut Calls<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        state.rounds += 1;
        let is_right = |reply: &Reply<'_>| *reply == Reply::Result(&state.argument);
        state.right += replies.iter().filter(is_right).count() as u8;
        if state.method == 2 && state.rounds < 2 {
            return Ok(state.ask(calls));
        }
        reply.push(state.right);
        reply.extend_from_slice(&state.argument);
        Ok(Step::Done)
    }
}

/// A server that rejects nothing, even if a busy machine delays its responses: these tests expect
/// every result.
pub(crate) fn server() -> Builder {
    let none = leeward_controllers::builtin().find("none").unwrap().clone();
    Server::builder().admission(&none, none.params(&[]).unwrap()).idle(IdlePolicy::Block)
}

/// A leaf that responds at once.
pub(crate) fn echo() -> Server {
    echo_at("127.0.0.1:0")
}

/// A leaf at this address that responds at once.
pub(crate) fn echo_at(address: &str) -> Server {
    let echo = |request: &Request<'_>, reply: &mut Vec<u8>| {
        reply.extend_from_slice(request.payload);
        Ok(())
    };
    server().start(address, echo).unwrap()
}

/// A leaf with this service time.
pub(crate) fn delayed_leaf(time: Nanos) -> Server {
    let echo = move |request: OwnedRequest| async move {
        sleep(time).await;
        Ok(request.payload)
    };
    server().start_async("127.0.0.1:0", echo).unwrap()
}

pub(crate) fn leaves(servers: &[Server]) -> Leaves {
    let backoff = Nanos::from_millis(1);
    Leaves::resolve(servers.iter().map(|server| server.address().to_string())).unwrap().backoff(backoff, backoff)
}

pub(crate) fn threading(text: &str) -> ThreadingSetup {
    text.parse().unwrap_or_else(|_| panic!("{text}"))
}

pub(crate) fn start(options: Options) -> Tier {
    server().start_tier("127.0.0.1:0", options, FanoutService).unwrap()
}

/// All of the paper's models with small pools, and Leeward's ways to wait.
pub(crate) const SETUPS: [&str; 16] = [
    "SIB1",
    "SIB3",
    "SIP1",
    "SDB1-1",
    "SDB1-4",
    "SDP1-2",
    "AIB1-0-1",
    "AIB2-0-2",
    "AIP1-0-1",
    "ADB1-1-1",
    "ADB2-4-3",
    "ADP1-2-1",
    "SDP1-3@16us",
    "ADP1-2-2@64us",
    "CORE1",
    "CORE2",
];
