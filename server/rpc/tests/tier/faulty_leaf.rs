//! A leaf that is slow, that answers garbage, or in whose place another program listens, at half of its capacity and at one and a half
//! times that: every request is answered, the answer says that a part is missing, the other leaf's part is there, and whole answers come
//! again after its return.

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

/// Models whose requests hold no thread while they wait: the load can't be more than their threads bear.
const ASYNC: [&str; 2] = ["ADB1-2-2", "CORE1"];
/// A model whose threads bear half of the leaf's capacity even if many requests wait for the time-out.
const SYNC: &str = "SDB1-8";
const TIMEOUT: Nanos = Nanos::from_millis(100);
/// Bound on whatever is to be soon: the machine may be busy.
const SOON: Duration = Duration::from_nanos(TIMEOUT.0 * 20);
/// Time of a call at the frail leaf, which does one at a time.
const CALL: Duration = Duration::from_millis(5);
const RTT: Nanos = Nanos::from_micros(50);
const SLO: Nanos = Nanos::from_millis(40);

/// Condition of the frail leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeafCondition {
    Well,
    /// Answers come later than anybody waits.
    Slow,
    /// Answers are other bytes than they should be.
    Garbage,
}

/// Fault that a leaf can have.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Is(LeafCondition),
    /// Another program listens at its address.
    Replaced,
}

const FAULTS: [Fault; 3] = [Fault::Is(LeafCondition::Slow), Fault::Is(LeafCondition::Garbage), Fault::Replaced];

/// A leaf that answers at once, under the same controller.
fn well() -> Server {
    let echo = |request: &Request<'_>, reply: &mut Vec<u8>| {
        reply.extend_from_slice(request.payload);
        Ok(())
    };
    governed().start("127.0.0.1:0", echo).unwrap()
}

fn governed() -> Builder {
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    server().admission(&breakwater, breakwater.params(&[]).unwrap()).objective(RTT, SLO)
}

/// A leaf with one thread, which sleeps in a request: its capacity needs no CPU. A controller keeps its queue short.
fn frail(address: &str, mood: &Arc<AtomicU8>) -> Server {
    let mood = Arc::clone(mood);
    let handler = move |request: &Request<'_>, reply: &mut Vec<u8>| {
        thread::sleep(CALL);
        let is = |wanted: LeafCondition| mood.load(Ordering::SeqCst) == wanted as u8;
        let began = Instant::now();
        while is(LeafCondition::Slow) && began.elapsed() < SOON {
            thread::sleep(CALL);
        }
        reply.extend_from_slice(if is(LeafCondition::Garbage) { &b"garbage"[..] } else { request.payload });
        Ok(())
    };
    governed().start(address, handler).unwrap()
}

/// Parts of an answer that are right.
fn parts(told: &CallResult) -> u8 {
    let CallResult::Result(bytes) = told else { panic!("{told:?}") };
    bytes[0]
}

/// A client that sends at a steady pace, whatever comes back.
struct Load {
    client: PipelinedClient,
    /// Number of the next request.
    next: u64,
    gap: Duration,
}

/// Number of requests, and how many of their answers were whole.
#[derive(Clone, Copy, Debug, Default)]
struct LoadResult {
    all: usize,
    whole: usize,
}

impl Load {
    /// Requests for so long. Each is answered soon, with the well leaf's part.
    fn run(&mut self, span: Duration) -> LoadResult {
        let (first, began) = (self.next, Instant::now());
        let (mut sent, mut seen) = (Vec::new(), LoadResult::default());
        loop {
            let due = began + self.gap * sent.len() as u32;
            let is_over = due >= began + span;
            if is_over && seen.all == sent.len() {
                return seen;
            }
            let answer = if is_over { Some(self.client.answer()) } else { self.client.answer_by(due) };
            if let Some((request, told)) = answer {
                let sent: Instant = sent[(request - first) as usize];
                assert!(sent.elapsed() < SOON, "unanswered for {:?}", sent.elapsed());
                let right = parts(&told);
                assert!(right >= 1, "the other leaf's part is there");
                seen.all += 1;
                seen.whole += usize::from(right == 2);
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

/// Time between requests that the frail leaf can just bear: one after the other.
fn bearable(asking: &mut PipelinedClient) -> Duration {
    const ROUNDS: u32 = 20;
    let began = Instant::now();
    (0..u64::from(ROUNDS)).for_each(|round| _ = parts(&asking.ask(1_000 + round, 1, b"both parts")));
    began.elapsed() / ROUNDS
}

/// A tier before, during and after a fault of its frail leaf, at so many times that leaf's capacity.
fn bears(setup: &str, fault: Fault, load: f64) {
    let words = format!("{setup}, {fault:?}, {load} x");
    let mood = Arc::new(AtomicU8::new(LeafCondition::Well as u8));
    let set = |to: LeafCondition| mood.store(to as u8, Ordering::SeqCst);
    let servers = [well(), frail("127.0.0.1:0", &mood)];
    let address = servers[1].address().to_string();
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let asked = leaves(&servers).admission(&breakwater, breakwater.params(&[]).unwrap(), RTT, SLO).timeout(TIMEOUT);
    let backoff = Nanos::from_millis(10);
    let tier = start(Options::new(asked.backoff(backoff, backoff), threading(setup)));
    let mut asking = PipelinedClient::new(&tier);
    let began = Instant::now();
    while parts(&asking.ask(1, 1, b"until both links are up")) < 2 {
        assert!(began.elapsed() < SOON, "{words}: no whole answer at first");
    }
    let gap = bearable(&mut asking).div_f64(load);
    let mut load = Load { client: asking, next: 2_000, gap };
    let before = load.run(Duration::from_millis(300));
    assert!(before.whole > 0, "{words}: {before:?}");

    let [steady, other] = servers;
    let (mut other, mut other_program) = (Some(other), None);
    match fault {
        Fault::Is(mood) => set(mood),
        Fault::Replaced => {
            other.take().unwrap().stop().unwrap();
            other_program = Some(impostor(&address, LeafMisbehavior::Nonsense));
        }
    }
    let during = load.run(Duration::from_millis(300));
    assert!(during.all > 0 && during.whole == 0, "{words}: {during:?}");

    set(LeafCondition::Well);
    if let Some((_, ends, thread)) = other_program {
        ends.store(true, Ordering::SeqCst);
        thread.join().unwrap();
        other = Some(frail(&address, &mood));
    }
    let back = Instant::now();
    while load.run(Duration::from_millis(50)).whole == 0 {
        assert!(back.elapsed() < SOON, "{words}: no whole answer");
    }
    tier.stop().unwrap();
    steady.stop().unwrap();
    other.unwrap().stop().unwrap();
}

#[test]
fn a_frail_leaf_costs_its_part_below_its_capacity() {
    for setup in ASYNC.into_iter().chain([SYNC]) {
        FAULTS.into_iter().for_each(|fault| bears(setup, fault, 0.5));
    }
}

#[test]
fn a_frail_leaf_costs_its_part_above_its_capacity() {
    for setup in ASYNC {
        FAULTS.into_iter().for_each(|fault| bears(setup, fault, 1.5));
    }
}
