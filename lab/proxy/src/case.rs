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
    /// Each request first waits for something that needs no core, evenly between a half and one and
    /// a half of this time.
    Awaiting(Nanos),
    /// This share of the requests takes so long, whatever the cores do, before its work.
    Long {
        /// Share of the requests.
        share: f64,
        /// Time without a core.
        time: Nanos,
    },
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
    /// The backend reads its sockets only when a core has nothing else to do, as Go's scheduler and
    /// event loops do, and all requests await the same time. They move in a bunch then, and each
    /// further one brings more answers, however many there are.
    LateReads,
    /// Each request needs as many cores of a second stage after the first, with work of its own.
    Series,
    /// Work that begins between these times of the run takes longer by this factor.
    Slower {
        /// Beginning.
        from: Nanos,
        /// End.
        to: Nanos,
        /// Factor on the work.
        factor: f64,
    },
    /// No core executes anything between these times of the run.
    Silence {
        /// Beginning.
        from: Nanos,
        /// End.
        to: Nanos,
    },
}

/// Demand over time.
#[derive(Clone, Debug, PartialEq)]
pub enum Demand {
    /// Constant.
    Steady,
    /// 0.6 times the capacity in the first and the last third of the measurement.
    Shift,
    /// Multiples of the capacity, each with its beginning. The run ends with the last, and is
    /// measured from its beginning on.
    Steps(Vec<(Nanos, f64)>),
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
    pub features: Vec<Feature>,
    /// Latency objective.
    pub objective: Nanos,
    /// Demand as a multiple of the capacity, where [`Case::demand`] says no other.
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

/// Kinds of features that are drawn; 0 is none.
const KINDS: u32 = 6;
/// The kind that [`Case::random`] does not draw.
const SERIES: u32 = 6;

impl Case {
    /// Draws a case with at most one feature.
    pub fn random(seed: u64) -> Case {
        let mut rng = Rng::new(seed, Purpose::Kinds);
        let mut case = Case::draw(seed, &mut rng);
        let kind = rng.below(u64::from(KINDS)) as u32;
        case.add_feature(kind, &mut rng);
        case.draw_demand(&mut rng);
        case
    }

    /// Draws a case with two or three features, two stages in series among them.
    pub fn combined(seed: u64) -> Case {
        let mut rng = Rng::new(seed, Purpose::Kinds);
        let mut case = Case::draw(seed, &mut rng);
        let mut kinds: Vec<u32> = (1..=KINDS).collect();
        for _ in 0..2 + rng.below(2) {
            let kind = kinds.swap_remove(rng.below(kinds.len() as u64) as usize);
            case.add_feature(kind, &mut rng);
        }
        case.draw_demand(&mut rng);
        case
    }

    /// Draws a case without features, and its demand.
    fn draw(seed: u64, rng: &mut Rng) -> Case {
        let mut pick = |values: &[f64]| pick(rng, values);
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
        let objective = mean.scale(pick(&[12.0, 25.0, 50.0, 100.0]) * if shape == 2 { 2.0 } else { 1.0 });
        let (features, demand) = (Vec::new(), Demand::Steady);
        Case { id: seed, cores, discipline, service, features, objective, load, demand }
    }

    /// Draws a feature, and gives its requests the time that they need.
    fn add_feature(&mut self, kind: u32, rng: &mut Rng) {
        let mut pick = |values: &[f64]| pick(rng, values);
        let await_factor = 5.0 + pick(&[0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0]);
        let lock_share = pick(&[0.25, 0.5, 0.75, 1.0]);
        let thrash_share = pick(&[0.005, 0.01, 0.02]);
        let feature = match kind {
            1 => {
                let time = self.service.mean().scale(await_factor);
                self.objective += time.scale(2.5);
                Feature::Awaiting(time)
            }
            2 => Feature::Lock(lock_share),
            3 => {
                self.objective = self.objective.scale(3.0);
                Feature::Slowdown
            }
            4 => Feature::Pauses,
            5 => Feature::Thrashing { share: thrash_share, from: (2 * self.cores).max(8) },
            SERIES => {
                self.objective = self.objective.scale(2.0);
                Feature::Series
            }
            _ => return,
        };
        self.features.push(feature);
    }

