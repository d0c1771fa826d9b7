//! Credits reserved before a request begins: a leaf without credit costs no work, and a leaf with
//! some credit gets as many calls.

use crate::fanout_service::{leaves, server, threading};
use crate::fixed_window_leaf::FixedWindowLeaf;
use crate::pipelined_client::{CallResult, PipelinedClient};
use leeward_core::params::RawParam;
use leeward_core::units::Nanos;
use leeward_rpc::server::{HandlerError, Request};
use leeward_rpc::tier::{
    Calls, GatherCondition, LeafError, Leaves, MidTier, Options, Replies, Reply, RequiredLeaves, Step, Tier,
};
use leeward_rpc::wire::Method;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

pub(crate) const MODELS: [&str; 4] = ["SIB1", "SDB1-3", "AIB1-0-1", "ADB1-2-2"];

/// Calls every leaf as often as the method's number says, and counts the requests that have begun.
struct Counting {
    begun: Arc<AtomicU64>,
    held: Arc<AtomicU64>,
}

impl MidTier for Counting {
    type State = ();

    fn required_leaves(&self, request: &Request<'_>, required: &mut RequiredLeaves<'_>) {
        (0..request.method.0).for_each(|_| required.all());
    }

    fn begin(
        &self,
        request: &Request<'_>,
        (): &mut (),
        calls: &mut Calls<'_>,
        _: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        for _ in 0..request.method.0 {
            for leaf in calls.leaves() {
                calls.call(leaf, Method(1), |bytes| bytes.extend_from_slice(request.payload));
            }
        }
        Ok(Step::Gather(GatherCondition::All))
    }

    fn resume(
        &self,
        (): &mut (),
        came: &Replies<'_>,
        _: &mut Calls<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        let right = came.iter().filter(|reply| matches!(reply, Reply::Result(_))).count();
        // A connection that is not open yet holds no call back.
        let is_held = |reply: &Reply<'_>| {
            matches!(reply, Reply::Missing | Reply::Failed(LeafError::NotSent | LeafError::Rejected(_)))
        };
        self.held.fetch_add(came.iter().filter(is_held).count() as u64, Ordering::SeqCst);
        reply.push(right as u8);
        Ok(Step::Done)
    }
}

/// A tier over these leaves, with the objective `slo`.
fn tier(
    fixed_leaves: &[&FixedWindowLeaf],
    setup: &str,
    slo: Nanos,
    reserves: bool,
) -> (Tier, Arc<AtomicU64>, Arc<AtomicU64>) {
    let addresses: Vec<SocketAddr> = fixed_leaves.iter().map(|leaf| leaf.address).collect();
    tier_under(("breakwater", &[]), &addresses, setup, slo, reserves)
}

/// The same under an algorithm with parameters, over leaves at `addresses`.
fn tier_under(
    (algorithm, params): (&str, &[(&str, RawParam)]),
    addresses: &[SocketAddr],
    setup: &str,
    slo: Nanos,
    reserves: bool,
) -> (Tier, Arc<AtomicU64>, Arc<AtomicU64>) {
    let (begun, held) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let algorithm = leeward_controllers::builtin().find(algorithm).unwrap().clone();
    let leaves = Leaves::resolve(addresses.iter().map(SocketAddr::to_string)).unwrap();
    let params = algorithm.params(params).unwrap();
    let leaves = leaves.timeout(Nanos::from_millis(200)).admission(&algorithm, params, Nanos::from_micros(50), slo);
    let service = Counting { begun: Arc::clone(&begun), held: Arc::clone(&held) };
    let builder = server().objective(Nanos::from_micros(50), slo);
    let options = Options::new(leaves.reserve_credits(reserves), threading(setup));
    let tier = builder.start_tier("127.0.0.1:0", options, service).unwrap();
    (tier, begun, held)
}

/// Waits until the tier is connected to all leaves: until then its requests need none.
fn until_up(client: &mut PipelinedClient, leaves: u8) {
    while client.ask(1, 1, b"is it there") != CallResult::Result(vec![leaves]) {
        thread::sleep(Duration::from_millis(1));
    }
}

