//! Sends the argument back after a while, without keeping a core busy: a leaf whose time passes elsewhere, as a disk's or another machine's
//! does. Tiers are measured with it where their own threads are to be the bottleneck.

use crate::arguments::{Argument, Elsewhere, Kind, Values};
use crate::case::{Case, CaseError, Progress, Requests, Target};
use crate::echo::Echoes;
use crate::served::{Backend, Bottleneck, Served};
use leeward_core::units::UnitError;
use leeward_engine::AlarmClock;
use leeward_rpc::ask::Ask;
use leeward_rpc::server::{Builder, OwnedRequest, Server, ServerError};
use leeward_workload::Service;
use leeward_workload::rng::{Purpose, Rng};
use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, Mutex, PoisonError};

/// Arguments of the service.
const TIME: Argument = Argument {
    name: "wait-time",
    value_name: "TIME",
    help: "How long each request waits: const:, exp:, bimodal: or lognormal: and a mean",
    kind: Kind::Checked(|text| Service::parse(text).map(|_| ()).map_err(|error| error.to_string())),
    default: Some("const:50us"),
    elsewhere: Elsewhere::Refused,
};

/// The waiting service in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct WaitCase;

impl Case for WaitCase {
    fn name(&self) -> &'static str {
        "wait"
    }

    fn summary(&self) -> &'static str {
        "Sends the argument back after a while, without keeping a core busy"
    }

    fn arguments(&self) -> &'static [Argument] {
        &[TIME]
    }

    fn open(&self, values: &Values, _: usize, _: &Progress<'_>) -> Result<Box<dyn Backend>, CaseError> {
        let times = Service::parse(values.text(TIME.name).unwrap_or("const:50us")).map_err(CaseError::input)?;
        Ok(Box::new(WaitBackend { times }))
    }

    fn requests_help(&self) -> &'static str {
        "bytes to send back after a while: wait"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        match text {
            "wait" => Ok(Arc::new(Waits)),
            _ => Err(UnitError { written: text.chars().take(40).collect(), expected: "`wait`" }),
        }
    }
}

/// A leaf that waits.
#[derive(Clone, Debug)]
pub struct WaitBackend {
    /// Times that its requests wait, drawn anew for each in the same order after every start.
    pub times: Service,
}

impl Backend for WaitBackend {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        let clock = AlarmClock::new()?;
        let times = self.times.clone();
        let draws = Arc::new(Mutex::new(Rng::new(1, Purpose::Service)));
        let guest = clock.clone();
        let handler = move |request: OwnedRequest| {
            let span = times.draw(&mut draws.lock().unwrap_or_else(PoisonError::into_inner));
            let clock = clock.clone();
            async move {
                clock.sleep(span).await;
                Ok(request.payload)
            }
        };
        builder.poll_also(0, guest).start_async(address, handler)
    }
}

/// Asks for eight bytes to be sent back.
#[derive(Clone, Copy, Debug)]
struct Waits;

impl Display for Waits {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("wait")
    }
}

impl Requests for Waits {
    fn prepare(&self, _: &Target<'_>) -> Result<Option<Arc<dyn Ask>>, CaseError> {
        Ok(Some(Arc::new(Echoes)))
    }

    fn both_ends(&self, progress: &Progress<'_>) -> Result<Served, CaseError> {
        let backend = WaitCase.open(&Values::defaults(&[TIME]), 1, progress)?;
        let ask = Some(Arc::new(Echoes) as Arc<dyn Ask>);
        Ok(Served { backend: backend.into(), ask, words: None, bottleneck: Bottleneck::Cores })
    }
}
