//! One measurement: a running service, a proxy before it, and a load.

use crate::contender::{Contender, Front, Numbers, Setup};
use crate::line::median;
use crate::load;
use crate::load_http2;
use crate::plan::{Demand, Kind, LoadResult, Plan};
use crate::process::Process;
use crate::quiet::{self, Watch};
use crate::sample::{Mode, Protocol, Row};
use crate::services::{self, SLOW, Services};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spans {
    pub(crate) rounds: usize,
    pub(crate) warmup: Duration,
    pub(crate) span: Duration,
}

pub(crate) struct Bench {
    pub(crate) services: Services,
    /// For configurations and messages of the children.
    pub(crate) folder: PathBuf,
    pub(crate) spans: Spans,
    pub(crate) seed: u64,
    /// Largest share of a CPU that the generator took.
    pub(crate) busiest: f64,
    /// Measurements that were disturbed in all attempts.
    pub(crate) disturbed: usize,
    /// Attempts of a measurement that other programs disturb.
    pub(crate) attempts: usize,
}

/// Outcome of one measurement of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Shot {
    /// Answered within the objective, per second.
    pub(crate) goodput: f64,
    /// The same over the service's mean capacity in the measured time.
    pub(crate) share: f64,
    pub(crate) p50: f64,
    /// The row's percentile of the admitted, in ms.
    pub(crate) high: f64,
    /// Refused or failed share.
    pub(crate) unserved: f64,
    /// Share of a CPU that other programs took meanwhile.
    pub(crate) foreign: f64,
}

impl Shot {
    /// Medians of each number.
    pub(crate) fn median(of: &[Shot]) -> Option<Shot> {
        let of_each = |pick: fn(&Shot) -> f64| median(of.iter().map(pick).collect());
        (!of.is_empty()).then(|| Shot {
            goodput: of_each(|shot| shot.goodput),
            share: of_each(|shot| shot.share),
            p50: of_each(|shot| shot.p50),
            high: of_each(|shot| shot.high),
            unserved: of_each(|shot| shot.unserved),
            foreign: of_each(|shot| shot.foreign),
        })
    }

    pub(crate) fn to_json(self) -> Value {
        json!({ "goodput": self.goodput, "share": self.share, "p50_ms": self.p50, "high_ms": self.high, "unserved": self.unserved, "foreign": self.foreign })
    }
}

/// Paths that a mode is asked for, by frequency.
pub(crate) fn kinds(mode: Mode) -> Vec<Kind> {
    match mode {
        // 1 ms in the mean.
        Mode::Routes => {
            [("/a", 50.0), ("/b", 30.0), ("/c", 15.0), ("/d", 5.0)].map(|(path, of)| Kind::path(path, of)).to_vec()
        }
        _ => vec![Kind::path("/", 1.0)],
    }
}

/// What a row asks for.
fn asked(row: &Row) -> Vec<Kind> {
    match row.protocol {
        Protocol::Grpc => vec![Kind::path("/service/Call", 1.0)],
        _ => kinds(row.mode),
    }
}

/// Demands of a row over time, and the mean capacity while it is measured.
fn phases(row: &Row, capacity: f64, spans: Spans) -> (Vec<(Demand, Duration)>, f64) {
    let rate = row.demand * capacity;
    if row.mode != Mode::Slow {
        return (vec![(Demand::Rate(rate), spans.warmup + spans.span)], capacity);
    }
    // The demand follows the capacity: what is asked is a multiple of what can be done just then.
    let (from, until) = (Duration::from_secs(SLOW.0), Duration::from_secs(SLOW.1));
    let (before, slow, after) = (from - spans.warmup, until - from, spans.span.max(Duration::from_secs(2)));
    let phases = vec![(Demand::Rate(rate), from), (Demand::Rate(rate / 3.0), slow), (Demand::Rate(rate), after)];
    let fast = (before + after).as_secs_f64();
    let mean = capacity * (fast + slow.as_secs_f64() / 3.0) / (fast + slow.as_secs_f64());
    (phases, mean)
}

