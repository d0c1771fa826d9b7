//! Setups that change under load (mt-switch): every request ends exactly once, threads take a
//! connection's requests in order, and every thread without a role is parked at the end.

use crate::fanout_service::{echo, leaves, start, threading};
use crate::pipelined_client::{CallResult, PipelinedClient};
use leeward_rpc::tier::{Options, Switch};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: u32 = 4;
/// Unanswered requests of a client.
const AHEAD: u64 = 8;

/// The paper's eight models.
const MODELS: [&str; 8] = ["SIB2", "SIP1", "SDB1-6", "SDP1-3", "AIB1-0-2", "AIP1-0-1", "ADB1-3-2", "ADP1-2-1"];
const MOST: u32 = 7;

/// Outcome of a run.
#[derive(Debug, Default)]
struct Outcome {
    requests: u64,
    switches: u64,
    lost: u64,
    double: u64,
    wrong: u64,
    out_of_order: u64,
    not_parked: usize,
}

impl Outcome {
    fn is_clean(&self) -> bool {
        self.requests > 0 && self.lost + self.double + self.wrong + self.out_of_order + self.not_parked as u64 == 0
    }
}

/// Sends ahead until `over`, then waits for open requests. Returns the numbers of requests, and of
/// lost, duplicate and wrong responses.
fn client(number: u32, mut connection: PipelinedClient, over: &AtomicBool) -> [u64; 4] {
    let (mut sent, mut answered, mut double, mut wrong) = (0u64, Vec::<bool>::new(), 0, 0);
    let mut open = 0;
    loop {
        while open < AHEAD && !over.load(Ordering::Relaxed) {
            sent += 1;
            open += 1;
            answered.push(false);
            connection.call(sent, 1, &argument(number, sent));
        }
        connection.send();
        if open == 0 {
            break;
        }
        let (request, result) = connection.answer();
        let is_answered = &mut answered[request as usize - 1];
        double += u64::from(*is_answered);
        open -= u64::from(!*is_answered);
        *is_answered = true;
        let expected = [&[2], argument(number, request).as_slice()].concat();
        wrong += u64::from(result != CallResult::Result(expected));
    }
    let lost = answered.iter().filter(|is_answered| !**is_answered).count() as u64;
    [sent, lost, double, wrong]
}

fn argument(client: u32, request: u64) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&client.to_le_bytes());
    bytes[4..].copy_from_slice(&request.to_le_bytes());
    bytes
}

/// Changes setups at random moments at most `longest` apart, until `span` is over.
fn switch(switch: &Switch, seed: u64, longest: Duration, span: Duration) {
    let mut bits = seed;
    let mut draw = |below: u64| {
        // SplitMix64: any seed works.
        bits = bits.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        ((mixed ^ (mixed >> 27)) >> 11) % below
    };
    let started = Instant::now();
    while started.elapsed() < span {
        let setup = MODELS[draw(MODELS.len() as u64) as usize];
        switch.change(threading(setup)).unwrap();
        // The next switch meets another state of this one.
        thread::sleep(Duration::from_micros(1 + draw(longest.as_micros() as u64)));
    }
}

fn run(seed: u64, longest: Duration, span: Duration) -> Outcome {
    let servers = [echo(), echo()];
    let out_of_order = Arc::new(AtomicU64::new(0));
    let last = Mutex::new([0; CLIENTS as usize]);
    let counted = Arc::clone(&out_of_order);
    let observe = move |argument: &[u8]| {
        let client = u32::from_le_bytes(argument[..4].try_into().unwrap()) as usize;
        let request = u64::from_le_bytes(argument[4..].try_into().unwrap());
        let last = &mut last.lock().unwrap()[client];
        counted.fetch_add(u64::from(request != *last + 1), Ordering::Relaxed);
        *last = request;
    };
    let options = Options::new(leaves(&servers), threading(MODELS[0])).max_threads(MOST).observe(observe);
    let tier = start(options);
    let over = AtomicBool::new(false);
    let mut outcome = Outcome::default();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let connection = PipelinedClient::new(&tier);
                let over = &over;
                scope.spawn(move || client(number, connection, over))
            })
            .collect();
        switch(tier.switch(), seed, longest, span);
        over.store(true, Ordering::Relaxed);
        for client in clients {
            let [requests, lost, double, wrong] = client.join().unwrap();
            outcome.requests += requests;
            outcome.lost += lost;
            outcome.double += double;
            outcome.wrong += wrong;
        }
    });
    outcome.out_of_order = out_of_order.load(Ordering::Relaxed);
    outcome.switches = tier.switch().counts().switches;
    // The smallest setup: all threads except one must park.
    tier.switch().change(threading("SIB1")).unwrap();
    for _ in 0..30_000 {
        let counts = tier.switch().thread_counts().unwrap();
        outcome.not_parked = counts.threads - counts.parked - 1 + counts.open;
        if outcome.not_parked == 0 {
            break;
        }
        // Wait for threads to park.
        thread::sleep(Duration::from_millis(1));
    }
    tier.stop().unwrap();
    servers.into_iter().for_each(|server| _ = server.stop().unwrap());
    outcome
}

#[test]
fn requests_end_once_and_in_order_under_any_setups() {
    for seed in 1..=3 {
        let outcome = run(seed, Duration::from_millis(3), Duration::from_millis(700));
        assert!(outcome.is_clean() && outcome.switches > 50, "seed {seed}: {outcome:?}");
    }
}

/// Prints the outcome of ten minutes, or of `LEEWARD_SWITCH_SECONDS` seconds.
#[test]
#[ignore = "ten minutes"]
fn ten_minutes_of_switches() {
    let seconds = std::env::var("LEEWARD_SWITCH_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    let outcome = run(1, Duration::from_millis(50), Duration::from_secs(seconds));
    let Outcome { requests, switches, lost, double, wrong, out_of_order, not_parked } = outcome;
    println!(
        "{seconds} s, {switches} switches, {requests} requests: {lost} lost, {double} double, {wrong} wrong, {out_of_order} out of order, {not_parked} threads not parked"
    );
    assert!(outcome.is_clean());
}
