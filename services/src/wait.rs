//! A service that sends the argument back after a delay, without keeping a core busy.
//!
//! It stands for a leaf that waits elsewhere, for a disk or another machine. Tier benchmarks use it
//! where the tier's threads must be the bottleneck.

use crate::arguments::{Argument, Kind, UnsupportedPolicy, Values};
use crate::backend::{Backend, Bottleneck, InProcessService};
use crate::definition::{PrepareError, Progress, Requests, ServiceDefinition, Target};
use crate::echo::EchoRequests;
use leeward_core::units::UnitError;
use leeward_engine::TaskTimer;
use leeward_rpc::generator::RequestGenerator;
use leeward_rpc::server::{Builder, OwnedRequest, Server, ServerError};
use leeward_workload::ServiceTime;
use leeward_workload::rng::{Purpose, Rng};
use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, Mutex, PoisonError};

/// The delay of each request.
const TIME: Argument = Argument {
    name: "wait-time",
    value_name: "TIME",
    help: "Waiting time of each request: const:, exp:, bimodal: or lognormal: and a mean",
    kind: Kind::Checked(|text| ServiceTime::parse(text).map(|_| ()).map_err(|error| error.to_string())),
    default: Some("const:50us"),
    unsupported: UnsupportedPolicy::Refused,
};

/// The waiting service in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct WaitDefinition;

impl ServiceDefinition for WaitDefinition {
    fn name(&self) -> &'static str {
        "wait"
    }

    fn summary(&self) -> &'static str {
        "Sends the argument back after a while, without keeping a core busy"
    }

    fn arguments(&self) -> &'static [Argument] {
        &[TIME]
    }

    fn open(&self, values: &Values, _: usize, _: &Progress<'_>) -> Result<Box<dyn Backend>, PrepareError> {
        let times = ServiceTime::parse(values.text(TIME.name).unwrap_or("const:50us")).map_err(PrepareError::input)?;
        Ok(Box::new(WaitBackend { times }))
    }

    fn requests_help(&self) -> &'static str {
        "bytes to send back after a while: wait"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        match text {
            "wait" => Ok(Arc::new(WaitRequests)),
            _ => Err(UnitError { written: text.chars().take(40).collect(), expected: "`wait`" }),
        }
    }
}

/// A leaf that waits.
#[derive(Clone, Debug)]
pub struct WaitBackend {
    /// Delays of requests, drawn one by one in the same order after every start.
    pub times: ServiceTime,
}

impl Backend for WaitBackend {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        let clock = TaskTimer::new()?;
        let times = self.times.clone();
        let draws = Arc::new(Mutex::new(Rng::new(1, Purpose::Service)));
        let timer_source = clock.clone();
        let handler = move |request: OwnedRequest| {
            let span = times.draw(&mut draws.lock().unwrap_or_else(PoisonError::into_inner));
            let clock = clock.clone();
            async move {
                clock.sleep(span).await;
                Ok(request.payload)
            }
        };
        builder.poll_also(0, timer_source).start_async(address, handler)
    }
}

/// Requests of eight bytes each, which the server sends back.
#[derive(Clone, Copy, Debug)]
struct WaitRequests;

impl Display for WaitRequests {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("wait")
    }
}

impl Requests for WaitRequests {
    fn prepare(&self, _: &Target<'_>) -> Result<Option<Arc<dyn RequestGenerator>>, PrepareError> {
        Ok(Some(Arc::new(EchoRequests)))
    }

    fn prepare_in_process(&self, progress: &Progress<'_>) -> Result<InProcessService, PrepareError> {
        let backend = WaitDefinition.open(&Values::defaults(&[TIME]), 1, progress)?;
        let requests = Some(Arc::new(EchoRequests) as Arc<dyn RequestGenerator>);
        Ok(InProcessService {
            backend: backend.into(),
            generator: requests,
            description: None,
            bottleneck: Bottleneck::Cores,
        })
    }
}
