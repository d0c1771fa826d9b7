//! Offset and drift between the clocks of two processes, from their calls.
//!
//! A call is sent before its request starts in the other process, and answered after that request
//! ends. So each call bounds the offset of the clocks from both sides. The offset is a line over
//! time, and the result is the line with the greatest distance from all bounds.
//!
//! Does not read traces.

use serde::Serialize;

/// Greatest drift between two clocks: 1,000 parts per million, twice what computers' clocks do.
const DRIFT_MAX: f64 = 1e-3;
/// A request may end in its process a moment after its answer was received. Bounds that contradict
/// each other by no more than this are used.
const TOLERANCE: f64 = 100_000.0;
/// Limit of the pieces of time for the robust estimate.
const PIECES: usize = 64;
/// Steps of the search for the drift: each divides the range by 1.5.
const STEPS: usize = 80;

/// A call and the request that it caused, each by the clock of its own process, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPair {
    /// Time at which the caller sent the call.
    pub sent: u64,
    /// Time at which the caller received the answer.
    pub answered: u64,
    /// Start of the request in the other process.
    pub start: u64,
    /// End of the request in the other process.
    pub end: u64,
}

impl ClockPair {
    /// Returns whether the request lasted longer than the call: the caller did not await it.
    pub(super) fn is_given_up(&self) -> bool {
        let of_request = self.end.saturating_sub(self.start);
        of_request > self.answered.saturating_sub(self.sent).saturating_add(TOLERANCE as u64)
    }
}

/// Relation of the clock of a called process to its caller's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClockOffset {
    /// A time of the caller's clock, in nanoseconds.
    pub at: u64,
    /// Nanoseconds that the other clock is ahead at that time.
    pub ahead: i64,
    /// Nanoseconds that the other clock gains per nanosecond.
    pub drift: f64,
    /// The true offset may differ by so many nanoseconds.
    pub uncertainty: u64,
}

impl ClockOffset {
    /// Both processes use the same clock.
    pub const SAME: ClockOffset = ClockOffset { at: 0, ahead: 0, drift: 0.0, uncertainty: 0 };

    /// Converts a time of the caller's clock to the other one.
    pub fn to_called(&self, time: u64) -> u64 {
        let since = time as i128 - i128::from(self.at);
        clamp(time as i128 + i128::from(self.ahead) + (since as f64 * self.drift) as i128)
    }

    /// Converts a time of the other clock to the caller's.
    pub fn to_caller(&self, time: u64) -> u64 {
        let since = time as i128 - i128::from(self.ahead) - i128::from(self.at);
        clamp(i128::from(self.at) + since - (since as f64 * (self.drift / (1.0 + self.drift))) as i128)
    }
}

fn clamp(time: i128) -> u64 {
    time.clamp(0, i128::from(u64::MAX)) as u64
}

/// Result of an alignment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Alignment {
    /// The clocks' relation.
    pub offset: ClockOffset,
    /// Number of calls that were compared.
    pub calls: usize,
    /// Number of them that contradict the others.
    pub contradicting: usize,
}

/// Bounds of one call, relative to a reference: times in seconds, offsets in nanoseconds.
#[derive(Clone, Copy)]
struct Bounds {
    sent: f64,
    answered: f64,
    /// The offset at `sent` is no greater.
    upper: f64,
    /// The offset at `answered` is no less.
    lower: f64,
}

impl Bounds {
    fn middle(&self) -> f64 {
        (self.upper + self.lower) / 2.0
    }

    fn width(&self) -> f64 {
        self.upper - self.lower
    }
}

/// Returns the relation of the clocks; `None` if no call bounds it.
///
/// Calls that contradict most others are left out and counted.
pub fn align(pairs: &[ClockPair]) -> Option<Alignment> {
    let first = pairs.iter().min_by_key(|pair| pair.sent)?;
    let (origin, base) = (first.sent, i128::from(first.start) - i128::from(first.sent));
    let relative = |time: u64| (i128::from(time) - i128::from(origin)) as f64;
    let ahead = |other: u64, own: u64| (i128::from(other) - i128::from(own) - base) as f64;
    let all: Vec<Bounds> = pairs
        .iter()
        .map(|pair| Bounds {
            sent: relative(pair.sent) / 1e9,
            answered: relative(pair.answered) / 1e9,
            upper: ahead(pair.start, pair.sent),
            lower: ahead(pair.end, pair.answered),
        })
        .filter(|one| one.answered >= one.sent && one.width() >= -TOLERANCE)
        .collect();
    let estimate = estimate(&all)?;
    let distance = |one: &Bounds| (one.lower - estimate.at(one.answered)).max(estimate.at(one.sent) - one.upper);
    let kept: Vec<Bounds> = all.iter().filter(|one| distance(one) <= estimate.error + TOLERANCE).copied().collect();
    let (line, margin) = widest(&kept)?;
    let middle = kept.iter().map(|one| one.sent).fold(f64::MIN, f64::max) / 2.0;
    let offset = ClockOffset {
        at: clamp(i128::from(origin) + (middle * 1e9) as i128),
        ahead: i64::try_from(base + line.at(middle).round() as i128).ok()?,
        drift: line.slope / 1e9,
        uncertainty: margin.abs() as u64,
    };
    Some(Alignment { offset, calls: pairs.len(), contradicting: pairs.len() - kept.len() })
}

