//! The best setup for each load, computed once: a decision then looks up one interval, for any
//! number of setups.

use super::{Curve, Curves, TailPercentile};
use leeward_core::units::{Nanos, Rate};

/// Criterion for the best setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Least predicted tail latency.
    Latency(TailPercentile),
    /// Least CPU among the setups whose predicted tail is at most this; without such a setup, least
    /// latency.
    Cpu(TailPercentile, Nanos),
}

impl Objective {
    fn tail(self) -> TailPercentile {
        match self {
            Objective::Latency(tail) | Objective::Cpu(tail, _) => tail,
        }
    }
}

/// The best setup by load.
#[derive(Clone, Debug)]
pub struct Envelope {
    curves: Curves,
    objective: Objective,
    /// Part of a setup's maximum load up to which it is chosen.
    margin: f64,
    /// Start of each interval, ascending, the first at 0.
    starts: Vec<f64>,
    /// Index of the interval's best curve.
    best: Vec<u16>,
}

/// A line over an interval: value at its start and slope.
#[derive(Clone, Copy)]
struct Line {
    curve: usize,
    start_value: f64,
    slope: f64,
}

impl Envelope {
    /// Computes the envelope. No setup is chosen beyond `margin` (0 to 1) of its maximum load,
    /// unless none is left.
    pub fn new(curves: Curves, objective: Objective, margin: f64) -> Self {
        let mut envelope = Envelope { curves, objective, margin, starts: Vec::new(), best: Vec::new() };
        let mut bends: Vec<f64> = vec![0.0];
        for curve in envelope.curves.all() {
            bends.extend(curve.points.iter().map(|point| point.load));
            bends.push(curve.max_load * margin);
        }
        bends.sort_by(f64::total_cmp);
        bends.dedup();
        // Nothing changes beyond the last bend.
        let last = bends.last().copied().unwrap_or(0.0);
        bends.push(last * 2.0 + 1.0);
        for pair in bends.windows(2) {
            envelope.add_interval(pair[0], pair[1]);
        }
        envelope
    }

    /// Returns the curves of the envelope.
    pub fn curves(&self) -> &Curves {
        &self.curves
    }

    /// Returns the best curve at this load. A load of NaN counts as zero.
    pub fn best(&self, load: Rate) -> &Curve {
        self.curve(self.interval(load))
    }

    /// Returns the index of the best curve at this load, and the greatest lower load at which
    /// another curve is best; `None` if the curve is the best down to zero load.
    pub fn best_and_crossing(&self, load: Rate) -> (usize, Option<Rate>) {
        let interval = self.interval(load);
        (usize::from(self.best[interval]), (interval > 0).then(|| Rate(self.starts[interval])))
    }

    /// Returns the intervals: the start of each, and its best curve.
    pub fn intervals(&self) -> impl Iterator<Item = (Rate, &Curve)> {
        self.starts.iter().enumerate().map(|(interval, from)| (Rate(*from), self.curve(interval)))
    }

    /// Whether a setup may be chosen at this load.
    pub fn is_eligible(&self, curve: &Curve, load: Rate) -> bool {
        load.0 <= curve.max_load * self.margin
    }

    /// Number that the objective compares, smaller is better; `None` if the setup is not eligible.
    pub fn score(&self, curve: &Curve, load: Rate) -> Option<f64> {
        if !self.is_eligible(curve, load) {
            return None;
        }
        let latency = curve.latency(self.objective.tail(), load)?;
        match self.objective {
            Objective::Latency(_) => Some(latency.0 as f64),
            // A setup that is too slow ranks after all that are quick enough.
            Objective::Cpu(_, max) if latency <= max => curve.cpu(load),
            Objective::Cpu(..) => Some(1e15 + latency.0 as f64),
        }
    }

    fn interval(&self, load: Rate) -> usize {
        self.starts.partition_point(|from| *from <= load.0).saturating_sub(1)
    }

    fn curve(&self, interval: usize) -> &Curve {
        &self.curves.all()[usize::from(self.best[interval])]
    }

