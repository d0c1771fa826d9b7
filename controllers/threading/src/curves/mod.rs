//! Curves: tail latency and CPU of every trained setup over the load (µTune §4.2: a piece-wise
//! linear model). Pure data; the lab reads the files.

mod envelope;

pub use envelope::{Envelope, Objective};

use super::setup::{Fanout, ThreadingSetup};
use leeward_core::units::{Nanos, Rate};

/// Maximum number of setups in a set of curves.
pub const CURVES_MAX: usize = 256;
/// Maximum number of points of a curve: more than any training measures, and few enough for a
/// recording's header to hold all curves.
pub const POINTS_MAX: usize = 64;
/// Largest load, latency (µs) and number of CPUs in a curve: far beyond any machine, and safe in
/// calculations.
pub const NUMBER_MAX: f64 = 1e12;

/// Tail percentile of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailPercentile {
    /// The 99th percentile, as in the paper.
    P99,
    /// The 99.9th percentile.
    P999,
}

/// Measurements of a setup at one load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CurvePoint {
    /// Requests per second.
    pub load: f64,
    /// Median latency in µs.
    pub p50_us: f64,
    /// 99th percentile in µs.
    pub p99_us: f64,
    /// 99.9th percentile in µs.
    pub p999_us: f64,
    /// CPUs that the server's threads kept busy, polling included.
    pub cpu: f64,
    /// Requests measured.
    pub samples: u64,
    /// Half the width of the 95-% confidence interval of the 99th percentile, over its value.
    pub spread: f64,
}

/// Measurements of a setup over the load.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The setup.
    pub setup: ThreadingSetup,
    /// Points by ascending load, at least two.
    pub points: Vec<CurvePoint>,
    /// Requests per second beyond which nothing is predicted and the setup is not chosen: its
    /// latency has no bound there.
    pub max_load: f64,
}

/// Error: the curves can't be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CurvesError {
    /// Too few or too many setups or points.
    #[error("{subject}: {found}; accepted: {accepted}")]
    Count {
        /// Setups, or points of one setup.
        subject: String,
        /// Number found.
        found: usize,
        /// Accepted range.
        accepted: String,
    },
    /// A number out of range.
    #[error("{setup}: `{key}` can't be {found}; accepted: {accepted}")]
    Number {
        /// Setup of the curve.
        setup: ThreadingSetup,
        /// The number's key.
        key: &'static str,
        /// The number's value.
        found: f64,
        /// Accepted values.
        accepted: String,
    },
    /// Two curves of one setup.
    #[error("{0} has two curves; accepted: one")]
    Duplicate(ThreadingSetup),
}

/// The curves of all setups of a service on a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Curves {
    curves: Vec<Curve>,
}

impl CurvesError {
    /// Key of the wrong entry in the curves file, if it is one of a setup.
    pub fn key(&self) -> Option<&'static str> {
        match self {
            CurvesError::Number { key, .. } => Some(key),
            CurvesError::Count { .. } => Some("loads"),
            CurvesError::Duplicate(_) => Some("name"),
        }
    }
}

impl Curves {
    /// Checks curves, and keeps their order: of equal setups the first is preferred.
    ///
    /// # Errors
    /// The first fault: see [`CurvesError`].
    pub fn new(curves: Vec<Curve>) -> Result<Curves, CurvesError> {
        if curves.is_empty() || curves.len() > CURVES_MAX {
            let accepted = format!("from 1 to {CURVES_MAX} setups");
            return Err(CurvesError::Count { subject: "setups".into(), found: curves.len(), accepted });
        }
        for (index, curve) in curves.iter().enumerate() {
            if curves[..index].iter().any(|other| other.setup == curve.setup) {
                return Err(CurvesError::Duplicate(curve.setup));
            }
            curve.check()?;
        }
        Ok(Curves { curves })
    }

    /// All curves, in their order; at least one.
    pub fn all(&self) -> &[Curve] {
        &self.curves
    }

    /// Index of a setup's curve.
    pub fn index(&self, setup: ThreadingSetup) -> Option<usize> {
        self.curves.iter().position(|curve| curve.setup == setup)
    }

    /// Curve of a setup.
    pub fn get(&self, setup: ThreadingSetup) -> Option<&Curve> {
        self.index(setup).map(|index| &self.curves[index])
    }

    /// Returns the curves whose setup `keep` accepts; `None` if there is none.
    pub fn filter(&self, keep: impl Fn(&ThreadingSetup) -> bool) -> Option<Curves> {
        let curves: Vec<Curve> = self.curves.iter().filter(|curve| keep(&curve.setup)).cloned().collect();
        (!curves.is_empty()).then_some(Curves { curves })
    }

