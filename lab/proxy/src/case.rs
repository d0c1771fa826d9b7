//! A case: a backend, a demand and an objective. Random cases are drawn from a seed.

use leeward_core::units::{Nanos, Rate};
use leeward_workload::rng::{Purpose, Rng};
use leeward_workload::{Arrivals, Segment, ServiceTime, Shares, Workload};

/// Order in which a backend's cores execute requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// A core executes one request to its end; all others wait in order of arrival.
    Fifo,
    /// All requests share the cores equally.
    ProcessorSharing,
}

/// What is special about a backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Feature {
    /// Nothing.
    Plain,
    /// Each request first waits for something that needs no core, evenly between a half and one and
    /// a half of this time.
    Awaiting(Nanos),
    /// This share of the requests holds one lock during the first half of its work.
    Lock(f64),
    /// Work takes three times as long in the second quarter of the measurement.
    Slowdown,
    /// No core executes anything for 100 ms in each second.
    Pauses,
    /// Work takes longer by this share for each request at the backend above `from`.
    Thrashing {
        /// Growth of the work per request.
        share: f64,
        /// Number of requests without growth.
        from: u32,
    },
}

/// Demand over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Constant.
    Steady,
    /// 0.6 times the capacity in the first and the last third of the measurement.
    Shift,
}

/// A case.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Number of the case.
    pub id: u64,
    /// Cores of the backend.
    pub cores: u32,
    /// Order of execution.
    pub discipline: Discipline,
    /// Work of a request.
    pub service: ServiceTime,
    /// What is special.
    pub feature: Feature,
    /// Latency objective.
    pub objective: Nanos,
    /// Demand as a multiple of the capacity.
    pub load: f64,
    /// Demand over time.
    pub demand: Demand,
}

/// Times of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Beginning of the measurement.
    pub from: Nanos,
    /// End of the measurement.
    pub to: Nanos,
}

/// Length of a pause.
pub(crate) const PAUSE: Nanos = Nanos::from_millis(100);
/// Interval between the beginnings of pauses.
pub(crate) const PAUSE_INTERVAL: Nanos = Nanos::from_secs(1);
/// Factor on the work during a slowdown.
pub(crate) const SLOWDOWN: f64 = 3.0;

