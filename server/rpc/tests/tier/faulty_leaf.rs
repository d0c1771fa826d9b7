//! A leaf that is slow, sends garbage, or is replaced by another program. The load is half of the
//! leaf's capacity, or one and a half times it.
//!
//! Every request gets a response, which reports the missing part and contains the other leaf's
//! part. Whole responses return with the leaf.

use crate::fanout_service::{leaves, server, start, threading};
use crate::hostile::{LeafMisbehavior, impostor};
use crate::pipelined_client::{CallResult, PipelinedClient};
use leeward_core::units::Nanos;
use leeward_rpc::server::{Builder, Request, Server};
use leeward_rpc::tier::Options;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Models whose waiting requests hold no thread: their threads do not limit the load.
const ASYNC: [&str; 2] = ["ADB1-2-2", "CORE1"];
/// A model whose threads handle half of the leaf's capacity even if many requests wait for the
/// timeout.
const SYNC: &str = "SDB1-8";
const TIMEOUT: Nanos = Nanos::from_millis(100);
/// Limit for events that should be soon: the machine may be busy.
const SOON: Duration = Duration::from_nanos(TIMEOUT.0 * 20);
/// Duration of a call at the faulty leaf, which runs one at a time.
const CALL: Duration = Duration::from_millis(5);
const RTT: Nanos = Nanos::from_micros(50);
const SLO: Nanos = Nanos::from_millis(40);

/// Condition of the faulty leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeafCondition {
    Well,
    /// Responses come after every timeout.
    Slow,
    /// Responses have wrong bytes.
    Garbage,
}

/// Fault of a leaf.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Is(LeafCondition),
    /// Another program listens at its address.
    Replaced,
}

const FAULTS: [Fault; 3] = [Fault::Is(LeafCondition::Slow), Fault::Is(LeafCondition::Garbage), Fault::Replaced];

/// A leaf that responds at once, under the same controller.
fn healthy_leaf() -> Server {
    let echo = |request: &Request<'_>, reply: &mut Vec<u8>| {
        reply.extend_from_slice(request.payload);
        Ok(())
    };
    controlled().start("127.0.0.1:0", echo).unwrap()
}

fn controlled() -> Builder {
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    server().admission(&breakwater, breakwater.params(&[]).unwrap()).objective(RTT, SLO)
}

/// A leaf with one thread, which sleeps in a request: its capacity needs no CPU. A controller keeps
/// its queue short.
fn faulty_leaf(address: &str, condition: &Arc<AtomicU8>) -> Server {
    let condition = Arc::clone(condition);
    let handler = move |request: &Request<'_>, reply: &mut Vec<u8>| {
        thread::sleep(CALL);
        let is = |expected: LeafCondition| condition.load(Ordering::SeqCst) == expected as u8;
        let started = Instant::now();
        while is(LeafCondition::Slow) && started.elapsed() < SOON {
            thread::sleep(CALL);
        }
        reply.extend_from_slice(if is(LeafCondition::Garbage) { &b"garbage"[..] } else { request.payload });
        Ok(())
    };
    controlled().start(address, handler).unwrap()
}

/// Number of right parts of a response.
fn parts(result: &CallResult) -> u8 {
    let CallResult::Result(bytes) = result else { panic!("{result:?}") };
    bytes[0]
}

/// An open-loop client with a steady rate.
struct Load {
    client: PipelinedClient,
    /// Number of the next request.
    next: u64,
    gap: Duration,
}

/// Number of requests, and of whole responses.
#[derive(Clone, Copy, Debug, Default)]
struct LoadResult {
    all: usize,
    whole: usize,
}

