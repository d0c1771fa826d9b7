// Rates from counters, one point per second, kept for an hour. Does not touch the document.

/** Number of kept points: a little more than an hour. */
const KEPT = 3700;

/** Sums the counts of rejections by reason. */
function byReason(refused) {
  const sums = {};
  for (const { reason, count } of refused || []) sums[reason] = (sums[reason] || 0) + count;
  return sums;
}

/** Converts nanoseconds to seconds; an unknown value stays null. */
function seconds(ns) {
  return ns == null ? null : ns / 1e9;
}

/** Number of results later than the objective. */
function late(state) {
  return state.completed - state.in_time - (state.failed || 0);
}

/** Points of one server, one per second. A point has the rates since the previous one, or null. */
class Series {
  constructor() {
    this.points = [];
    this.raw = null;
  }

  /** Adds a state. Decreased counters mean a restarted server: its first point has no rates. */
  add(state) {
    const before = this.raw;
    const t = state.unix_ns / 1e9;
    // After a reconnect the port sends the past again.
    if (this.points.length && t <= this.last().t) return;
    this.raw = state;
    const refused = byReason(state.refused);
    const latency = state.latency || {};
    const point = {
      t, demand: null, goodput: null, late: null, failed: null, refusals: {}, busy: null,
      standing: state.standing_ns / 1e9, target: state.target_ns == null ? null : state.target_ns / 1e9,
      slo: state.slo_ns / 1e9, pool: state.credit_pool, issued: state.credits_issued, level: state.level,
      inFlight: state.in_flight, p50: seconds(latency.p50_ns), p99: seconds(latency.p99_ns), p999: seconds(latency.p999_ns),
    };
    const restarted = before && (state.arrived < before.arrived || state.uptime_ns < before.uptime_ns);
    if (before && !restarted) {
      const span = (state.uptime_ns - before.uptime_ns) / 1e9;
      if (span > 0) {
        const rate = (now, then) => Math.max(0, now - then) / span;
        point.demand = rate(state.arrived, before.arrived);
        point.goodput = rate(state.in_time, before.in_time);
        point.late = rate(late(state), late(before));
        point.failed = rate(state.failed || 0, before.failed || 0);
        const then = byReason(before.refused);
        for (const reason of Object.keys(refused)) point.refusals[reason] = rate(refused[reason], then[reason] || 0);
        if (state.cores > 0) point.busy = Math.min(1, Math.max(0, 1 - rate(state.idle_ns, before.idle_ns) / 1e9 / state.cores));
      }
    }
    this.points.push(point);
    if (this.points.length > KEPT) this.points.splice(0, this.points.length - KEPT);
  }

  /** Starts a gap: the next point has no rates. */
  gap() {
    this.raw = null;
  }

  /** Points from `begin` to `end`, in seconds since 1970. */
  between(begin, end) {
    return this.points.filter((point) => point.t >= begin && point.t <= end);
  }

  first() {
    return this.points[0];
  }

  last() {
    return this.points[this.points.length - 1];
  }
}

/** Formats a number briefly, such as 1.23k. */
function short(value) {
  if (value == null || Number.isNaN(value)) return "–";
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size) return (value / size).toPrecision(3) + letter;
  }
  return Number.isInteger(value) || Math.abs(value) >= 100 ? String(Math.round(value)) : value.toPrecision(2);
}

/** Formats a duration, given in seconds, with a readable unit. */
function span(seconds) {
  if (seconds == null) return "–";
  for (const [size, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
    if (Math.abs(seconds) >= size) return Number((seconds / size).toPrecision(3)) + " " + unit;
  }
  return seconds === 0 ? "0" : Math.round(seconds * 1e9) + " ns";
}
