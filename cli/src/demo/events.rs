//! Events of the runs for the views. The clients' CPU copies them out, so nothing here is computed
//! or drawn.

use leeward_core::units::Time;
use leeward_lab::plan::PlannedRun;
use leeward_lab::real::RealRunStage;
use leeward_lab::results::{Machine, PointRow, ShiftRow};

/// Least goodput that counts, as a share of the capacity.
const MIN_GOODPUT: f64 = 0.02;

/// Event for the views.
#[derive(Clone, Debug)]
pub(crate) enum DemoEvent {
    /// The next step of the calibration starts.
    Calibrating(String),
    /// The machine has been measured.
    Calibrated(Machine),
    /// A run starts.
    RunStarted(RunInfo),
    /// A sample of the current run.
    Sample(RunSample),
    /// A run has ended.
    RunEnded(Box<RunResult>),
}

impl DemoEvent {
    /// Event for a stage of a real run.
    pub(crate) fn from_stage(stage: &RealRunStage<'_>) -> DemoEvent {
        match stage {
            RealRunStage::Calibrating { step } => DemoEvent::Calibrating((*step).into()),
            RealRunStage::Calibrated(machine) => DemoEvent::Calibrated((*machine).clone()),
            RealRunStage::RunStarted(run) => DemoEvent::RunStarted(RunInfo::from_plan(run)),
            RealRunStage::RunEnded(point, shifts) => {
                DemoEvent::RunEnded(Box::new(RunResult::from_point(point, shifts)))
            }
            RealRunStage::RunProgress(run, snapshot) => {
                let at = snapshot.server.at;
                let gauges = &snapshot.server.gauges;
                let window = run.config.window.unwrap_or(leeward_lab::real::WINDOW).as_secs_f64();
                let rate = |count: u64| count as f64 / window;
                let latest = snapshot.latest.as_ref();
                DemoEvent::Sample(RunSample {
                    at_s: at.as_secs_f64(),
                    demand_rps: run.demand_at(Time::ZERO + at).0,
                    goodput_rps: latest.map(|latest| rate(latest.counts.good)),
                    rejected_rps: latest.map(|latest| rate(latest.counts.dropped)),
                    p99_us: latest
                        .and_then(|latest| (latest.latency.count > 0).then_some(latest.latency.p99.as_micros_f64())),
                    delay_us: snapshot.server.delay.as_micros_f64(),
                    pool: gauges.credit_pool.map(|credits| credits as f64),
                    issued: gauges.credits_issued.map(|credits| credits as f64),
                })
            }
        }
    }
}

/// Demand of the clients, in multiples of the capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// A constant demand.
    Steady(f64),
    /// A demand that rises for a while, then falls again.
    Spike {
        /// Demand before and after the spike.
        quiet: f64,
        /// Demand during the spike.
        peak: f64,
    },
}

impl Load {
    /// Describes the demand.
    pub(crate) fn describe(self) -> String {
        use super::format::multiple;
        match self {
            Load::Steady(ratio) => format!("demand {} the capacity", multiple(ratio)),
            Load::Spike { quiet, peak } => format!("demand {}, then a spike to {}", multiple(quiet), multiple(peak)),
        }
    }
}

/// A run that starts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunInfo {
    /// Label of the variant.
    pub(crate) label: String,
    /// Demand that the controller meets.
    pub(crate) load: Load,
    /// Requests per second that the machine can serve.
    pub(crate) capacity_rps: f64,
    /// Latency objective.
    pub(crate) slo_us: f64,
    /// Duration of the run.
    pub(crate) duration_s: f64,
}

impl RunInfo {
    fn from_plan(run: &PlannedRun<'_>) -> RunInfo {
        let ratios = run.config.workload.demand.iter().map(|segment| segment.rate.0 / run.capacity.0);
        let peak = ratios.clone().fold(0.0, f64::max);
        let quiet = ratios.fold(f64::INFINITY, f64::min);
        let steady = run.config.workload.demand.len() < 2;
        RunInfo {
            label: run.variant.label.clone(),
            load: if steady { Load::Steady(peak) } else { Load::Spike { quiet, peak } },
            capacity_rps: run.capacity.0,
            slo_us: run.config.slo.as_micros_f64(),
            duration_s: run.config.duration.as_secs_f64(),
        }
    }
}