    /// Adds the best curves within `from..to`, where every curve is a line.
    fn add_interval(&mut self, from: f64, to: f64) {
        // In the middle, so that no point and no limit is met exactly.
        let middle = from + (to - from) / 2.0;
        let eligible: Vec<usize> = (0..self.curves.all().len())
            .filter(|index| self.is_eligible(&self.curves.all()[*index], Rate(middle)))
            .collect();
        if eligible.is_empty() {
            let strongest = self.curves.strongest().setup;
            let index = self.curves.all().iter().position(|curve| curve.setup == strongest);
            self.push(from, index.unwrap_or(0));
            return;
        }
        let tails = self.lines(&eligible, from, to, |curve, load| match self.objective.tail() {
            TailPercentile::P99 => curve.interpolate(load, |point| point.p99_us),
            TailPercentile::P999 => curve.interpolate(load, |point| point.p999_us),
        });
        let Objective::Cpu(_, max) = self.objective else { return self.add_lines(&tails, from, to) };
        let max = max.as_micros_f64();
        let cpus = self.lines(&eligible, from, to, |curve, load| curve.interpolate(load, |point| point.cpu));
        // The choice may change at a load where a setup becomes too slow.
        let mut cuts: Vec<f64> = tails.iter().filter_map(|line| line.crossing(max, from, to)).collect();
        cuts.extend([from, to]);
        cuts.sort_by(f64::total_cmp);
        cuts.dedup();
        for pair in cuts.windows(2) {
            let (begin, middle) = (pair[0] - from, (pair[0] + pair[1]) / 2.0 - from);
            let quick: Vec<Line> =
                tails.iter().zip(&cpus).filter(|(tail, _)| tail.value(middle) <= max).map(|(_, cpu)| *cpu).collect();
            let lines = if quick.is_empty() { &tails } else { &quick };
            let moved: Vec<Line> = lines.iter().map(|line| Line { start_value: line.value(begin), ..*line }).collect();
            self.add_lines(&moved, pair[0], pair[1]);
        }
    }

    fn lines(&self, indexes: &[usize], from: f64, to: f64, value: impl Fn(&Curve, f64) -> f64) -> Vec<Line> {
        let line = |index: &usize| {
            let curve = &self.curves.all()[*index];
            let (at, end) = (value(curve, from), value(curve, to));
            // Beyond the last point a curve is level; `to` is the next bend, at most the last
            // point.
            Line { curve: *index, start_value: at, slope: (end - at) / (to - from) }
        };
        indexes.iter().map(line).collect()
    }

    /// Adds the lower envelope of lines over `from..to`, from each crossing to the next.
    fn add_lines(&mut self, lines: &[Line], from: f64, to: f64) {
        let (mut at, mut now) = (0.0, None::<Line>);
        let lowest = |at: f64| {
            lines.iter().copied().reduce(|a, b| {
                let order = b.value(at).total_cmp(&a.value(at)).then(b.slope.total_cmp(&a.slope));
                if order.is_lt() { b } else { a }
            })
        };
        // Each line is the lowest at most once.
        for _ in 0..=lines.len() {
            let Some(best) = now.or_else(|| lowest(at)) else { return };
            self.push(from + at, best.curve);
            let crossing = |line: &Line| {
                let crossing = (line.start_value - best.start_value) / (best.slope - line.slope);
                (line.slope < best.slope && crossing > at && from + crossing < to).then_some((crossing, *line))
            };
            let first = lines.iter().filter_map(crossing).reduce(|a, b| {
                let order = b.0.total_cmp(&a.0).then(b.1.slope.total_cmp(&a.1.slope));
                if order.is_lt() { b } else { a }
            });
            let Some((crossing, next)) = first else { return };
            (at, now) = (crossing, Some(next));
        }
    }

    fn push(&mut self, from: f64, index: usize) {
        let index = index as u16;
        if self.best.last() == Some(&index) {
            return;
        }
        if self.starts.last() == Some(&from) {
            self.best.pop();
            self.starts.pop();
            return self.push(from, usize::from(index));
        }
        self.starts.push(from);
        self.best.push(index);
    }
}

impl Line {
    fn value(&self, distance: f64) -> f64 {
        self.start_value + self.slope * distance
    }

    /// Load strictly between `from` and `to` at which the line has this value.
    fn crossing(&self, value: f64, from: f64, to: f64) -> Option<f64> {
        let load = from + (value - self.start_value) / self.slope;
        (load > from && load < to).then_some(load)
    }
}
