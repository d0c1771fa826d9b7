//! A service that keeps a core busy for the requested time: the papers' workload.
//!
//! The client draws the service time, so that the same seed gives every server the same work.

use crate::arguments::Values;
use crate::backend::{Backend, Bottleneck, InProcessService};
use crate::definition::{PrepareError, Progress, Requests, ServiceDefinition, Target};
use leeward_core::units::{Nanos, UnitError};
use leeward_rpc::generator::RequestGenerator;
use leeward_rpc::server::{Builder, Handler, HandlerError, Request, Server, ServerError};
use leeward_runtime::Clock;
use leeward_workload::ServiceTime;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// Longest accepted service time: a mistake in units must not block a core for good.
pub const SERVICE_TIME_MAX: Nanos = Nanos::from_secs(1);

/// The synthetic service.
///
/// Argument: service time in nanoseconds, 8 bytes, little-endian. Result: empty.
#[derive(Clone, Debug)]
pub struct Synthetic {
    clock: Clock,
}

impl Synthetic {
    /// Creates a service with its own clock.
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
    fn call(&self, request: &Request<'_>, _: &mut Vec<u8>) -> Result<(), HandlerError> {
        let began = self.clock.now();
        let span = requested_time(request.payload)?;
        while self.clock.now().since(began) < span {
            std::hint::spin_loop();
        }
        Ok(())
    }
}

/// Parses the requested service time.
fn requested_time(payload: &[u8]) -> Result<Nanos, HandlerError> {
    let bytes = payload.first_chunk::<8>().ok_or_else(|| {
        HandlerError::Message("expected at least 8 bytes: the service time in nanoseconds, little-endian".into())
    })?;
    let span = Nanos(u64::from_le_bytes(*bytes));
    if span > SERVICE_TIME_MAX {
        return Err(HandlerError::Message(format!("a service time of {span}; accepted: up to {SERVICE_TIME_MAX}")));
    }
    Ok(span)
}

/// The synthetic service in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct SyntheticDefinition;

impl ServiceDefinition for SyntheticDefinition {
    fn name(&self) -> &'static str {
        "synthetic"
    }

    fn summary(&self) -> &'static str {
        "Keeps a core busy for as long as the request says"
    }

    fn open(&self, _: &Values, _: usize, _: &Progress<'_>) -> Result<Box<dyn Backend>, PrepareError> {
        Ok(Box::new(SyntheticBackend))
    }

    fn requests_help(&self) -> &'static str {
        "How long each request keeps a core busy: exp:, const:, bimodal: or lognormal: and a mean"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        ServiceTime::parse(text)
            .map(|times| Arc::new(SyntheticRequests { service_times: times, text: text.into() }) as Arc<dyn Requests>)
    }
}

struct SyntheticBackend;

impl Backend for SyntheticBackend {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        builder.start(address, Synthetic::new())
    }
}

/// Service times, and their text.
#[derive(Clone, Debug)]
struct SyntheticRequests {
    service_times: ServiceTime,
    text: String,
}

impl Display for SyntheticRequests {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Requests for SyntheticRequests {
    fn service_times(&self) -> Option<&ServiceTime> {
        Some(&self.service_times)
    }

    fn prepare(&self, _: &Target<'_>) -> Result<Option<Arc<dyn RequestGenerator>>, PrepareError> {
        Ok(None)
    }

    fn prepare_in_process(&self, _: &Progress<'_>) -> Result<InProcessService, PrepareError> {
        Ok(in_process())
    }
}

/// Returns server and clients in this process; requests carry their service times.
pub fn in_process() -> InProcessService {
    InProcessService {
        backend: Arc::new(SyntheticBackend),
        generator: None,
        description: None,
        bottleneck: Bottleneck::Cores,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_a_bounded_duration() {
        assert_eq!(requested_time(&10_000u64.to_le_bytes()), Ok(Nanos::from_micros(10)));
        assert_eq!(requested_time(&[1, 0, 0, 0, 0, 0, 0, 0, 9, 9]), Ok(Nanos(1)));
        assert!(requested_time(&[1, 2, 3]).is_err());
        assert!(requested_time(&u64::MAX.to_le_bytes()).is_err());
    }
}
