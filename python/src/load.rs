//! The load generator: one of several that share a schedule, and their merged measurements.

use crate::errors;
use crate::patience::{Progress, Stop, run_in_thread};
use leeward_catalogue::Catalogue;
use leeward_core::params::{Params, RawParam};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::units::{Nanos, Rate, parse_duration};
use leeward_load::{AnswerCheck, LoadConfig, Plan, Polling, Schedule, ServerProtocol, Transport, address, run};
use leeward_outcome::Distribution;
use leeward_services::definition::{PrepareError, Target};
use leeward_workload::{Arrivals, Segment, ServiceTime, Shares, Workload};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time limit for connecting to each address of a name.
const CONNECTING: Duration = Duration::from_secs(5);
/// Time limit for a server to show which protocol it speaks.
const ASKING: Duration = Duration::from_secs(1);

/// A serializable distribution: its buckets and its sum.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Buckets {
    buckets: BTreeMap<u64, u64>,
    sum_ns: u64,
}

impl Buckets {
    fn of(distribution: &Distribution) -> Self {
        Buckets {
            buckets: distribution.buckets().collect(),
            sum_ns: u64::try_from(distribution.sum_ns()).unwrap_or(u64::MAX),
        }
    }

    fn add(&mut self, other: &Buckets) {
        add_counts(&mut self.buckets, &other.buckets);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    fn distribution(&self) -> Distribution {
        Distribution::from_buckets(self.buckets.iter().map(|(value, count)| (*value, *count)), self.sum_ns.into())
    }
}

/// Adds counts by key. They come from bytes that others may have written, so sums saturate.
fn add_counts<K: Ord + Clone>(all: &mut BTreeMap<K, u64>, more: &BTreeMap<K, u64>) {
    for (key, count) in more {
        let sum = all.entry(key.clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
}

/// Measurements of one generator or of several.
#[pyclass(frozen, module = "leeward._leeward")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recording {
    generators: u32,
    seconds: f64,
    slo_us: f64,
    /// Numbers of requests by outcome: in the whole run, and in its measured part.
    totals: BTreeMap<String, u64>,
    measured: BTreeMap<String, u64>,
    throughput_rps: f64,
    goodput_rps: f64,
    latency: Buckets,
    latency_from_send: Buckets,
    reject_delay: Buckets,
    /// True if every generator kept to its schedule.
    kept: bool,
    failures: BTreeMap<String, u64>,
}

#[pymethods]
impl Recording {
    /// Returns bytes for [`Recording::from_bytes`].
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = serde_json::to_vec(self).map_err(|error| errors::plain(py, "ResultsError", &error.to_string()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Reads the recording in these bytes.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        serde_json::from_slice(bytes).map_err(|error| errors::plain(py, "ResultsError", &error.to_string()))
    }

    #[getter]
    fn generators(&self) -> u32 {
        self.generators
    }

    #[getter]
    fn seconds(&self) -> f64 {
        self.seconds
    }

    #[getter]
    fn slo_us(&self) -> f64 {
        self.slo_us
    }

    #[getter]
    fn totals(&self) -> BTreeMap<String, u64> {
        self.totals.clone()
    }

    #[getter]
    fn measured(&self) -> BTreeMap<String, u64> {
        self.measured.clone()
    }

    #[getter]
    fn failures(&self) -> BTreeMap<String, u64> {
        self.failures.clone()
    }

    #[getter]
    fn throughput_rps(&self) -> f64 {
        self.throughput_rps
    }

    #[getter]
    fn goodput_rps(&self) -> f64 {
        self.goodput_rps
    }

    #[getter]
    fn kept(&self) -> bool {
        self.kept
    }

    /// Buckets of a distribution, `latency`, `latency_from_send` or `reject_delay`: upper bounds in
    /// µs, and counts.
    fn buckets(&self, py: Python<'_>, which: &str) -> PyResult<Vec<(f64, u64)>> {
        let buckets = self.which(py, which)?;
        Ok(buckets.buckets.iter().map(|(value, count)| (*value as f64 / 1e3, *count)).collect())
    }

    /// Percentiles of a distribution, µs.
    fn percentiles<'py>(&self, py: Python<'py>, which: &str) -> PyResult<Bound<'py, PyDict>> {
        let summary = self.which(py, which)?.distribution().percentiles();
        let dict = PyDict::new(py);
        dict.set_item("count", summary.count)?;
        dict.set_item("mean_us", summary.mean_ns / 1e3)?;
        for (name, span) in [
            ("p50_us", summary.p50),
            ("p90_us", summary.p90),
            ("p99_us", summary.p99),
            ("p999_us", summary.p999),
            ("max_us", summary.max),
        ] {
            dict.set_item(name, span.as_micros_f64())?;
        }
        Ok(dict)
    }
}

impl Recording {
    fn which(&self, py: Python<'_>, which: &str) -> PyResult<&Buckets> {
        match which {
            "latency" => Ok(&self.latency),
            "latency_from_send" => Ok(&self.latency_from_send),
            "reject_delay" => Ok(&self.reject_delay),
            _ => {
                let message =
                    format!("there is no distribution `{which}`; accepted: latency, latency_from_send, reject_delay");
                Err(errors::plain(py, "ResultsError", &message))
            }
        }
    }
}

/// Merges the measurements of several generators of the same run: counts and buckets add up,
/// nothing is lost.
#[pyfunction]
pub(crate) fn merge(py: Python<'_>, recordings: Vec<Py<Recording>>) -> PyResult<Recording> {
    let mut recordings = recordings.iter().map(Py::get);
    let first = recordings.next().ok_or_else(|| errors::plain(py, "ResultsError", "no recordings to merge"))?;
    Ok(recordings.fold(first.clone(), |mut all, more| {
        all.generators = all.generators.saturating_add(more.generators);
        all.seconds = all.seconds.max(more.seconds);
        add_counts(&mut all.totals, &more.totals);
        add_counts(&mut all.measured, &more.measured);
        add_counts(&mut all.failures, &more.failures);
        all.throughput_rps += more.throughput_rps;
        all.goodput_rps += more.goodput_rps;
        all.latency.add(&more.latency);
        all.latency_from_send.add(&more.latency_from_send);
        all.reject_delay.add(&more.reject_delay);
        all.kept &= more.kept;
        all
    }))
}

/// Message for a server that could not be prepared; names the server's protocol if it is another
/// one.
fn unprepared(error: PrepareError) -> String {
    match error {
        PrepareError::Server { address, .. } => {
            address::with_protocol(error.to_string(), address, ServerProtocol::Leeward, ASKING)
        }
        _ => error.to_string(),
    }
}

/// Settings of one generator's run.
struct GeneratorSettings {
    config: LoadConfig,
    plan: Plan,
    algorithm: Algorithm,
    params: Params,
    environment: Environment,
}

/// Runs generator `index` of `of` against `address`: its share of the schedule that `seed` draws.
#[pyfunction]
#[pyo3(signature = (address, demand_rps, clients, duration, warmup, service, controller, params, slo, rtt, seed, index, of, cpu=None, busy=false, stop=None))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of one call from Python")]
pub(crate) fn load(
    py: Python<'_>,
    address: &str,
    demand_rps: f64,
    clients: u32,
    duration: &str,
    warmup: &str,
    service: &str,
    controller: &str,
    params: Vec<(String, String)>,
    slo: &str,
    rtt: &str,
    seed: u64,
    index: u32,
    of: u32,
    cpu: Option<usize>,
    busy: bool,
    stop: Option<&Stop>,
) -> PyResult<Recording> {
    let wrong = |key: &str, problem: String| errors::plain(py, "LoadError", &format!("{key}: {problem}"));
    let span = |key: &str, text: &str| parse_duration(text).map_err(|error| wrong(key, error.to_string()));
    let (slo, rtt) = (span("slo", slo)?, span("rtt", rtt)?);
    let (duration, warmup) = (span("duration", duration)?, span("warmup", warmup)?);
    if warmup >= duration {
        return Err(wrong("warmup", format!("{warmup} is all of the duration, {duration}: nothing would be measured")));
    }
    if !(demand_rps.is_finite() && demand_rps > 0.0) {
        return Err(wrong("demand", format!("{demand_rps} is not a rate; accepted: a number above 0")));
    }
    if index >= of || clients < of {
        return Err(wrong(
            "clients",
            format!("{clients} are not enough for {of} generators; accepted: one for each at least"),
        ));
    }
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find(controller).map_err(|error| wrong("controller", error.to_string()))?.clone();
    let pairs: Vec<(&str, RawParam)> =
        params.iter().map(|(name, value)| (name.as_str(), RawParam::Text(value.clone()))).collect();
    let params = algorithm.params(&pairs).map_err(|error| wrong("params", error.to_string()))?;
    let requests = Catalogue::builtin().requests(service).map_err(|error| wrong("service", error.to_string()))?;
    let found = address::resolve(address).map_err(|error| {
        wrong("address", format!("`{address}` is none: {error}; accepted: one such as 127.0.0.1:7117"))
    })?;
    let resolved = py.detach(|| address::find_listener(&found, Transport::Tcp, CONNECTING));
    let resolved = resolved.map_err(|error| wrong("address", error.to_string()))?;
    let target = Target { address: resolved, algorithm: &algorithm, params: &params, rtt, slo, encryption: None };
    let config = LoadConfig {
        ask: py
            .detach(|| requests.prepare(&target).map_err(unprepared))
            .map_err(|problem| wrong("service", problem))?,
        answers: if requests.service_times().is_some() { AnswerCheck::Empty } else { AnswerCheck::Any },
        warmup,
        polling: if busy { Polling::Busy } else { Polling::Hybrid },
        cpu,
        ..LoadConfig::new(resolved, slo)
    };
    let workload = Workload {
        clients,
        arrivals: Arrivals::Poisson,
        shares: Shares::Equal,
        demand: vec![Segment { from: Nanos::ZERO, rate: Rate(demand_rps) }],
        service: requests.service_times().cloned().unwrap_or(ServiceTime::Constant(Nanos::from_micros(1))),
    };
    let schedule = Schedule::draw(&workload, seed, duration).map_err(|error| wrong("demand", error.to_string()))?;
    let plan = Plan::Open(schedule.share(index, of));
    let environment = Environment::new(1, rtt, slo);
    let settings = GeneratorSettings { config, plan, algorithm, params, environment };
    let cancel = Arc::new(AtomicBool::new(false));
    let progress = Arc::new(Progress::default());
    let (flag, counted) = (Arc::clone(&cancel), Arc::clone(&progress));
    let ran = run_in_thread(py, &cancel, &progress, None, stop, &[], move || {
        let client = || (settings.algorithm.build_client)(&settings.params, &settings.environment);
        run(&settings.config, &settings.plan, client, &flag, |_| {
            counted.done.fetch_add(1, Ordering::Relaxed);
        })
    })?;
    let ran = ran.map_err(|error| errors::plain(py, "LoadError", &error.to_string()))?;
    let report = &ran.report;
    if let Some(violation) = report.violations.first() {
        return Err(errors::plain(
            py,
            "LoadError",
            &format!("conservation check failed, please report this: {violation}"),
        ));
    }
    let named = |counts: &leeward_outcome::RequestCounts| {
        counts.entries().into_iter().map(|(name, count)| (name.to_string(), count)).collect()
    };
    Ok(Recording {
        generators: 1,
        seconds: Nanos(report.duration_ns.saturating_sub(report.warmup_ns)).as_secs_f64(),
        slo_us: slo.as_micros_f64(),
        totals: named(&report.totals),
        measured: named(&report.measured),
        throughput_rps: report.throughput_per_s,
        goodput_rps: report.goodput_per_s,
        latency: Buckets::of(&ran.latency),
        latency_from_send: Buckets::of(&ran.latency_from_send),
        reject_delay: Buckets::of(&ran.reject_delay),
        kept: report.adherence.kept,
        failures: report.failures.clone(),
    })
}
