//! A service outside of Leeward in the catalogue: its complete definition, served and loaded, with
//! checked answers.
//!
//! Nothing outside this file knows the service.

use leeward_catalogue::Catalogue;
use leeward_core::none;
use leeward_core::params::Params;
use leeward_core::registry::Environment;
use leeward_core::units::{Nanos, UnitError};
use leeward_load::{LoadConfig, LoadReport, Plan};
use leeward_rpc::generator::RequestGenerator;
use leeward_rpc::server::{Builder, Handler, HandlerError, Request, Server, ServerError};
use leeward_rpc::wire::Method;
use leeward_runtime::IdlePolicy;
use leeward_services::arguments::{Argument, Kind, UnsupportedPolicy, Value, Values};
use leeward_services::backend::{Backend, Bottleneck, InProcessService};
use leeward_services::definition::{PrepareError, Progress, Requests, ServiceDefinition, Target};
use leeward_workload::ServiceTime;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Adds a number to each byte.
#[derive(Clone, Copy)]
struct Shift(u8);

impl Handler for Shift {
    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
        reply.extend(request.payload.iter().map(|byte| byte.wrapping_add(self.0)));
        Ok(())
    }
}

impl Backend for Shift {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        builder.start(address, *self)
    }
}

#[derive(Debug)]
struct ShiftDefinition;

const BY: Argument = Argument {
    name: "by",
    value_name: "N",
    help: "Number to add to each byte",
    kind: Kind::Count { least: 1, most: 255 },
    default: Some("1"),
    unsupported: UnsupportedPolicy::Refused,
};

impl ServiceDefinition for ShiftDefinition {
    fn name(&self) -> &'static str {
        "shift"
    }

    fn summary(&self) -> &'static str {
        "Adds a number to each byte"
    }

    fn arguments(&self) -> &'static [Argument] {
        &[BY]
    }

    fn open(&self, values: &Values, _: usize, _: &Progress<'_>) -> Result<Box<dyn Backend>, PrepareError> {
        let by = values.count(BY.name).and_then(|by| u8::try_from(by).ok());
        by.map(|by| Box::new(Shift(by)) as Box<dyn Backend>).ok_or_else(|| PrepareError::input("--by is missing"))
    }

    fn requests_help(&self) -> &'static str {
        "bytes to add 1 to: shift"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        match text {
            "shift" => Ok(Arc::new(Bytes)),
            _ => Err(UnitError { written: text.into(), expected: "`shift`" }),
        }
    }
}

/// Requests that expect each byte plus one.
#[derive(Clone, Copy, Debug)]
struct Bytes;

impl Display for Bytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("shift")
    }
}

impl RequestGenerator for Bytes {
    fn generate(&self, random: u64, payload: &mut Vec<u8>) -> Method {
        payload.extend_from_slice(&random.to_le_bytes());
        Method(0)
    }

    fn is_answer(&self, random: u64, _: Method, answer: &[u8]) -> bool {
        answer == random.to_le_bytes().map(|byte| byte.wrapping_add(1))
    }
}

impl Requests for Bytes {
    fn prepare(&self, _: &Target<'_>) -> Result<Option<Arc<dyn RequestGenerator>>, PrepareError> {
        Ok(Some(Arc::new(*self)))
    }

    fn prepare_in_process(&self, _: &Progress<'_>) -> Result<InProcessService, PrepareError> {
        let requests = Some(Arc::new(*self) as Arc<dyn RequestGenerator>);
        Ok(InProcessService {
            backend: Arc::new(Shift(1)),
            generator: requests,
            description: None,
            bottleneck: Bottleneck::Cores,
        })
    }
}

/// Loads `server` for 100 ms, like `leeward load --service shift --closed 1`.
fn load(server: &Server, requests: &dyn Requests) -> LoadReport {
    let (rtt, slo) = (Nanos::from_micros(10), Nanos::from_millis(10));
    let (address, params) = (server.address(), Params::default());
    let target = Target { address, algorithm: &none::ALGORITHM, params: &params, rtt, slo, encryption: None };
    let config = LoadConfig { ask: requests.prepare(&target).unwrap(), ..LoadConfig::new(address, slo) };
    let (service, duration) = (ServiceTime::Constant(Nanos(1_000)), Nanos::from_millis(100));
    let plan = Plan::Closed { connections: 2, outstanding: 1, service, seed: 1, duration };
    let client = || (none::ALGORITHM.build_client)(&params, &Environment::new(1, rtt, slo));
    leeward_load::run(&config, &plan, client, &AtomicBool::new(false), |_| {}).unwrap().report
}

fn builder() -> Builder {
    Server::builder().idle(IdlePolicy::Block)
}

#[test]
fn a_custom_service_is_served_and_loaded() {
    let catalogue = Catalogue::builtin().with(&ShiftDefinition);
    assert_eq!(catalogue.names().last(), Some(&"shift"));
    let service = catalogue.find("shift").unwrap();
    let requests = catalogue.requests("shift").unwrap();
    assert!(catalogue.requests("shifts").is_err() && requests.service_times().is_none());
    let mut values = Values::defaults(catalogue.arguments());
    let server = service.open(&values, 1, &|_| {}).unwrap().start(builder(), "127.0.0.1:0").unwrap();
    let report = load(&server, &*requests);
    server.stop().unwrap();
    assert!(report.totals.completed > 0 && report.totals.failed == 0, "{:?}", report.totals);
    // With another number to add, the answers are wrong, and the clients notice.
    values.set(BY.name, Value::Count(2));
    let server = service.open(&values, 1, &|_| {}).unwrap().start(builder(), "127.0.0.1:0").unwrap();
    let report = load(&server, &*requests);
    server.stop().unwrap();
    assert!(report.totals.completed == 0 && report.totals.failed > 0, "{:?}", report.totals);
    assert_eq!(report.failures.get("WrongAnswer"), Some(&report.totals.failed));
    assert!(report.violations.is_empty(), "{:?}", report.violations);
}

#[test]
fn a_custom_service_runs_in_one_process_with_its_client() {
    let service =
        Catalogue::builtin().with(&ShiftDefinition).requests("shift").unwrap().prepare_in_process(&|_| {}).unwrap();
    assert!(service.is_measured() && !service.is_lock_bound());
    // Started twice, like the runs of an experiment.
    for _ in 0..2 {
        let server = service.start(builder(), "127.0.0.1:0").unwrap();
        let report = load(&server, &Bytes);
        server.stop().unwrap();
        assert!(report.totals.completed > 0 && report.totals.failed == 0, "{:?}", report.totals);
    }
}