    fn draw_demand(&mut self, rng: &mut Rng) {
        self.demand = if pick(rng, &[0.0, 1.0, 2.0, 3.0]) == 0.0 { Demand::Shift } else { Demand::Steady };
    }

    /// Requests per second that the backend can serve at best.
    pub fn capacity(&self) -> f64 {
        let work = self.service.mean().as_secs_f64();
        let mut capacity = f64::from(self.cores) / work;
        let mut running = 1.0;
        for feature in &self.features {
            match feature {
                Feature::Lock(share) => capacity = capacity.min(1.0 / (share * work / 2.0)),
                Feature::Pauses => running = 1.0 - PAUSE.as_secs_f64() / PAUSE_INTERVAL.as_secs_f64(),
                _ => {}
            }
        }
        capacity * running
    }

    /// Times of a run.
    ///
    /// It settles for 4 s or 2,000 requests, and is measured for 8 s or 8,000 requests: 1 % of
    /// noise.
    pub fn schedule(&self) -> Schedule {
        if let Demand::Steps(steps) = &self.demand {
            let to = steps.last().map_or(Nanos::ZERO, |(end, _)| *end);
            return Schedule { from: Nanos::ZERO, to };
        }
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
        match &self.demand {
            Demand::Steady => true,
            Demand::Shift => at >= from + third && at < from + third * 2,
            Demand::Steps(steps) => {
                steps.iter().rev().find(|(from, _)| *from <= at).is_some_and(|(_, load)| *load > 1.0)
            }
        }
    }

    /// Intervals in which work takes longer, and the factors.
    pub(crate) fn slower(&self) -> Vec<(Nanos, Nanos, f64)> {
        let Schedule { from: start, to: end } = self.schedule();
        let quarter = Nanos(end.saturating_sub(start).0 / 4);
        let slower = |feature: &Feature| match *feature {
            Feature::Slowdown => Some((start + quarter, start + quarter * 2, SLOWDOWN)),
            Feature::Slower { from, to, factor } => Some((from, to, factor)),
            _ => None,
        };
        self.features.iter().filter_map(slower).collect()
    }

    /// The demand as the workload of one client.
    pub fn workload(&self) -> Workload {
        let Schedule { from, to } = self.schedule();
        let capacity = self.capacity();
        let segment = |from, load: f64| Segment { from, rate: Rate(capacity * load) };
        let third = Nanos(to.saturating_sub(from).0 / 3);
        let mut demand = match &self.demand {
            Demand::Steady => vec![segment(Nanos::ZERO, self.load)],
            Demand::Shift => vec![
                segment(Nanos::ZERO, self.load),
                segment(from, 0.6),
                segment(from + third, self.load),
                segment(from + third * 2, 0.6),
            ],
            Demand::Steps(steps) => steps.iter().map(|(from, load)| segment(*from, *load)).collect(),
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
        for feature in &self.features {
            match feature {
                Feature::Awaiting(time) => write!(f, ", awaits {time}")?,
                Feature::Long { share, time } => write!(f, ", {share} of them {time} long")?,
                Feature::Lock(share) => write!(f, ", lock {share}")?,
                Feature::Slowdown => write!(f, ", slowdown")?,
                Feature::Pauses => write!(f, ", pauses")?,
                Feature::Thrashing { share, from } => write!(f, ", thrashing {share} from {from}")?,
                Feature::LateReads => write!(f, ", reads late")?,
                Feature::Series => write!(f, ", two stages")?,
                Feature::Slower { from, to, factor } => write!(f, ", {factor} x slower from {from} to {to}")?,
                Feature::Silence { from, to } => write!(f, ", silent from {from} to {to}")?,
            }
        }
        match &self.demand {
            Demand::Steady => Ok(()),
            Demand::Shift => write!(f, ", shift"),
            Demand::Steps(steps) => {
                write!(f, ", steps")?;
                steps.iter().try_for_each(|(from, load)| write!(f, " {load:.2} from {from}"))
            }
        }
    }
}

fn pick(rng: &mut Rng, values: &[f64]) -> f64 {
    values[rng.below(values.len() as u64) as usize]
}
