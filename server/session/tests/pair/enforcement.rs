//! Credits bind. The server rejects calls without credit, then reads the connection more and more
//! rarely, then closes it, at no cost for other clients. A client within its windows is unaffected.
//! The rule itself is tested in the library.

use crate::support::{PairExt, call, encode, fragmenting_wire, pair, pair_with, register, relaxed_slo};
use leeward_core::params::RawParam;
use leeward_core::registry::Environment;
use leeward_core::units::{Nanos, Time};
use leeward_pair::{ClientId, Pair, PairConfig, RequestOutcome, Work, echo};

#[test]
fn honest_clients_are_never_refused() {
    for demand in ["speculation", "synchronization"] {
        // Makes windows swing: a missed objective now and then, and a pool that grows fast.
        let params = [
            ("demand", RawParam::Text(demand.into())),
            ("alpha", RawParam::Number(1.0)),
            ("beta", RawParam::Number(0.5)),
        ];
        let environment = Environment::new(1, Nanos::from_micros(100), Nanos::from_millis(1));
        let config = PairConfig { wire: fragmenting_wire(), workers: 2, ..PairConfig::default() };
        let mut pair = pair_with("breakwater", &params, environment, config, echo(Nanos::from_micros(30)));
        let mut clients: Vec<ClientId> = (0..20).map(|_| pair.connect()).collect();
        let mut gone = Vec::new();
        // Random bursts and pauses, and clients that come and go.
        for _ in 0..1_000 {
            for client in &mut clients {
                if pair.rng().one_in(4) {
                    let burst = pair.rng().below(12);
                    for _ in 0..burst {
                        pair.submit(*client, b"x");
                    }
                }
                if pair.rng().one_in(2_000) {
                    pair.close(*client);
                    gone.push(std::mem::replace(client, pair.connect()));
                }
            }
            let pause = pair.rng().below(400_000);
            pair.run_for(Nanos(pause));
        }
        pair.wait_until("what is under way has its end", |pair| {
            clients.iter().all(|client| pair.open_requests(*client) == 0)
        });
        assert!(!gone.is_empty());
        let completed = |client: &ClientId| {
            pair.outcomes(*client).iter().flatten().filter(|end| matches!(end, RequestOutcome::Completed(_))).count()
        };
        assert!(clients.iter().map(completed).sum::<usize>() > 1_000);
        clients.iter().for_each(|client| pair.close(*client));
        pair.assert_settled();
        let counts = pair.counts();
        assert_eq!(counts.without_credit, 0, "{counts:?}");
    }
}

/// A client that sends as if it had a window of `outstanding`. The tests reconnect it after each
/// close.
struct AbusiveClient {
    client: ClientId,
    outstanding: u64,
    calls: u64,
}

impl AbusiveClient {
    fn new(pair: &mut Pair, outstanding: u64) -> Self {
        let client = pair.connect_raw();
        pair.send_frame(client, &register());
        AbusiveClient { client, outstanding, calls: 0 }
    }

    /// Sends as many calls as its own limit permits. Returns the last frame received, once the
    /// server has closed the connection.
    fn step(&mut self, pair: &mut Pair) -> Option<String> {
        while self.calls < pair.answers(self.client) + self.outstanding {
            self.calls += 1;
            pair.send_frame(self.client, &call(self.calls, b""));
        }
        if !pair.is_eof(self.client) {
            return None;
        }
        let last_frame = std::iter::from_fn(|| pair.try_receive(self.client)).last();
        pair.close(self.client);
        last_frame
    }
}

#[test]
fn a_client_over_its_credits_is_rejected_then_slowed_then_disconnected() {
    let config = PairConfig { wire: fragmenting_wire(), ..PairConfig::default() };
    let mut pair = pair("breakwater", config, echo(Nanos::from_micros(10)));
    let mut abuser = AbusiveClient::new(&mut pair, 100);
    let last = loop {
        assert!(pair.now() < Time(30_000_000_000), "never sent away");
        if let Some(last) = abuser.step(&mut pair) {
            break last;
        }
        pair.run_for(Nanos::from_micros(50));
    };
    assert!(last.starts_with("Error") && last.contains("Unexpected") && last.contains("without credit"), "{last}");
    pair.assert_settled();
    let counts = pair.counts();
    assert!(counts.without_credit > 0 && counts.without_credit <= counts.rejected, "{counts:?}");
    // Calls without credit do not reach the controller; of the others, at most one window at a
    // time.
    assert!(counts.completed > 0, "{counts:?}");
    pair.assert_serving();
}

