//! Decisions of threading policies, and the threading part of a header, as bytes. Does not contain
//! other parts of a recording.

use std::sync::Arc;

use super::bytes::{Bytes, DecodeError, put, put_params, put_signed, put_text};
use super::entry::Entry;
use leeward_core::params::{ParamError, Params, RawParam};
use leeward_core::units::{Nanos, Rate, Time};
use leeward_threading::curves::{CURVES_MAX, Curve, CurvePoint, Curves, POINTS_MAX};
use leeward_threading::{
    ArrivalWindow, LatencyWindow, PolicySpec, ThreadEnvironment, ThreadSignals, ThreadingPolicy, ThreadingSetup,
    WINDOW_MAX, registry,
};

/// Threading policy of the recorded run, with its parameters and environment, including the curves.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadingHeader {
    /// The policy's name.
    pub policy: String,
    /// The set parameters; all others have their defaults.
    pub params: Vec<(String, RawParam)>,
    /// The environment.
    pub environment: ThreadEnvironment,
}

impl ThreadingHeader {
    /// Creates the header of a policy before it is built.
    pub fn new(policy: &PolicySpec, params: &Params, environment: &ThreadEnvironment) -> Self {
        ThreadingHeader {
            policy: policy.name.into(),
            params: params.pairs().map(|(name, raw)| (name.into(), raw)).collect(),
            environment: environment.clone(),
        }
    }

    /// Builds the recorded policy with its parameters.
    pub(super) fn build(&self) -> Result<Box<dyn ThreadingPolicy>, ParamError> {
        let spec = registry::find(&self.policy).map_err(|error| ParamError::Conflict(error.to_string()))?;
        let pairs: Vec<(&str, RawParam)> = self.params.iter().map(|(name, raw)| (name.as_str(), raw.clone())).collect();
        spec.build(&spec.params(&pairs)?, &self.environment)
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_text(out, &self.policy);
        put_params(&self.params, out);
        let ThreadEnvironment { curves, initial: first, cpus, slo, target, switch_cost: cost } = &self.environment;
        put_text(out, &first.to_string());
        put(out, (*cpus).into());
        put(out, slo.map_or(0, |slo| slo.0.saturating_add(1)));
        put(out, target.0);
        put(out, cost.0);
        let all = curves.as_ref().map_or(&[][..], |curves| curves.all());
        put(out, all.len() as u64);
        for curve in all {
            put_text(out, &curve.setup.to_string());
            put_number(out, curve.max_load);
            put(out, curve.points.len() as u64);
            for point in &curve.points {
                let CurvePoint { load, p50_us, p99_us, p999_us, cpu, samples, spread } = *point;
                [load, p50_us, p99_us, p999_us, cpu, spread].iter().for_each(|number| put_number(out, *number));
                put(out, samples);
            }
        }
    }

    pub(super) fn read(bytes: &mut Bytes<'_>) -> Result<Self, DecodeError> {
        let (policy, params) = (bytes.text()?, bytes.params()?);
        let first = setup(bytes)?;
        let cpus = u16::try_from(bytes.number()?).map_err(|_| "an impossible number of CPUs")?;
        let slo = bytes.number()?.checked_sub(1).map(Nanos);
        let (target, cost) = (Nanos(bytes.number()?), Nanos(bytes.number()?));
        let count = bytes.number()?;
        if count > CURVES_MAX as u64 {
            return Err("too many curves");
        }
        let curves = (0..count).map(|_| curve(bytes)).collect::<Result<Vec<Curve>, DecodeError>>()?;
        let curves = match curves.is_empty() {
            true => None,
            false => Some(Arc::new(Curves::new(curves).map_err(|_| "curves that can't be")?)),
        };
        let environment = ThreadEnvironment { curves, initial: first, cpus, slo, target, switch_cost: cost };
        Ok(ThreadingHeader { policy, params, environment })
    }
}

fn curve(bytes: &mut Bytes<'_>) -> Result<Curve, DecodeError> {
    let (setup, limit, count) = (setup(bytes)?, number(bytes)?, bytes.number()?);
    if count > POINTS_MAX as u64 {
        return Err("a curve has too many knots");
    }
    let point = |bytes: &mut Bytes<'_>| {
        let mut numbers = [0.0; 6];
        for place in &mut numbers {
            *place = number(bytes)?;
        }
        let [load, p50_us, p99_us, p999_us, cpu, spread] = numbers;
        Ok::<_, DecodeError>(CurvePoint { load, p50_us, p99_us, p999_us, cpu, samples: bytes.number()?, spread })
    };
    let curve_points = (0..count).map(|_| point(bytes)).collect::<Result<Vec<CurvePoint>, DecodeError>>()?;
    Ok(Curve { setup, points: curve_points, max_load: limit })
}

