//! A window per client, moved by the latency at the client: one more per window of responses within
//! the objective, halved otherwise (the feedback loop of ORCA-like client libraries). The server
//! takes no part. Does not contain rates ([`super::seda`]).

use leeward_core::client::params::{CLIENT_DELAY, CLIENT_QUEUE, MAX_OUTSTANDING, client_config};
use leeward_core::client::{ClientHalf, ClientParts, Gate, Reply};
use leeward_core::none::uncontrolled_server;
use leeward_core::params::{ParamError, ParamKind, ParamSpec, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::Outcome;
use leeward_core::units::{Nanos, Time};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "window",
    summary: "client window: additive increase while responses are in time, multiplicative decrease otherwise",
    source: "Kuzmaul et al., ATC'19 (ORCA), as Breakwater §2.2 implements it",
    params: &[
        ParamSpec {
            name: "target",
            kind: ParamKind::ANY_DURATION,
            default: "the SLO",
            doc: "a response within this time of its request's departure is in time",
            tuning_values: &["40us", "80us", "120us", "200us", "1ms"],
        },
        ParamSpec {
            name: "increase",
            kind: ParamKind::Number { min: 0.0001, max: 1000.0 },
            default: "1",
            doc: "the window grows by this per window of responses in time",
            tuning_values: &["0.1", "0.5", "1"],
        },
        ParamSpec {
            name: "decrease",
            kind: ParamKind::Number { min: 0.01, max: 0.99 },
            default: "0.5",
            doc: "the window is multiplied by this after a late response or a drop, at most once per round trip",
            tuning_values: &["0.5", "0.7", "0.9"],
        },
        ParamSpec {
            name: "initial",
            kind: ParamKind::Count { min: 1, max: 65_536 },
            default: "1",
            doc: "the window of a new client",
            tuning_values: &[],
        },
        ParamSpec {
            name: "max_window",
            kind: ParamKind::Count { min: 1, max: 65_536 },
            default: "64",
            doc: "the window stays at or below this",
            tuning_values: &["4", "16", "64"],
        },
        CLIENT_QUEUE,
        CLIENT_DELAY,
        MAX_OUTSTANDING,
    ],
    build_server: |_, environment| Ok(uncontrolled_server(environment.cores)),
    build_client: |params, environment| {
        let half = Client::new(params, environment)?;
        Ok(ClientParts { half: Box::new(half), config: client_config(params, environment.slo) })
    },
};

#[derive(Debug)]
struct Client {
    target: Nanos,
    increase: f64,
    decrease: f64,
    max_window: f64,
    window: f64,
    decreased: Option<Time>,
}

impl Client {
    fn new(params: &Params, environment: &Environment) -> Result<Self, ParamError> {
        let initial = params.count("initial", 1);
        let max_window = params.count("max_window", 64);
        if initial > max_window {
            return Err(ParamError::Conflict(format!(
                "`initial` ({initial}) must not be above `max_window` ({max_window})"
            )));
        }
        Ok(Client {
            target: params.duration("target", environment.slo),
            increase: params.number("increase", 1.0),
            decrease: params.number("decrease", 0.5),
            max_window: max_window as f64,
            window: initial as f64,
            decreased: None,
        })
    }
}

impl ClientHalf for Client {
    fn gate(&mut self, _: Time, outstanding: u32) -> Gate {
        if outstanding < self.window as u32 { Gate::Open } else { Gate::Closed }
    }

    fn reply(&mut self, event: &Reply) {
        if event.outcome == Outcome::Completed && event.round_trip <= self.target {
            self.window = (self.window + self.increase / self.window).min(self.max_window);
            return;
        }
        // A request sent before the last decrease says nothing about the current window.
        let left_before = self.decreased.is_some_and(|decreased| event.now.since(decreased) < event.round_trip);
        if !left_before {
            // Never below one: a client without a window would never learn that the overload is
            // over.
            self.window = (self.window * self.decrease).max(1.0);
            self.decreased = Some(event.now);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_core::params::RawParam;
    use leeward_core::server::Feedback;

    fn client() -> Client {
        let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
        Client::new(&Params::default(), &environment).unwrap()
    }

    fn reply(client: &mut Client, at_us: u64, outcome: Outcome, round_trip_us: u64) {
        client.reply(&Reply {
            now: Time::ZERO + Nanos::from_micros(at_us),
            outcome,
            round_trip: Nanos::from_micros(round_trip_us),
            feedback: Feedback::NONE,
        });
    }

    fn grow(client: &mut Client, from_us: u64, replies: u64) {
        (0..replies).for_each(|step| reply(client, from_us + step * 20, Outcome::Completed, 20));
    }

    #[test]
    fn grows_by_about_one_per_window_of_responses() {
        let mut client = client();
        grow(&mut client, 0, 1);
        assert_eq!(client.gate(Time::ZERO, 1), Gate::Open);
        assert_eq!(client.gate(Time::ZERO, 2), Gate::Closed);
        grow(&mut client, 20, 45); // 2 + 3 + … + 9 responses less a few: the window grows meanwhile
        assert!((9.0..10.5).contains(&client.window), "{}", client.window);
    }

    #[test]
    fn one_decrease_per_round_trip() {
        let mut client = client();
        client.window = 32.0;
        // Ten requests that left together return late together.
        (0..10).for_each(|step| reply(&mut client, 1_000 + step, Outcome::Completed, 500));
        assert_eq!(client.window, 16.0);
        reply(&mut client, 1_600, Outcome::Rejected, 20);
        assert_eq!(client.window, 8.0);
    }

    #[test]
    fn recovers_after_heavy_overload() {
        let mut client = client();
        client.window = 64.0;
        (0..1_000).for_each(|step| reply(&mut client, step * 1_000, Outcome::Rejected, 900));
        assert_eq!(client.window, 1.0);
        assert_eq!(client.gate(Time::ZERO, 0), Gate::Open);
        grow(&mut client, 1_000_000, 2_200);
        assert_eq!(client.window, 64.0);
    }

    #[test]
    fn a_window_that_starts_above_its_maximum_is_refused() {
        let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
        let params = Params::read(ALGORITHM.params, &[("initial", RawParam::Integer(65))]).unwrap();
        assert!(Client::new(&params, &environment).unwrap_err().to_string().contains("max_window"));
    }
}