/// Returns how many calls contradict that both processes use the same clock.
pub(super) fn contradict_same_clock(pairs: &[ClockPair]) -> usize {
    let tolerance = TOLERANCE as u64;
    let contradicts = |pair: &&ClockPair| {
        pair.start.saturating_add(tolerance) < pair.sent || pair.end > pair.answered.saturating_add(tolerance)
    };
    pairs.iter().filter(contradicts).count()
}

/// A line: nanoseconds over seconds.
#[derive(Clone, Copy)]
struct Line {
    value: f64,
    slope: f64,
    /// Likely error in nanoseconds.
    error: f64,
}

impl Line {
    fn at(&self, time: f64) -> f64 {
        self.value + self.slope * time
    }
}

/// Estimates the offset so that up to half of the calls may be wrong.
///
/// In each piece of time it takes the median of the quickest calls; the line is the median of
/// those.
fn estimate(all: &[Bounds]) -> Option<Line> {
    let from = all.iter().map(|one| one.sent).reduce(f64::min)?;
    let to = all.iter().map(|one| one.sent).reduce(f64::max)?;
    let pieces = (all.len() / 4).clamp(all.len().min(4), PIECES);
    let length = ((to - from) / pieces as f64).max(f64::MIN_POSITIVE);
    let mut by_piece: Vec<Vec<Bounds>> = vec![Vec::new(); pieces];
    for one in all {
        by_piece[(((one.sent - from) / length) as usize).min(pieces - 1)].push(*one);
    }
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut widths: Vec<f64> = Vec::new();
    for mut piece in by_piece.into_iter().filter(|piece| !piece.is_empty()) {
        piece.sort_by(|a, b| a.width().total_cmp(&b.width()));
        piece.truncate(piece.len().div_ceil(4).max(3));
        widths.push(median(piece.iter().map(Bounds::width).collect()));
        let time = median(piece.iter().map(|one| (one.sent + one.answered) / 2.0).collect());
        points.push((time, median(piece.iter().map(Bounds::middle).collect())));
    }
    let mut slopes = Vec::new();
    for (index, (time, value)) in points.iter().enumerate() {
        for (later, other) in points[index + 1..].iter().filter(|(later, _)| later > time) {
            slopes.push((other - value) / (later - time));
        }
    }
    let error = median(widths).abs();
    // Within a short recording the errors are greater than any drift.
    let limit = DRIFT_MAX * 1e9;
    let slope = if slopes.is_empty() { 0.0 } else { median(slopes) };
    let slope = if slope.abs() > limit { 0.0 } else { slope };
    let value = median(points.iter().map(|(time, value)| value - slope * time).collect());
    Some(Line { value, slope, error: error + limit.min(slope.abs()) * length })
}