impl Case {
    /// Draws a case.
    pub fn random(seed: u64) -> Case {
        let mut rng = Rng::new(seed, Purpose::Kinds);
        let mut pick = |values: &[f64]| values[rng.below(values.len() as u64) as usize];
        let cores = pick(&[1.0, 2.0, 4.0, 8.0]) as u32;
        let discipline = if pick(&[0.0, 1.0]) == 0.0 { Discipline::Fifo } else { Discipline::ProcessorSharing };
        let mean = Nanos::from_micros(pick(&[200.0, 500.0, 1_000.0, 2_000.0, 5_000.0]) as u64);
        let shape = pick(&[0.0, 1.0, 2.0, 3.0]) as u32;
        let service = match shape {
            0 => ServiceTime::Constant(mean),
            1 => ServiceTime::Exponential(mean),
            2 => ServiceTime::Bimodal(mean),
            _ => ServiceTime::Lognormal { mean, sigma: 1.0 },
        };
        let load = pick(&[1.05, 1.3, 2.0, 4.0]);
        let mut objective = mean.scale(pick(&[12.0, 25.0, 50.0, 100.0]) * if shape == 2 { 2.0 } else { 1.0 });
        let kind = pick(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]) as u32;
        let await_factor = 5.0 + pick(&[0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0]);
        let lock_share = pick(&[0.25, 0.5, 0.75, 1.0]);
        let thrash_share = pick(&[0.005, 0.01, 0.02]);
        let feature = match kind {
            1 => {
                let time = mean.scale(await_factor);
                objective += time.scale(2.5);
                Feature::Awaiting(time)
            }
            2 => Feature::Lock(lock_share),
            3 => {
                objective = objective.scale(3.0);
                Feature::Slowdown
            }
            4 => Feature::Pauses,
            5 => Feature::Thrashing { share: thrash_share, from: (2 * cores).max(8) },
            _ => Feature::Plain,
        };
        let demand = if pick(&[0.0, 1.0, 2.0, 3.0]) == 0.0 { Demand::Shift } else { Demand::Steady };
        Case { id: seed, cores, discipline, service, feature, objective, load, demand }
    }

    /// Requests per second that the backend can serve at best.
    pub fn capacity(&self) -> f64 {
        let work = self.service.mean().as_secs_f64();
        let cores = f64::from(self.cores) / work;
        match self.feature {
            Feature::Lock(share) => cores.min(1.0 / (share * work / 2.0)),
            Feature::Pauses => cores * (1.0 - PAUSE.as_secs_f64() / PAUSE_INTERVAL.as_secs_f64()),
            _ => cores,
        }
    }

    /// Times of a run.
    ///
    /// It settles for 4 s or 2,000 requests, and is measured for 8 s or 8,000 requests: 1 % of
    /// noise.
    pub fn schedule(&self) -> Schedule {
        let request = 1.0 / self.capacity();
        let settle = (2_000.0 * request).max(4.0);
        let measured = (8_000.0 * request).max(8.0);
        let from = Nanos::from_secs_f64(settle);
        Schedule { from, to: from + Nanos::from_secs_f64(measured) }
    }

    /// Whether the demand exceeds the capacity at a time of the measurement.
    pub(crate) fn is_overloaded(&self, at: Nanos) -> bool {
        let Schedule { from, to } = self.schedule();
        let third = Nanos(to.saturating_sub(from).0 / 3);
        self.demand == Demand::Steady || (at >= from + third && at < from + third * 2)
    }

    /// Interval in which work takes longer, if any.
    pub(crate) fn slowdown(&self) -> Option<(Nanos, Nanos)> {
        let Schedule { from, to } = self.schedule();
        let quarter = Nanos(to.saturating_sub(from).0 / 4);
        (self.feature == Feature::Slowdown).then_some((from + quarter, from + quarter * 2))
    }

    /// The demand as the workload of one client.
    pub fn workload(&self) -> Workload {
        let Schedule { from, to } = self.schedule();
        let capacity = self.capacity();
        let segment = |from, load: f64| Segment { from, rate: Rate(capacity * load) };
        let third = Nanos(to.saturating_sub(from).0 / 3);
        let mut demand = match self.demand {
            Demand::Steady => vec![segment(Nanos::ZERO, self.load)],
            Demand::Shift => vec![
                segment(Nanos::ZERO, self.load),
                segment(from, 0.6),
                segment(from + third, self.load),
                segment(from + third * 2, 0.6),
            ],
        };
        demand.push(segment(to, 0.0));
        Workload {
            clients: 1,
            arrivals: Arrivals::Poisson,
            shares: Shares::Equal,
            demand,
            service: self.service.clone(),
        }
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shape = match &self.service {
            ServiceTime::Constant(_) => "const",
            ServiceTime::Exponential(_) => "exp",
            ServiceTime::Bimodal(_) => "bimodal",
            ServiceTime::Lognormal { .. } => "lognormal",
            ServiceTime::Empirical(_) => "samples",
        };
        let order = if self.discipline == Discipline::Fifo { "fifo" } else { "ps" };
        let cores = self.cores;
        write!(f, "{shape}:{} on {cores} ({order}), {}, {:.2} x", self.service.mean(), self.objective, self.load)?;
        match self.feature {
            Feature::Plain => {}
            Feature::Awaiting(time) => write!(f, ", awaits {time}")?,
            Feature::Lock(share) => write!(f, ", lock {share}")?,
            Feature::Slowdown => write!(f, ", slowdown")?,
            Feature::Pauses => write!(f, ", pauses")?,
            Feature::Thrashing { share, from } => write!(f, ", thrashing {share} from {from}")?,
        }
        if self.demand == Demand::Shift { write!(f, ", shift") } else { Ok(()) }
    }
}