impl Bench {
    pub(crate) fn setup<'a>(&'a self, service: SocketAddr, objective: Duration, numbers: Numbers) -> Setup<'a> {
        Setup {
            service,
            objective,
            numbers,
            rules: "",
            adaptive: true,
            protocol: Protocol::Http1,
            folder: &self.folder,
        }
    }

    pub(crate) fn next_seed(&mut self) -> u64 {
        self.seed += 1;
        self.seed
    }

    /// Runs a load over HTTP/1.1, and minds how busy the generator is.
    pub(crate) fn load(&mut self, plan: &Plan) -> Result<LoadResult> {
        self.load_over(Protocol::Http1, plan)
    }

    /// Runs a load over a protocol, and minds how busy the generator is.
    pub(crate) fn load_over(&mut self, protocol: Protocol, plan: &Plan) -> Result<LoadResult> {
        let result = match protocol {
            Protocol::Http1 => load::run(plan)?,
            protocol => load_http2::run(plan, protocol)?,
        };
        self.busiest = self.busiest.max(result.busy);
        Ok(result)
    }

    /// Requests per second of a closed loop of 64: the median of three.
    pub(crate) fn capacity(&mut self, service: &Process, mode: Mode) -> Result<f64> {
        let mut rates = Vec::new();
        for round in 0..3 {
            // The first second compiles and warms.
            let warmup = Duration::from_millis(if round == 0 { 1_500 } else { 200 });
            let plan = Plan {
                address: service.address,
                phases: vec![(Demand::Closed(64), warmup + Duration::from_millis(1_300))],
                warmup,
                objective: Duration::from_secs(10),
                seed: self.next_seed(),
                kinds: kinds(mode),
                to_first_byte: false,
            };
            let rate = self.quietly(|bench| {
                let result = paused(mode, service, || bench.load(&plan))?;
                Ok(result.per_second(result.all().answered))
            })?;
            rates.push(rate.0);
        }
        settle(service, mode)?;
        let rate = median(rates);
        anyhow::ensure!(rate > 1.0, "the service answers nothing");
        Ok(rate)
    }

    /// Measures a row once, with one contender freshly started.
    pub(crate) fn shot(
        &mut self,
        row: &Row,
        of: Contender,
        service: &Process,
        capacity: f64,
        numbers: Numbers,
        spans: Spans,
    ) -> Result<Shot> {
        let (shot, foreign) = self.quietly(|bench| bench.attempt(row, of, service, capacity, numbers, spans))?;
        Ok(Shot { foreign, ..shot })
    }

    /// Measures again where the machine was busy otherwise; returns the least disturbed
    /// measurement, and the share of a CPU that others had.
    pub(crate) fn quietly<T>(&mut self, mut one: impl FnMut(&mut Self) -> Result<T>) -> Result<(T, f64)> {
        let mut best: Option<(T, f64)> = None;
        for _ in 0..self.attempts {
            let watch = Watch::start();
            let value = one(self)?;
            let foreign = watch.share();
            if best.as_ref().is_none_or(|(_, least)| foreign < *least) {
                best = Some((value, foreign));
            }
            if foreign <= quiet::MOST {
                break;
            }
            eprintln!("      others took {:.0} % of a CPU meanwhile", foreign * 100.0);
        }
        let best = best.context("one attempt")?;
        self.disturbed += usize::from(best.1 > quiet::MOST);
        Ok(best)
    }

    fn attempt(
        &mut self,
        row: &Row,
        of: Contender,
        service: &Process,
        capacity: f64,
        numbers: Numbers,
        spans: Spans,
    ) -> Result<Shot> {
        settle(service, row.mode)?;
        let objective = row.mode.objective();
        let setup = Setup { protocol: row.protocol, ..self.setup(service.address, objective, numbers) };
        let front: Front = of.start(&setup)?;
        let (phases, mean) = phases(row, capacity, spans);
        let (warmup, seed) = (spans.warmup, self.next_seed());
        let plan =
            Plan { address: front.address, phases, warmup, objective, seed, kinds: asked(row), to_first_byte: false };
        if row.mode == Mode::Slow {
            services::begin(service)?;
        }
        let result = paused(row.mode, service, || self.load_over(row.protocol, &plan))?;
        let all = result.all();
        let goodput = result.per_second(all.in_time);
        Ok(Shot {
            goodput,
            share: goodput / mean,
            p50: all.quantile_ms(0.5),
            high: all.quantile_ms(row.mode.percentile()),
            unserved: all.unserved(),
            foreign: 0.0,
        })
    }
}

fn paused<T>(mode: Mode, service: &Process, run: impl FnOnce() -> T) -> T {
    if mode == Mode::Pauses { services::with_pauses(service, run) } else { run() }
}

/// Waits until the service has worked off what an earlier load has left.
pub(crate) fn settle(service: &Process, mode: Mode) -> Result<()> {
    let (start, mut quick) = (Instant::now(), 0);
    let path = &kinds(mode)[0].path;
    while quick < 5 {
        anyhow::ensure!(start.elapsed() < Duration::from_secs(60), "the service does not come to rest");
        let began = Instant::now();
        let is_answered = ask(service.address, path).is_ok();
        let in_time = is_answered && began.elapsed() < mode.objective() / 2;
        quick = if in_time { quick + 1 } else { 0 };
        if !is_answered {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

fn ask(address: SocketAddr, path: &str) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: leeward\r\nconnection: close\r\n\r\n").as_bytes())?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).context("no response")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Service;

    const SPANS: Spans = Spans { rounds: 1, warmup: Duration::from_secs(2), span: Duration::from_secs(4) };

    #[test]
    fn demand_follows_a_service_that_slows_down() {
        let row = Row::new(Service::Go, Mode::Slow, 2.0);
        let (phases, mean) = phases(&row, 900.0, SPANS);
        let rates: Vec<f64> =
            phases.iter().map(|(demand, _)| if let Demand::Rate(rate) = demand { *rate } else { 0.0 }).collect();
        assert_eq!(rates, [1_800.0, 600.0, 1_800.0]);
        // Two fast seconds before, four slow ones, four fast ones.
        assert!((mean - (6.0 * 900.0 + 4.0 * 300.0) / 10.0).abs() < 1e-6, "{mean}");
        let total: Duration = phases.iter().map(|(_, span)| *span).sum();
        assert_eq!(total, Duration::from_secs(12));
    }

    #[test]
    fn routes_cost_a_ms_in_the_mean() {
        let cost = |path: &str| match path {
            "/a" => 0.1,
            "/b" => 0.5,
            "/c" => 2.0,
            _ => 10.0,
        };
        let kinds = kinds(Mode::Routes);
        let sum: f64 = kinds.iter().map(|kind| kind.weight).sum();
        let mean = kinds.iter().map(|kind| kind.weight * cost(&kind.path)).sum::<f64>() / sum;
        assert!((mean - 1.0).abs() < 1e-9, "{mean}");
    }

    #[test]
    fn medians_are_taken_of_each_number() {
        let of = |goodput, high| Shot { goodput, high, ..Shot::default() };
        let median = Shot::median(&[of(1.0, 9.0), of(3.0, 1.0), of(2.0, 5.0)]).unwrap();
        assert_eq!((median.goodput, median.high), (2.0, 5.0));
        assert_eq!(Shot::median(&[]), None);
    }
}