    /// Returns the curves of one fan-out; the cores of `CORE<n>` are asynchronous.
    pub fn with_fanout(&self, fanout: Fanout) -> Option<Curves> {
        self.filter(|setup| setup.setup().map_or(Fanout::Async, |setup| setup.fanout) == fanout)
    }

    /// Returns the curve with the largest maximum load; of equals the one with the lowest p99
    /// there, else the first.
    pub fn strongest(&self) -> &Curve {
        let p99 = |curve: &Curve| curve.points.last().map_or(f64::MAX, |point| point.p99_us);
        let is_stronger =
            |b: &Curve, a: &Curve| b.max_load > a.max_load || (b.max_load == a.max_load && p99(b) < p99(a));
        self.curves.iter().reduce(|a, b| if is_stronger(b, a) { b } else { a }).expect("never none")
    }
}

impl Curve {
    /// Latency of the setup at this load: linear between points, constant below the first and above
    /// the last. `None` beyond the maximum load.
    pub fn latency(&self, tail: TailPercentile, load: Rate) -> Option<Nanos> {
        (load.0 <= self.max_load).then(|| {
            let us = self.interpolate(load.0, |point| match tail {
                TailPercentile::P99 => point.p99_us,
                TailPercentile::P999 => point.p999_us,
            });
            Nanos::from_secs_f64(us * 1e-6)
        })
    }

    /// CPUs that the setup keeps busy at this load, interpolated as in [`Curve::latency`].
    pub fn cpu(&self, load: Rate) -> Option<f64> {
        (load.0 <= self.max_load).then(|| self.interpolate(load.0, |point| point.cpu))
    }

    /// Interpolates a number of the points at a load. A load of NaN counts as the smallest.
    fn interpolate(&self, load: f64, of: impl Fn(&CurvePoint) -> f64) -> f64 {
        let above = self.points.partition_point(|point| point.load <= load);
        match (above.checked_sub(1).map(|below| &self.points[below]), self.points.get(above)) {
            (Some(a), Some(b)) => {
                let part = (load - a.load) / (b.load - a.load);
                of(a) + (of(b) - of(a)) * part
            }
            (Some(point), None) | (None, Some(point)) => of(point),
            (None, None) => 0.0,
        }
    }

    /// Checks the numbers of the curve.
    ///
    /// # Errors
    /// The first number out of range.
    pub fn check(&self) -> Result<(), CurvesError> {
        let count = self.points.len();
        if !(2..=POINTS_MAX).contains(&count) {
            let loads = format!("{}: loads", self.setup);
            return Err(CurvesError::Count {
                subject: loads,
                found: count,
                accepted: format!("from 2 to {POINTS_MAX} knots"),
            });
        }
        let number = |key, found: f64, min: f64, max: f64, accepted: &dyn Fn() -> String| {
            // Not a range test: NaN must fail.
            let fits = found >= min && found <= max;
            let error = || CurvesError::Number { setup: self.setup, key, found, accepted: accepted() };
            if fits { Ok(()) } else { Err(error()) }
        };
        let mut before = 0.0;
        for point in &self.points {
            let positive = || format!("a number above 0, up to {NUMBER_MAX:e}");
            number("loads", point.load, f64::MIN_POSITIVE, NUMBER_MAX, &positive)?;
            if point.load <= before {
                let accepted = format!("ascending loads, here above {before}");
                return Err(CurvesError::Number { setup: self.setup, key: "loads", found: point.load, accepted });
            }
            before = point.load;
            number("p50_us", point.p50_us, f64::MIN_POSITIVE, NUMBER_MAX, &positive)?;
            let from = |below: f64| move || format!("at least the percentile below it, here {below}");
            number("p99_us", point.p99_us, point.p50_us, NUMBER_MAX, &from(point.p50_us))?;
            number("p999_us", point.p999_us, point.p99_us, NUMBER_MAX, &from(point.p99_us))?;
            number("cpu", point.cpu, 0.0, NUMBER_MAX, &|| "a number of CPUs from 0".into())?;
            number("spread", point.spread, 0.0, NUMBER_MAX, &|| "a number from 0, such as 0.05".into())?;
        }
        let range = || format!("at least the first load, {}, up to {NUMBER_MAX:e}", self.points[0].load);
        number("sustains", self.max_load, self.points[0].load, NUMBER_MAX, &range)
    }
}