/// Encodes a decision without its time.
pub(super) fn encode(signals: &ThreadSignals, wanted: Option<ThreadingSetup>, timeout: Time, out: &mut Vec<u8>) {
    let ThreadSignals {
        now,
        arrivals,
        offered,
        demand,
        rejected: rejections,
        oldest_wait: oldest,
        waiting,
        in_flight,
        ..
    } = signals;
    put(out, arrivals.total());
    put(out, arrivals.len() as u64);
    // Each time stamp is slightly before its successor, and the latest is slightly before now.
    let mut after = now.0;
    for stamp in arrivals.stamps().iter().rev() {
        put_signed(out, after.wrapping_sub(stamp.0) as i64);
        after = stamp.0;
    }
    put_number(out, offered.0);
    out.push(u8::from(demand.is_some()));
    if let Some(demand) = demand {
        put_number(out, demand.0);
    }
    let ThreadSignals {
        blocked,
        runnable,
        cpus,
        latencies: seen,
        completions: ended,
        late,
        cpu_permille,
        current,
        current_since: since,
        ..
    } = signals;
    let numbers = [
        *rejections,
        oldest.0,
        (*waiting).into(),
        (*in_flight).into(),
        (*blocked).into(),
        (*runnable).into(),
        (*cpus).into(),
        seen.window,
        seen.samples.into(),
        seen.p50.0,
        seen.p99.0,
        *ended,
        *late,
        (*cpu_permille).into(),
    ];
    numbers.iter().for_each(|number| put(out, *number));
    put_text(out, &current.to_string());
    put_signed(out, now.0.wrapping_sub(since.0) as i64);
    // Mostly never, which is no distance and therefore has its own code.
    put(out, if timeout == Time::NEVER { 0 } else { timeout.0.wrapping_sub(now.0).wrapping_add(1) });
    if let Some(wanted) = wanted {
        put_text(out, &wanted.to_string());
    }
}

pub(super) fn decode(now: Time, is_wanted: bool, bytes: &mut Bytes<'_>) -> Result<Entry, DecodeError> {
    let (total, count) = (bytes.number()?, bytes.number()?);
    if count > WINDOW_MAX as u64 {
        return Err("a window has too many arrivals");
    }
    let mut stamps = [Time::ZERO; WINDOW_MAX];
    let mut after = now.0;
    for index in (0..count as usize).rev() {
        after = after.wrapping_sub(bytes.signed()? as u64);
        stamps[index] = Time(after);
    }
    let stamps = &stamps[..count as usize];
    if !stamps.is_sorted() {
        return Err("arrivals are not in order");
    }
    let mut signals = ThreadSignals::idle(now, ThreadingSetup::Cores(1));
    signals.arrivals = ArrivalWindow::new(stamps.iter().copied(), total);
    signals.offered = Rate(number(bytes)?);
    signals.demand = match bytes.byte()? {
        0 => None,
        1 => Some(Rate(number(bytes)?)),
        _ => return Err("a demand is neither told nor not"),
    };
    (signals.rejected, signals.oldest_wait) = (bytes.number()?, Nanos(bytes.number()?));
    (signals.waiting, signals.in_flight) = (bytes.small()?, bytes.small()?);
    (signals.blocked, signals.runnable, signals.cpus) = (tiny(bytes)?, tiny(bytes)?, tiny(bytes)?);
    let (window, samples) = (bytes.number()?, bytes.small()?);
    signals.latencies = LatencyWindow { window, samples, p50: Nanos(bytes.number()?), p99: Nanos(bytes.number()?) };
    (signals.completions, signals.late) = (bytes.number()?, bytes.number()?);
    signals.cpu_permille = bytes.small()?;
    signals.current = setup(bytes)?;
    signals.current_since = Time(now.0.wrapping_sub(bytes.signed()? as u64));
    let timeout = match bytes.number()? {
        0 => Time::NEVER,
        after => Time(now.0.wrapping_add(after - 1)),
    };
    let wanted = is_wanted.then(|| setup(bytes)).transpose()?;
    Ok(Entry::Threading { signals, wanted, timeout })
}

fn setup(bytes: &mut Bytes<'_>) -> Result<ThreadingSetup, DecodeError> {
    bytes.text()?.parse().map_err(|_| "a setup that is none")
}

fn tiny(bytes: &mut Bytes<'_>) -> Result<u16, DecodeError> {
    u16::try_from(bytes.number()?).map_err(|_| "a number of threads is longer than 16 bits")
}

fn put_number(out: &mut Vec<u8>, number: f64) {
    out.extend_from_slice(&number.to_bits().to_le_bytes());
}

fn number(bytes: &mut Bytes<'_>) -> Result<f64, DecodeError> {
    bytes.word().map(f64::from_bits)
}