fn drops(client: &mut PipelinedClient, requests: u64) -> u64 {
    (2..2 + requests).for_each(|request| client.call(request, 1, b"argument"));
    client.send();
    (0..requests).filter(|_| matches!(client.answer().1, CallResult::Drop(_))).count() as u64
}

#[test]
fn no_request_starts_without_leaf_credits() {
    for setup in MODELS {
        let (generous, limited) = (FixedWindowLeaf::start(100), FixedWindowLeaf::start(100));
        let (tier, begun, held) = tier(&[&generous, &limited], setup, Nanos::from_millis(20), true);
        let mut client = PipelinedClient::new(&tier);
        until_up(&mut client, 2);
        limited.window.store(0, Ordering::SeqCst);
        // Until all of the tier's connections have the new window: then no request begins any more.
        let mut before = begun.load(Ordering::SeqCst);
        let mut rounds = 0;
        while drops(&mut client, 20) < 20 {
            rounds += 1;
            assert!(rounds < 1_000, "{setup}: requests begin without credits");
            before = begun.load(Ordering::SeqCst);
        }
        assert!(begun.load(Ordering::SeqCst) >= before, "{setup}");
        let (before, none_held) = (begun.load(Ordering::SeqCst), held.load(Ordering::SeqCst));
        assert_eq!(drops(&mut client, 20), 20, "{setup}");
        assert_eq!(begun.load(Ordering::SeqCst), before, "{setup}: work without a credit");
        // Credits arrive: requests begin, and none of their calls is held back.
        limited.window.store(1, Ordering::SeqCst);
        while !matches!(client.ask(90, 1, b"again"), CallResult::Result(_)) {}
        assert_eq!(held.load(Ordering::SeqCst), none_held, "{setup}");
        tier.stop().unwrap();
        generous.stop();
        limited.stop();
    }
}

#[test]
fn a_waiting_request_starts_when_credits_arrive() {
    for setup in MODELS {
        let limited = FixedWindowLeaf::start(100);
        let (tier, _, held) = tier(&[&limited], setup, Nanos::from_secs(60), true);
        let mut client = PipelinedClient::new(&tier);
        until_up(&mut client, 1);
        let none_held = held.load(Ordering::SeqCst);
        limited.window.store(1, Ordering::SeqCst);
        // More than the window at once, on any connection: the rest waits, and none is rejected by
        // then unless the machine stands still.
        let dropped = drops(&mut client, 40);
        let counts = tier.stop().unwrap();
        assert_eq!(counts.rejected, dropped, "{setup}");
        assert_eq!(held.load(Ordering::SeqCst), none_held, "{setup}: a call was held back after the work");
        limited.stop();
    }
}

/// Two calls of a leaf that grants one: the reply to the first brings the credit for the second.
#[test]
fn a_request_with_more_calls_than_credits_starts() {
    for setup in MODELS {
        let limited = FixedWindowLeaf::start(100);
        let (tier, ..) = tier(&[&limited], setup, Nanos::from_secs(60), true);
        let mut client = PipelinedClient::new(&tier);
        until_up(&mut client, 1);
        limited.window.store(1, Ordering::SeqCst);
        // Enough for each of the tier's connections to have the new window.
        for request in 2..30 {
            assert_eq!(client.ask(request, 2, b"twice"), CallResult::Result(vec![2]), "{setup}");
        }
        tier.stop().unwrap();
        limited.stop();
    }
}

/// Limits at the client alone: a leaf without control has no windows, and one with control permits
/// more than the client does.
#[test]
fn a_request_with_more_calls_than_its_client_permits_starts() {
    let (uncontrolled, generous) = (crate::fanout_service::echo(), FixedWindowLeaf::start(100));
    let one = RawParam::Integer(1);
    let cases = [("window", "max_window", uncontrolled.address()), ("breakwater", "max_outstanding", generous.address)];
    for (algorithm, limit, address) in cases {
        for setup in MODELS {
            let algorithm = (algorithm, &[(limit, one.clone())][..]);
            let (tier, ..) = tier_under(algorithm, &[address], setup, Nanos::from_secs(2), true);
            let mut client = PipelinedClient::new(&tier);
            until_up(&mut client, 1);
            let result = client.ask(2, 2, b"twice");
            assert_eq!(result, CallResult::Result(vec![2]), "{setup} {}", algorithm.0);
            tier.stop().unwrap();
        }
    }
    uncontrolled.stop().unwrap();
    generous.stop();
}