impl Load {
    /// Sends requests for `span`. Each gets a response soon, with the healthy leaf's part.
    fn run(&mut self, span: Duration) -> LoadResult {
        let (first, started) = (self.next, Instant::now());
        let (mut sent, mut counts) = (Vec::new(), LoadResult::default());
        loop {
            let due = started + self.gap * sent.len() as u32;
            let is_over = due >= started + span;
            if is_over && counts.all == sent.len() {
                return counts;
            }
            let answer = if is_over { Some(self.client.answer()) } else { self.client.answer_by(due) };
            if let Some((request, result)) = answer {
                let sent: Instant = sent[(request - first) as usize];
                assert!(sent.elapsed() < SOON, "unanswered for {:?}", sent.elapsed());
                let right = parts(&result);
                assert!(right >= 1, "the other leaf's part is there");
                counts.all += 1;
                counts.whole += usize::from(right == 2);
            }
            if !is_over && Instant::now() >= due {
                self.client.call(self.next, 1, b"both parts");
                self.client.send();
                self.next += 1;
                sent.push(Instant::now());
            }
        }
    }
}

/// Time between requests that the faulty leaf can just sustain: one after the other.
fn sustainable_gap(client: &mut PipelinedClient) -> Duration {
    const ROUNDS: u32 = 20;
    let started = Instant::now();
    (0..u64::from(ROUNDS)).for_each(|round| _ = parts(&client.ask(1_000 + round, 1, b"both parts")));
    started.elapsed() / ROUNDS
}

/// Runs a tier before, during and after a fault of its faulty leaf, at `load` times that leaf's
/// capacity.
fn check_fault(setup: &str, fault: Fault, load: f64) {
    let case = format!("{setup}, {fault:?}, {load} x");
    let condition = Arc::new(AtomicU8::new(LeafCondition::Well as u8));
    let set = |to: LeafCondition| condition.store(to as u8, Ordering::SeqCst);
    let servers = [healthy_leaf(), faulty_leaf("127.0.0.1:0", &condition)];
    let address = servers[1].address().to_string();
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let leaf_settings =
        leaves(&servers).admission(&breakwater, breakwater.params(&[]).unwrap(), RTT, SLO).timeout(TIMEOUT);
    let backoff = Nanos::from_millis(10);
    let tier = start(Options::new(leaf_settings.backoff(backoff, backoff), threading(setup)));
    let mut tier_client = PipelinedClient::new(&tier);
    let started = Instant::now();
    while parts(&tier_client.ask(1, 1, b"until both links are up")) < 2 {
        assert!(started.elapsed() < SOON, "{case}: no whole answer at first");
    }
    let gap = sustainable_gap(&mut tier_client).div_f64(load);
    let mut load = Load { client: tier_client, next: 2_000, gap };
    let before = load.run(Duration::from_millis(300));
    assert!(before.whole > 0, "{case}: {before:?}");

    let [steady, other] = servers;
    let (mut other, mut other_program) = (Some(other), None);
    match fault {
        Fault::Is(condition) => set(condition),
        Fault::Replaced => {
            other.take().unwrap().stop().unwrap();
            other_program = Some(impostor(&address, LeafMisbehavior::Nonsense));
        }
    }
    let during = load.run(Duration::from_millis(300));
    assert!(during.all > 0 && during.whole == 0, "{case}: {during:?}");

    set(LeafCondition::Well);
    if let Some((_, ends, thread)) = other_program {
        ends.store(true, Ordering::SeqCst);
        thread.join().unwrap();
        other = Some(faulty_leaf(&address, &condition));
    }
    let back = Instant::now();
    while load.run(Duration::from_millis(50)).whole == 0 {
        assert!(back.elapsed() < SOON, "{case}: no whole answer");
    }
    tier.stop().unwrap();
    steady.stop().unwrap();
    other.unwrap().stop().unwrap();
}

#[test]
fn a_faulty_leaf_costs_only_its_part_below_its_capacity() {
    for setup in ASYNC.into_iter().chain([SYNC]) {
        FAULTS.into_iter().for_each(|fault| check_fault(setup, fault, 0.5));
    }
}

#[test]
fn a_faulty_leaf_costs_only_its_part_above_its_capacity() {
    for setup in ASYNC {
        FAULTS.into_iter().for_each(|fault| check_fault(setup, fault, 1.5));
    }
}