#[test]
fn a_paused_client_is_not_read() {
    let mut pair = pair("breakwater", PairConfig::default(), echo(Nanos::from_micros(10)));
    let client = pair.connect_raw();
    pair.send_frame(client, &register());
    let burst: Vec<u8> = (1..=2_000).flat_map(|request| encode(&call(request, b""))).collect();
    pair.send_bytes(client, &burst);
    pair.wait_until("its first pause", |pair| pair.counts().without_credit >= 65);
    // The pause began inside bytes that were read already; the rest of them waits too. Each pause
    // lets one call through and the next is longer, so nearly none of the two thousand calls is
    // handled.
    let frames: Vec<String> = std::iter::from_fn(|| pair.receive(client)).collect();
    assert!(frames.last().unwrap().starts_with("Error"), "{:?}", frames.last());
    pair.close(client);
    pair.assert_settled();
    assert!(pair.counts().received < 200, "{:?}", pair.counts());
}

const RTT: Nanos = Nanos::from_millis(1);
/// Short enough that the pool stays small beside an abusive client's calls.
const SLO: Nanos = Nanos::from_millis(20);

/// A client with one request at a time and a think time in between.
struct ThinkTimeClient {
    client: ClientId,
    asked: u64,
    until: Time,
}

impl ThinkTimeClient {
    fn step(&mut self, pair: &mut Pair) -> u64 {
        let frames: Vec<String> = std::iter::from_fn(|| pair.try_receive(self.client)).collect();
        let answered = frames.iter().any(|frame| frame.starts_with("Response") || frame.starts_with("Drop"));
        if answered {
            self.until = pair.now() + Nanos::from_millis(6);
        }
        if pair.answers(self.client) == self.asked && self.until <= pair.now() && pair.window(self.client) != Some(0) {
            self.asked += 1;
            pair.send_frame(self.client, &call(self.asked, b""));
        }
        frames.iter().filter(|frame| frame.starts_with("Response")).count() as u64
    }
}

/// Answers to four think-time clients within half a second, with or without an abusive client.
fn goodput(pair: &mut Pair, with_abuser: bool) -> u64 {
    let mut clients: Vec<ThinkTimeClient> =
        (0..4).map(|_| ThinkTimeClient { client: pair.connect_registered(), asked: 0, until: pair.now() }).collect();
    let mut abuser = with_abuser.then(|| AbusiveClient::new(pair, 200));
    let end = pair.now() + Nanos::from_millis(500);
    let mut good = 0;
    while pair.now() < end {
        good += clients.iter_mut().map(|client| client.step(pair)).sum::<u64>();
        if let Some(one) = &mut abuser
            && one.step(pair).is_some()
        {
            abuser = Some(AbusiveClient::new(pair, 200));
        }
        pair.run_for(Nanos::from_micros(100));
    }
    clients.iter().for_each(|client| pair.close(client.client));
    if let Some(one) = abuser {
        pair.close(one.client);
    }
    pair.assert_no_violation();
    good
}

#[test]
fn an_abusive_client_does_not_slow_honest_clients() {
    // The clients need about half of the worker. The abusive client's 200 unanswered calls, if
    // admitted, would delay each request by 200 ms.
    let environment = Environment::new(1, RTT, SLO);
    let mut pair = pair_with("breakwater", &[], environment, PairConfig::default(), echo(Nanos::from_millis(1)));
    let alone = goodput(&mut pair, false);
    pair.assert_settled();
    let before = pair.counts();
    let with_abuser = goodput(&mut pair, true);
    assert!(pair.counts().without_credit - before.without_credit > 50, "{:?}", pair.counts());
    assert!(alone > 50, "{alone}");
    assert!(with_abuser as f64 >= 0.8 * alone as f64, "{with_abuser} answers beside a cheater, {alone} without");
    pair.assert_settled();
}

#[test]
fn without_credits_the_bound_on_unanswered_calls_remains() {
    let mut first = true;
    let handler = move |_: &[u8], _: &mut _| {
        let service = if std::mem::take(&mut first) { Nanos::from_millis(200) } else { Nanos(100) };
        Work::Result(service, Vec::new())
    };
    let mut pair = pair_with("none", &[], relaxed_slo(), PairConfig::default(), Box::new(handler));
    let client = pair.connect_raw();
    // One read brings more calls than a connection may have unanswered: a long call makes the
    // server's buffer grow first.
    pair.send_frame(client, &register());
    let mut burst = encode(&call(1, &[0; 200_000]));
    burst.extend((2..=2_000).flat_map(|request| encode(&call(request, b""))));
    pair.send_bytes(client, &burst);
    pair.run_for(Nanos::from_millis(100));
    assert_eq!(pair.counts().received, 256, "{:?}", pair.counts());
    assert!(pair.receive(client).unwrap().starts_with("Welcome"));
    for _ in 0..2_000 {
        assert!(pair.receive(client).unwrap().starts_with("Response"));
    }
    pair.close(client);
    pair.assert_settled();
    assert_eq!(pair.counts().without_credit, 0);
}