/// The leaf answers one call at a time, so that its three credits are never free at once while
/// requests with one call take each.
#[test]
fn a_request_with_many_calls_is_served_among_those_with_few() {
    let leaf = FixedWindowLeaf::start(3);
    let (tier, ..) = tier(&[&leaf], "AIB1-0-1", Nanos::from_secs(60), true);
    let mut client = PipelinedClient::new(&tier);
    until_up(&mut client, 1);
    leaf.batch.store(1, Ordering::SeqCst);
    const MANY: u64 = 100;
    for request in 50..200 {
        client.call(request, if request == MANY { 4 } else { 1 }, b"argument");
    }
    client.send();
    let mut later = 0;
    for _ in 50..200 {
        let (request, result) = client.answer();
        if request == MANY {
            assert_eq!(result, CallResult::Result(vec![4]));
            assert!(later < 20, "after {later} of 99 that came later");
        }
        later += u32::from(request > MANY);
    }
    tier.stop().unwrap();
    leaf.stop();
}

/// The leaf hears of each call that waits, as a simulated one does.
#[test]
fn waiting_requests_report_their_calls() {
    let synchronized = [("demand", RawParam::Text("synchronization".into()))];
    // With one connection: calls made before one has opened are demand, too.
    for setup in ["SIB1", "AIB1-0-1"] {
        let leaf = FixedWindowLeaf::start(100);
        let algorithm = ("breakwater", &synchronized[..]);
        let (tier, ..) = tier_under(algorithm, &[leaf.address], setup, Nanos::from_secs(60), true);
        let mut client = PipelinedClient::new(&tier);
        until_up(&mut client, 1);
        leaf.demands.lock().unwrap().clear();
        leaf.window.store(0, Ordering::SeqCst);
        let mut requests = 2;
        // Requests wait once their connection has the new window.
        while leaf.demands.lock().unwrap().is_empty() {
            client.call(requests, 3, b"three times");
            client.send();
            requests += 1;
            thread::sleep(Duration::from_millis(1));
        }
        leaf.window.store(100, Ordering::SeqCst);
        (2..requests).for_each(|_| assert_eq!(client.answer().1, CallResult::Result(vec![3]), "{setup}"));
        tier.stop().unwrap();
        let demands = leaf.demands.lock().unwrap().clone();
        assert!(demands.iter().all(|demand| demand % 3 == 0), "{setup}: {demands:?}");
        leaf.stop();
    }
}

#[test]
fn a_tier_without_reservation_wastes_work() {
    let limited = FixedWindowLeaf::start(100);
    let (tier, begun, held) = tier(&[&limited], "SDB1-3", Nanos::from_millis(20), false);
    let mut client = PipelinedClient::new(&tier);
    until_up(&mut client, 1);
    limited.window.store(0, Ordering::SeqCst);
    let before = begun.load(Ordering::SeqCst);
    for _ in 0..100 {
        assert_eq!(drops(&mut client, 3), 0, "nothing is dropped, and the work is done");
        if held.load(Ordering::SeqCst) > 0 {
            break;
        }
    }
    assert!(begun.load(Ordering::SeqCst) > before && held.load(Ordering::SeqCst) > 0);
    tier.stop().unwrap();
    limited.stop();
}

#[test]
fn unreachable_leaves_do_not_block_requests() {
    let gone = [crate::fanout_service::echo()];
    let away = leaves(&gone);
    let [gone] = gone;
    gone.stop().unwrap();
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    for setup in MODELS {
        let params = breakwater.params(&[]).unwrap();
        let leaves = away.clone().admission(&breakwater, params, Nanos::from_micros(50), Nanos::from_secs(60));
        let (begun, held) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let service = Counting { begun: Arc::clone(&begun), held };
        let tier = server().start_tier("127.0.0.1:0", Options::new(leaves, threading(setup)), service).unwrap();
        let mut client = PipelinedClient::new(&tier);
        assert_eq!(client.ask(1, 1, b"a partial answer"), CallResult::Result(vec![0]), "{setup}");
        assert_eq!(begun.load(Ordering::SeqCst), 1);
        tier.stop().unwrap();
    }
}
