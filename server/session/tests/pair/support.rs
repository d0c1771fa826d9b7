//! Parts that the tests share: pairs of every controller, and waiting in virtual time.

use crate::DATAGRAMS;
use leeward_core::params::{Params, Raw};
use leeward_core::registry::Environment;
use leeward_core::units::Nanos;
pub(crate) use leeward_pair::frames::{bytes, bytes_in, call, register};
use leeward_pair::{ClientId, Handler, Pair, PairConfig, WireModel, echo};

/// Longer than anything that is waited for.
pub(crate) const LONG: Nanos = Nanos::from_secs(30);

/// An objective so long that nothing is overload unless a test wants it.
pub(crate) fn calm() -> Environment {
    Environment::new(1, Nanos::from_micros(100), Nanos::from_secs(10))
}

/// A wire that cuts what it carries into pieces, some of them of single bytes.
pub(crate) fn choppy() -> WireModel {
    let (delay, jitter) = (Nanos::from_micros(20), Nanos::from_micros(30));
    WireModel { delay, jitter, chunk_max: 90, room: 64 * 1024 }
}

/// A pair of a controller with the default parameters.
pub(crate) fn pair(controller: &str, config: PairConfig, handler: Handler) -> Pair {
    pair_with(controller, &[], calm(), config, handler)
}

/// A pair of a controller with these parameters, in these surroundings.
pub(crate) fn pair_with(
    controller: &str,
    params: &[(&str, Raw)],
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
    let config = PairConfig { wire: choppy(), ..PairConfig::default() };
    pair(controller, config, echo(Nanos::from_micros(10)))
}

/// Questions of tests to a pair besides those that a pair answers.
pub(crate) trait Waits {
    /// A raw client that has been welcomed.
    fn registered(&mut self) -> ClientId;
    /// The next frame that a raw client hears; `None` at the end of its stream.
    fn hear(&mut self, client: ClientId) -> Option<String>;
    /// The next answer that a raw client hears, credits and pongs skipped.
    fn answer(&mut self, client: ClientId) -> Option<String>;
    /// Calls as soon as there is a credit for it, with nothing else unanswered, and takes the answer.
    fn ask(&mut self, client: ClientId, request: u64, payload: &[u8]) -> String;
    /// A new raw client says these bytes, ends its half, and hears the rest of the connection.
    fn said(&mut self, bytes: &[u8]) -> Vec<String>;
    /// Runs until this holds.
    fn eventually(&mut self, what: &str, holds: impl Fn(&Pair) -> bool);
    /// All clients have gone: nothing is left of them, and each request has had one end.
    fn is_settled(&mut self);
    /// The server still serves.
    fn is_well(&mut self);
    /// Nothing has happened that must not.
    fn is_lawful(&self);
}

impl Waits for Pair {
    fn registered(&mut self) -> ClientId {
        let client = self.connect_raw();
        self.say(client, &register());
        assert!(self.hear(client).unwrap().starts_with("Welcome"));
        client
    }

    fn hear(&mut self, client: ClientId) -> Option<String> {
        let mut heard = None;
        let came = self.run_while(LONG, |pair| {
            heard = heard.take().or_else(|| pair.heard(client));
            heard.is_none() && !pair.is_over(client)
        });
        self.is_lawful();
        assert!(came, "no end, and nothing to hear");
        heard.or_else(|| self.heard(client))
    }

    fn answer(&mut self, client: ClientId) -> Option<String> {
        loop {
            let heard = self.hear(client)?;
            if !heard.starts_with("Credit") && !heard.starts_with("Pong") {
                return Some(heard);
            }
        }
    }

    fn ask(&mut self, client: ClientId, request: u64, payload: &[u8]) -> String {
        while self.window(client) == Some(0) {
            self.hear(client).unwrap();
        }
        self.say(client, &call(request, payload));
        self.answer(client).unwrap()
    }

    fn said(&mut self, bytes: &[u8]) -> Vec<String> {
        let client = self.connect_raw();
        self.say_bytes(client, bytes);
        let heard = std::iter::from_fn(|| self.hear(client)).collect();
        self.close(client);
        heard
    }

    fn eventually(&mut self, what: &str, holds: impl Fn(&Pair) -> bool) {
        let came = self.run_while(LONG, |pair| !holds(pair));
        self.is_lawful();
        assert!(came, "never: {what}: {:?} {:?}", self.counts(), self.gauges());
    }

    fn is_settled(&mut self) {
        self.eventually("all have gone", |pair| pair.counts().connections == 0);
        self.settled().unwrap();
        let (counts, gauges) = (self.counts(), self.gauges());
        assert_eq!((gauges.credits_issued.unwrap_or(0), gauges.sessions.unwrap_or(0)), (0, 0));
        assert_eq!(counts.received, counts.completed + counts.dropped + counts.abandoned, "{counts:?}");
    }

    fn is_well(&mut self) {
        let client = self.registered();
        self.say(client, &call(1, b"are you well"));
        assert!(self.answer(client).unwrap().starts_with("Response"));
        self.close(client);
    }

    fn is_lawful(&self) {
        assert_eq!(self.violation(), None);
    }
}
