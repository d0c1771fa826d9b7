//! Allocations of a request on its tier: none in steady state, on the threads that begin and
//! continue it. A counting allocator watches threads, and the service reads the counter.

#[path = "it/raw_client.rs"]
mod raw_client;

use leeward_rpc::server::{HandlerError, Request, Server};
use leeward_rpc::tier::{Calls, GatherCondition, Leaves, MidTier, Options, Replies, Step, ThreadingSetup};
use leeward_rpc::wire::Method;
use leeward_runtime::IdlePolicy;
use leeward_testkit::allocator::{CountingAllocator, allocations};
use raw_client::RawClient;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Calls both leaves. Returns two counts of allocations: of the thread that began the request until
/// then, and of the thread that ends it.
struct CountingService {
    wastes: bool,
}

impl MidTier for CountingService {
    type State = u64;

    fn begin(
        &self,
        request: &Request<'_>,
        state: &mut u64,
        calls: &mut Calls<'_>,
        _: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        for leaf in calls.leaves() {
            calls.call(leaf, Method(1), |bytes| bytes.extend_from_slice(request.payload));
        }
        *state = allocations();
        Ok(Step::Gather(GatherCondition::All))
    }

    fn resume(
        &self,
        state: &mut u64,
        replies: &Replies<'_>,
        _: &mut Calls<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        assert_eq!(replies.len(), 2);
        if self.wastes {
            std::hint::black_box(vec![1]);
        }
        reply.extend_from_slice(&state.to_le_bytes());
        reply.extend_from_slice(&allocations().to_le_bytes());
        Ok(Step::Done)
    }
}

fn echo() -> Server {
    let echo = |request: &Request<'_>, reply: &mut Vec<u8>| {
        reply.extend_from_slice(request.payload);
        Ok(())
    };
    Server::builder().idle(IdlePolicy::Block).start("127.0.0.1:0", echo).unwrap()
}

/// Requests out of two hundred that allocated on a warm tier: on threads that begin, and on threads
/// that end.
fn allocating(setup: &str, wastes: bool) -> [usize; 2] {
    let leaves = [echo(), echo()];
    let addresses = leaves.iter().map(|leaf| leaf.address().to_string());
    let threading: ThreadingSetup = setup.parse().unwrap();
    let options = Options::new(Leaves::resolve(addresses).unwrap(), threading);
    let tier = Server::builder().start_tier("127.0.0.1:0", options, CountingService { wastes }).unwrap();
    let mut peer = RawClient::registered(&tier);
    let mut counts = Vec::new();
    for request in 1..=400 {
        peer.call(request, 1, &[b"8 bytes."]);
        let answer = peer.answer().unwrap();
        let bytes = answer.split("payload: [").nth(1).unwrap().split(']').next().unwrap();
        let bytes: Vec<u8> = bytes.split(", ").map(|byte| byte.parse().unwrap()).collect();
        let [began, ended] = [0, 8].map(|from| u64::from_le_bytes(bytes[from..from + 8].try_into().unwrap()));
        counts.push([began, ended]);
    }
    tier.stop().unwrap();
    leaves.into_iter().for_each(|leaf| _ = leaf.stop().unwrap());
    let allocating = |which: usize| counts.windows(2).skip(199).filter(|pair| pair[1][which] > pair[0][which]).count();
    [allocating(0), allocating(1)]
}

/// Growths of tables among two hundred requests: from two hundred entries to the maximum.
const GROWTHS: usize = 3;

#[test]
fn a_request_of_a_tier_allocates_nothing() {
    for setup in ["SIB1", "SIP1", "SDB1-1", "AIB1-0-1", "ADB1-1-1", "ADP1-1-1"] {
        // The table of deadlines doubles while it holds more of a second's requests than ever
        // before.
        let [began, ended] = allocating(setup, false);
        assert!(began <= GROWTHS && ended <= GROWTHS, "{setup}: {began} and {ended} of 200 requests");
    }
}

/// Checks that the counter counts.
#[test]
fn an_allocation_is_counted() {
    let [began, ended] = allocating("ADB1-1-1", true);
    assert!(began <= GROWTHS && ended == 200, "{began} and {ended} of 200 requests");
}
