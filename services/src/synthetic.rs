//! Keeps a core busy for as long as the request says: the papers' workload. The client draws the service time, so that
//! the same seed gives the same work to every server.

use crate::arguments::Values;
use crate::case::{Case, CaseError, Progress, Requests, Target};
use crate::served::{Backend, Bottleneck, Served};
use leeward_core::units::{Nanos, UnitError};
use leeward_rpc::ask::Ask;
use leeward_rpc::server::{Builder, Failed, Handler, Request, Server, ServerError};
use leeward_runtime::Clock;
use leeward_workload::Service;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// The longest that a request may ask for: a mistake in units should not take a core away for good.
pub const LONGEST: Nanos = Nanos::from_secs(1);

/// The synthetic service. Argument: nanoseconds, 8 bytes, little-endian. Result: none.
#[derive(Clone, Debug)]
pub struct Synthetic {
    clock: Clock,
}

impl Synthetic {
    /// A service with a clock of its own.
    pub fn new() -> Self {
        Synthetic { clock: Clock::start() }
    }
}

impl Default for Synthetic {
    fn default() -> Self {
        Self::new()
    }
}

impl Handler for Synthetic {
    fn call(&self, request: &Request<'_>, _: &mut Vec<u8>) -> Result<(), Failed> {
        let began = self.clock.now();
        let span = asked_for(request.payload)?;
        while self.clock.now().since(began) < span {
            std::hint::spin_loop();
        }
        Ok(())
    }
}

/// The span that an argument asks for.
fn asked_for(payload: &[u8]) -> Result<Nanos, Failed> {
    let bytes = payload.first_chunk::<8>().ok_or_else(|| {
        Failed::Because("expected at least 8 bytes: the service time in nanoseconds, little-endian".into())
    })?;
    let span = Nanos(u64::from_le_bytes(*bytes));
    if span > LONGEST {
        return Err(Failed::Because(format!("a service time of {span}; accepted: up to {LONGEST}")));
    }
    Ok(span)
}

/// The synthetic service in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct SyntheticCase;

impl Case for SyntheticCase {
    fn name(&self) -> &'static str {
        "synthetic"
    }

    fn summary(&self) -> &'static str {
        "Keeps a core busy for as long as the request says"
    }

    fn open(&self, _: &Values, _: usize, _: &Progress<'_>) -> Result<Box<dyn Backend>, CaseError> {
        Ok(Box::new(SyntheticBackend))
    }

    fn requests_help(&self) -> &'static str {
        "How long each request keeps a core busy: exp:, const:, bimodal: or lognormal: and a mean"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        Service::parse(text).map(|times| Arc::new(Times { times, text: text.into() }) as Arc<dyn Requests>)
    }
}

struct SyntheticBackend;

impl Backend for SyntheticBackend {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        builder.start(address, Synthetic::new())
    }
}

/// Service times, and how they were written.
#[derive(Clone, Debug)]
struct Times {
    times: Service,
    text: String,
}

impl Display for Times {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Requests for Times {
    fn times(&self) -> Option<&Service> {
        Some(&self.times)
    }

    fn prepare(&self, _: &Target<'_>) -> Result<Option<Arc<dyn Ask>>, CaseError> {
        Ok(None)
    }

    fn both_ends(&self, _: &Progress<'_>) -> Result<Served, CaseError> {
        Ok(both_ends())
    }
}

/// Both ends, whatever the service times.
pub fn both_ends() -> Served {
    Served { backend: Arc::new(SyntheticBackend), ask: None, words: None, bottleneck: Bottleneck::Cores }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_a_span_within_reason() {
        assert_eq!(asked_for(&10_000u64.to_le_bytes()), Ok(Nanos::from_micros(10)));
        assert_eq!(asked_for(&[1, 0, 0, 0, 0, 0, 0, 0, 9, 9]), Ok(Nanos(1)));
        assert!(asked_for(&[1, 2, 3]).is_err());
        assert!(asked_for(&u64::MAX.to_le_bytes()).is_err());
    }
}