/// Sample of a running run: the last window of its time series, and the server's current state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RunSample {
    pub(crate) at_s: f64,
    pub(crate) demand_rps: f64,
    pub(crate) goodput_rps: Option<f64>,
    pub(crate) rejected_rps: Option<f64>,
    /// `None` if no request was answered.
    pub(crate) p99_us: Option<f64>,
    pub(crate) delay_us: f64,
    pub(crate) pool: Option<f64>,
    pub(crate) issued: Option<f64>,
}

/// A run that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunResult {
    pub(crate) load: Load,
    pub(crate) point: PointRow,
    pub(crate) shifts: Vec<ShiftRow>,
}

impl RunResult {
    /// Makes the result of a run.
    pub(crate) fn from_point(point: &PointRow, shifts: &[ShiftRow]) -> RunResult {
        let ratio = |rate: f64| if point.capacity_rps > 0.0 { rate / point.capacity_rps } else { 0.0 };
        let peak = shifts.iter().map(|shift| ratio(shift.to_rps)).fold(0.0, f64::max);
        let load = match shifts.first() {
            None => Load::Steady(point.workload.demand_ratio),
            Some(first) => Load::Spike { quiet: ratio(first.from_rps), peak },
        };
        RunResult { load, point: point.clone(), shifts: shifts.to_vec() }
    }

    /// Goodput over capacity.
    pub(crate) fn capacity_share(&self) -> f64 {
        if self.point.capacity_rps > 0.0 { self.point.goodput_rps / self.point.capacity_rps } else { 0.0 }
    }

    /// True if the run measures the server: its clients were not late themselves.
    pub(crate) fn is_measured(&self) -> bool {
        self.point.late_us.is_none()
    }

    /// True if the 99th percentile of latency is within the objective; `None` if it was not
    /// measured.
    pub(crate) fn is_in_time(&self) -> Option<bool> {
        self.is_measured().then_some(self.point.p99_us > 0.0 && self.point.p99_us <= self.point.slo_us)
    }

    /// Time after the `index`th change of demand until goodput reached 95 % of its settled value,
    /// in milliseconds. `None` if the settled goodput is negligible.
    pub(crate) fn recovery_ms(&self, index: usize) -> Option<f64> {
        let shift = self.shifts.get(index)?;
        (shift.settled_goodput_rps > MIN_GOODPUT * self.point.capacity_rps).then_some(shift.reached_ms)
    }

    /// [`Self::recovery_ms`] as text.
    pub(crate) fn describe_recovery(&self, index: usize) -> String {
        match self.recovery_ms(index) {
            _ if !self.is_measured() => "unknown".into(),
            Some(ms) => format!("{ms:.0} ms"),
            None => "never".into(),
        }
    }

    /// True if predicted or measured goodput is not negligible.
    pub(crate) fn has_goodput(&self) -> bool {
        let predicted = self.point.predicted_goodput_rps.unwrap_or(0.0);
        self.point.goodput_rps.max(predicted) > MIN_GOODPUT * self.point.capacity_rps
    }

    /// True if measured goodput is not negligible, whatever was predicted.
    pub(crate) fn has_measured_goodput(&self) -> bool {
        self.point.goodput_rps > MIN_GOODPUT * self.point.capacity_rps
    }

    /// Relative error of the predicted goodput; `None` without a prediction or without goodput.
    pub(crate) fn prediction_error(&self) -> Option<f64> {
        let predicted = self.point.predicted_goodput_rps?;
        (self.point.goodput_rps > 0.0).then(|| predicted / self.point.goodput_rps - 1.0)
    }
}