fn median(mut values: Vec<f64>) -> f64 {
    let middle = values.len() / 2;
    if values.is_empty() {
        return 0.0;
    }
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// Finds the line with the greatest distance from all bounds, and that distance: negative if the
/// bounds contradict each other.
///
/// For a fixed drift the distance follows from the extremes. It is a concave function of the drift.
fn widest(all: &[Bounds]) -> Option<(Line, f64)> {
    if all.is_empty() {
        return None;
    }
    let uppers = hull(all.iter().map(|one| (one.sent, one.upper)).collect(), true);
    let lowers = hull(all.iter().map(|one| (one.answered, one.lower)).collect(), false);
    let range = |slope: f64| {
        let high = uppers.iter().map(|(time, value)| value - slope * time).fold(f64::MAX, f64::min);
        let low = lowers.iter().map(|(time, value)| value - slope * time).fold(f64::MIN, f64::max);
        (low, high)
    };
    let margin = |slope: f64| {
        let (low, high) = range(slope);
        (high - low) / 2.0
    };
    let (mut left, mut right) = (-DRIFT_MAX * 1e9, DRIFT_MAX * 1e9);
    for _ in 0..STEPS {
        let (a, b) = (left + (right - left) / 3.0, right - (right - left) / 3.0);
        if margin(a) < margin(b) { left = a } else { right = b }
    }
    let middle = (left + right) / 2.0;
    // No drift unless the bounds ask for one: a single call bounds no drift.
    let slope = if margin(0.0) >= margin(middle) { 0.0 } else { middle };
    let (low, high) = range(slope);
    Some((Line { value: (low + high) / 2.0, slope, error: 0.0 }, margin(slope)))
}

/// Returns the points on the lower or upper convex hull: only these can bound a line.
fn hull(mut points: Vec<(f64, f64)>, lower: bool) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let sign = if lower { 1.0 } else { -1.0 };
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for point in points {
        while let [.., a, b] = hull[..] {
            let turn = (b.0 - a.0) * (point.1 - a.1) - (b.1 - a.1) * (point.0 - a.0);
            if turn * sign > 0.0 {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    hull
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_testkit::random::Random;
    use proptest::prelude::*;

    /// Calls between two clocks with a known relation, in the order of time.
    fn pairs(truth: ClockOffset, count: u64, apart: u64, delay: u64, seed: u64) -> Vec<ClockPair> {
        let mut random = Random::new(seed);
        let mut of = |most: u64| 1 + random.below(most as usize) as u64;
        let mut pairs = Vec::new();
        for index in 0..count {
            let sent = 1_000_000_000_000 + index * apart;
            let start = sent + of(delay);
            let end = start + of(delay * 10);
            let answered = end + of(delay);
            pairs.push(ClockPair { sent, answered, start: truth.to_called(start), end: truth.to_called(end) });
        }
        pairs
    }

    fn truth() -> impl Strategy<Value = ClockOffset> {
        (-900_000_000_000_i64..900_000_000_000, -200_i32..200).prop_map(|(ahead, ppm)| ClockOffset {
            at: 1_000_000_000_000,
            ahead,
            drift: f64::from(ppm) * 1e-6,
            uncertainty: 0,
        })
    }

    proptest! {
        #[test]
        fn the_true_offset_is_recovered_within_the_delays(
            truth in truth(), count in 1_u64..300, apart in 1_000_000_u64..2_000_000_000, delay in 100_u64..1_000_000, seed: u64,
        ) {
            let pairs = pairs(truth, count, apart, delay, seed);
            let found = align(&pairs).unwrap();
            prop_assert_eq!(found.contradicting, 0);
            for pair in &pairs {
                // Both the truth and the result respect the bounds of each call.
                let (at, start) = (found.offset.to_called(pair.sent), found.offset.to_called(pair.answered));
                prop_assert!(at <= pair.start + 3 && start + 3 >= pair.end, "{:?} {:?}", found, pair);
                let error = at.abs_diff(truth.to_called(pair.sent));
                let width = pair.answered - pair.sent - (pair.end - pair.start).min(pair.answered - pair.sent);
                // The drift moves the bounds by a little between both ends of a call.
                prop_assert!(error <= width + delay / 100 + 3, "{} of {}", error, width);
            }
        }

        #[test]
        fn a_few_wrong_pairs_do_not_matter(truth in truth(), seed: u64, wrong in 1_u64..10) {
            let mut pairs = pairs(truth, 100, 10_000_000, 20_000, seed);
            let mut random = Random::new(seed);
            for index in 0..wrong {
                let pair = &mut pairs[(index * 10) as usize];
                let shift = 1_000_000 + random.below(1_000_000_000) as u64;
                (pair.start, pair.end) = (pair.start + shift, pair.end + shift);
            }
            let found = align(&pairs).unwrap();
            prop_assert_eq!(found.contradicting as u64, wrong);
            let at = 1_000_500_000_000;
            prop_assert!(found.offset.to_called(at).abs_diff(truth.to_called(at)) <= 60_000, "{:?}", found);
        }

        #[test]
        fn conversions_reverse_each_other(offset in truth(), time in 1_000_000_000_000_u64..9_000_000_000_000) {
            let there = offset.to_called(time);
            prop_assert!(offset.to_caller(there).abs_diff(time) <= 2);
        }

        #[test]
        fn any_pairs_are_survived(raw in prop::collection::vec(any::<[u64; 4]>(), 0..40)) {
            let pairs: Vec<ClockPair> =
                raw.into_iter().map(|[sent, answered, start, end]| ClockPair { sent, answered, start, end }).collect();
            if let Some(found) = align(&pairs) {
                prop_assert!(found.contradicting <= found.calls);
                found.offset.to_caller(found.offset.to_called(7));
            }
            contradict_same_clock(&pairs);
        }
    }

    #[test]
    fn a_clock_that_is_shared_is_recognised() {
        let same = pairs(ClockOffset::SAME, 100, 1_000_000, 1_000, 1);
        assert_eq!(contradict_same_clock(&same), 0);
        let other = ClockOffset { ahead: 5_000_000, ..ClockOffset::SAME };
        assert_eq!(contradict_same_clock(&pairs(other, 100, 1_000_000, 1_000, 1)), 100);
    }
}
