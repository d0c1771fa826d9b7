//! Parts that the tests share: pairs of every controller, and waiting in virtual time.

use crate::DATAGRAMS;
use leeward_core::params::{Params, RawParam};
use leeward_core::registry::Environment;
use leeward_core::units::Nanos;
pub(crate) use leeward_pair::frames::{call, encode, encode_version, register};
use leeward_pair::{ClientId, Handler, Pair, PairConfig, WireModel, echo};

/// Longer than anything that is waited for.
pub(crate) const TIMEOUT: Nanos = Nanos::from_secs(30);

/// An objective so long that nothing is overload unless a test wants it.
pub(crate) fn relaxed_slo() -> Environment {
    Environment::new(1, Nanos::from_micros(100), Nanos::from_secs(10))
}

/// A wire that cuts what it carries into pieces, some of them of single bytes.
pub(crate) fn fragmenting_wire() -> WireModel {
    let (delay, jitter) = (Nanos::from_micros(20), Nanos::from_micros(30));
    WireModel { delay, jitter, chunk_max: 90, buffer_max: 64 * 1024 }
}

/// A pair of a controller with the default parameters.
pub(crate) fn pair(controller: &str, config: PairConfig, handler: Handler) -> Pair {
    pair_with(controller, &[], relaxed_slo(), config, handler)
}

/// A pair of a controller with these parameters, in these surroundings.
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

/// An echo behind a wire that chops.
pub(crate) fn start(controller: &str) -> Pair {
    let config = PairConfig { wire: fragmenting_wire(), ..PairConfig::default() };
    pair(controller, config, echo(Nanos::from_micros(10)))
}

/// Questions of tests to a pair besides those that a pair answers.
pub(crate) trait PairExt {
    /// A raw client that has been welcomed.
    fn connect_registered(&mut self) -> ClientId;
    /// The next frame that a raw client hears; `None` at the end of its stream.
    fn receive(&mut self, client: ClientId) -> Option<String>;
    /// The next answer that a raw client hears, credits and pongs skipped.
    fn receive_answer(&mut self, client: ClientId) -> Option<String>;
    /// Calls as soon as there is a credit for it, with nothing else unanswered, and takes the answer.
    fn call_with_credit(&mut self, client: ClientId, request: u64, payload: &[u8]) -> String;
    /// A new raw client says these bytes, ends its half, and hears the rest of the connection.
    fn exchange(&mut self, bytes: &[u8]) -> Vec<String>;
    /// Runs until this holds.
    fn wait_until(&mut self, what: &str, holds: impl Fn(&Pair) -> bool);
    /// All clients have gone: nothing is left of them, and each request has had one end.
    fn assert_settled(&mut self);
    /// The server still serves.
    fn assert_serving(&mut self);
    /// Nothing has happened that must not.
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
        let mut heard = None;
        let came = self.run_while(TIMEOUT, |pair| {
            heard = heard.take().or_else(|| pair.try_receive(client));
            heard.is_none() && !pair.is_eof(client)
        });
        self.assert_no_violation();
        assert!(came, "no end, and nothing to hear");
        heard.or_else(|| self.try_receive(client))
    }

    fn receive_answer(&mut self, client: ClientId) -> Option<String> {
        loop {
            let heard = self.receive(client)?;
            if !heard.starts_with("Credit") && !heard.starts_with("Pong") {
                return Some(heard);
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
        let heard = std::iter::from_fn(|| self.receive(client)).collect();
        self.close(client);
        heard
    }

    fn wait_until(&mut self, what: &str, holds: impl Fn(&Pair) -> bool) {
        let came = self.run_while(TIMEOUT, |pair| !holds(pair));
        self.assert_no_violation();
        assert!(came, "never: {what}: {:?} {:?}", self.counts(), self.gauges());
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
