//! Shared parts of the tests: pairs of every controller, and waiting in virtual time.

use crate::DATAGRAMS;
use leeward_core::params::{Params, RawParam};
use leeward_core::registry::Environment;
use leeward_core::units::Nanos;
pub(crate) use leeward_pair::frames::{call, encode, encode_version, register};
use leeward_pair::{ClientId, Handler, Pair, PairConfig, WireModel, echo};

/// Longer than every wait of a test.
pub(crate) const TIMEOUT: Nanos = Nanos::from_secs(30);

/// An objective so long that overload only occurs if a test causes it.
pub(crate) fn relaxed_slo() -> Environment {
    Environment::new(1, Nanos::from_micros(100), Nanos::from_secs(10))
}

/// A wire that splits bytes into pieces, some of them single bytes.
pub(crate) fn fragmenting_wire() -> WireModel {
    let (delay, jitter) = (Nanos::from_micros(20), Nanos::from_micros(30));
    WireModel { delay, jitter, chunk_max: 90, buffer_max: 64 * 1024 }
}

/// A pair of a controller with the default parameters.
pub(crate) fn pair(controller: &str, config: PairConfig, handler: Handler) -> Pair {
    pair_with(controller, &[], relaxed_slo(), config, handler)
}

/// A pair of a controller with these parameters, in this environment.
pub(crate) fn pair_with(
    controller: &str,
    params: &[(&str, RawParam)],
    environment: Environment,
    config: PairConfig,
    handler: Handler,
) -> Pair {
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find(controller).unwrap();
    let params: Params = algorithm.params(params).unwrap();
    let config = PairConfig { datagrams: config.datagrams.or(DATAGRAMS), ..config };
    Pair::new(algorithm, &params, environment, config, handler).unwrap()
}

/// An echo server behind a fragmenting wire.
pub(crate) fn start(controller: &str) -> Pair {
    let config = PairConfig { wire: fragmenting_wire(), ..PairConfig::default() };
    pair(controller, config, echo(Nanos::from_micros(10)))
}

/// Steps and checks on a pair, for tests.
pub(crate) trait PairExt {
    /// Connects a raw client and waits for its welcome.
    fn connect_registered(&mut self) -> ClientId;
    /// The next frame that a raw client receives; `None` at the end of its stream.
    fn receive(&mut self, client: ClientId) -> Option<String>;
    /// The next answer that a raw client receives; skips credits and pongs.
    fn receive_answer(&mut self, client: ClientId) -> Option<String>;
    /// Calls as soon as a credit is there, with no other call unanswered, and returns the answer.
    fn call_with_credit(&mut self, client: ClientId, request: u64, payload: &[u8]) -> String;
    /// Sends these bytes from a new raw client, ends its half, and returns all received frames.
    fn exchange(&mut self, bytes: &[u8]) -> Vec<String>;
    /// Runs until this holds.
    fn wait_until(&mut self, what: &str, holds: impl Fn(&Pair) -> bool);
    /// Waits until all clients have gone, and checks that no session is left and each request has
    /// ended once.
    fn assert_settled(&mut self);
    /// Checks that the server still serves.
    fn assert_serving(&mut self);
    /// Checks that no invariant was violated.
    fn assert_no_violation(&self);
}

impl PairExt for Pair {
    fn connect_registered(&mut self) -> ClientId {
        let client = self.connect_raw();
        self.send_frame(client, &register());
        assert!(self.receive(client).unwrap().starts_with("Welcome"));
        client
    }

    fn receive(&mut self, client: ClientId) -> Option<String> {
        let mut frame = None;
        let arrived = self.run_while(TIMEOUT, |pair| {
            frame = frame.take().or_else(|| pair.try_receive(client));
            frame.is_none() && !pair.is_eof(client)
        });
        self.assert_no_violation();
        assert!(arrived, "no end, and nothing to hear");
        frame.or_else(|| self.try_receive(client))
    }

    fn receive_answer(&mut self, client: ClientId) -> Option<String> {
        loop {
            let frame = self.receive(client)?;
            if !frame.starts_with("Credit") && !frame.starts_with("Pong") {
                return Some(frame);
            }
        }
    }

    fn call_with_credit(&mut self, client: ClientId, request: u64, payload: &[u8]) -> String {
        while self.window(client) == Some(0) {
            self.receive(client).unwrap();
        }
        self.send_frame(client, &call(request, payload));
        self.receive_answer(client).unwrap()
    }

    fn exchange(&mut self, bytes: &[u8]) -> Vec<String> {
        let client = self.connect_raw();
        self.send_bytes(client, bytes);
        let frames = std::iter::from_fn(|| self.receive(client)).collect();
        self.close(client);
        frames
    }

    fn wait_until(&mut self, what: &str, holds: impl Fn(&Pair) -> bool) {
        let reached = self.run_while(TIMEOUT, |pair| !holds(pair));
        self.assert_no_violation();
        assert!(reached, "never: {what}: {:?} {:?}", self.counts(), self.gauges());
    }

    fn assert_settled(&mut self) {
        self.wait_until("all have gone", |pair| pair.counts().connections == 0);
        self.check_settled().unwrap();
        let (counts, gauges) = (self.counts(), self.gauges());
        assert_eq!((gauges.credits_issued.unwrap_or(0), gauges.sessions.unwrap_or(0)), (0, 0));
        assert_eq!(counts.received, counts.completed + counts.rejected + counts.abandoned, "{counts:?}");
    }

    fn assert_serving(&mut self) {
        let client = self.connect_registered();
        self.send_frame(client, &call(1, b"are you well"));
        assert!(self.receive_answer(client).unwrap().starts_with("Response"));
        self.close(client);
    }

    fn assert_no_violation(&self) {
        assert_eq!(self.violation(), None);
    }
}
