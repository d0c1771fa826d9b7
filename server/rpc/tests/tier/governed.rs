//! A policy that chooses the setups of a running tier.

use crate::fanout_service::{FanoutService, echo, leaves, server, threading};
use crate::pipelined_client::PipelinedClient;
use leeward_rpc::tier::{Options, ThreadingSetup};
use leeward_threading::curves::{Curve, CurvePoint, Curves};
use leeward_threading::{PollSchedule, ThreadEnvironment, ThreadGauges, ThreadSignals, ThreadingPolicy, registry};
use std::sync::Arc;

/// Chooses the next setup of a list at each decision.
struct CyclingPolicy(usize);

const LIST: [&str; 4] = ["SIB1", "ADB1-2-1", "SDB1-3", "AIB1-0-2"];

impl ThreadingPolicy for CyclingPolicy {
    fn initial(&self) -> ThreadingSetup {
        threading(LIST[0])
    }

    fn choices(&self) -> Vec<ThreadingSetup> {
        LIST.map(threading).to_vec()
    }

    fn poll_schedule(&self) -> PollSchedule {
        PollSchedule::Arrivals(7)
    }

    fn window(&self) -> usize {
        5
    }

    fn decide(&mut self, signals: &ThreadSignals) -> Option<ThreadingSetup> {
        assert_eq!(signals.current, threading(LIST[self.0 % LIST.len()]), "it is told what it wanted");
        assert!(signals.arrivals.total() >= 7);
        self.0 += 1;
        Some(threading(LIST[self.0 % LIST.len()]))
    }

    fn gauges(&self) -> ThreadGauges {
        ThreadGauges { switches: self.0 as u64, ..ThreadGauges::new(threading(LIST[self.0 % LIST.len()])) }
    }
}

#[test]
fn a_tier_follows_its_policy() {
    let servers = [echo()];
    let options = Options::with_policy(leaves(&servers), Box::new(CyclingPolicy(0)), 2);
    let tier = server().start_tier("127.0.0.1:0", options, FanoutService).unwrap();
    let mut client = PipelinedClient::new(&tier);
    for request in 1..=700 {
        client.ask(request, 1, b"argument");
    }
    let (counts, gauges) = (tier.switch().counts(), tier.switch().gauges().unwrap());
    assert!(counts.switches >= 90 && counts.switches <= 100, "{counts:?}");
    assert_eq!(counts.switches, gauges.switches);
    assert_eq!(gauges.current, tier.switch().threading());
    assert_eq!(tier.stop().unwrap().completed, 700);
}

#[test]
fn every_policy_serves() {
    let point =
        |load| CurvePoint { load, p50_us: 50.0, p99_us: 90.0, p999_us: 100.0, cpu: 1.0, samples: 2_000, spread: 0.1 };
    let curve = |setup: &str, sustains| {
        let curve_points = vec![point(1.0), point(sustains)];
        Curve { setup: threading(setup), points: curve_points, max_load: sustains }
    };
    let curves = Curves::new(vec![curve("SIB1", 100.0), curve("SDB1-4", 100_000.0)]).unwrap();
    let servers = [echo()];
    for policy in registry::POLICIES.iter().filter(|policy| policy.name != "oracle") {
        let environment = ThreadEnvironment::new(Some(Arc::new(curves.clone())), threading("SIB1"), 2);
        let built = policy.build(&policy.params(&[]).unwrap(), &environment).unwrap();
        let options = Options::with_policy(leaves(&servers), built, 2);
        let tier = server().start_tier("127.0.0.1:0", options, FanoutService).unwrap();
        let mut client = PipelinedClient::new(&tier);
        for request in 1..=300 {
            client.ask(request, 1, b"argument");
        }
        assert_eq!(tier.stop().unwrap().completed, 300, "{}", policy.name);
    }
}
