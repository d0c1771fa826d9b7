//! Samples of requests that the cores take for the efficiency signal: the time from a grant to the
//! response that it made possible, the requests in the server, and the late responses. Each core
//! counts in lines of its own; the slow half adds the lines up. Cores share one counter, the number
//! of classes, which changes at most once per class.
//!
//! The counts of requests in the server are kept per method, since requests of one method wait for
//! the same resources. There are [`CLASSES`] counts, which further methods share.

use leeward_core::server::{Departure, Outcome};
use leeward_core::sync::{Arc, AtomicU64, CachePadded, Ordering};
use leeward_core::units::{CreditId, Method, Nanos, Time};

/// Number of classes of methods. Few services have more methods that matter, and the slow half
/// reads all seen classes.
#[cfg(not(loom))]
pub(super) const CLASSES: usize = 16;
/// The smallest number of different classes.
#[cfg(loom)]
pub(super) const CLASSES: usize = 2;

/// Returns the class of a method.
pub(super) fn class_of(method: Method) -> usize {
    method.0 as usize % CLASSES
}

/// Counts of one core since the start. One core writes them. Sums of nanoseconds may wrap; their
/// differences stay right.
#[derive(Debug, Default)]
struct CoreCounters {
    classes: [ClassCounters; CLASSES],
    grants: AtomicU64,
    grant_nanos: AtomicU64,
    /// Requests whose session closed before the response. Their class is unknown.
    lost: AtomicU64,
    /// Time for which executed requests waited for a core, and the requests that these waits made
    /// late, in parts of [`WHOLE`]. Their class is unknown at the execution.
    waited_nanos: AtomicU64,
    late_by_wait: AtomicU64,
}

/// Parts in which requests are counted that a wait made late.
pub(super) const WHOLE: u64 = 256;

/// Counts of the requests of one class.
#[derive(Debug, Default)]
struct ClassCounters {
    received: AtomicU64,
    departures: AtomicU64,
    served: AtomicU64,
    served_nanos: AtomicU64,
    late: AtomicU64,
    above_percentile: AtomicU64,
}

/// Counts of all cores, and the values that the slow half sends to them.
#[derive(Debug)]
pub(super) struct Samples {
    cores: Box<[CachePadded<CoreCounters>]>,
    /// Highest class that has received a request, plus one. Classes below it may have received
    /// none.
    classes: CachePadded<AtomicU64>,
    /// Sojourn time of nearly all requests of a class, ns; cores count requests that stay longer.
    percentiles: CachePadded<[AtomicU64; CLASSES]>,
    /// The same time as reported to clients; zero for no report.
    client_percentile: CachePadded<AtomicU64>,
    /// Mean time in the server without the wait for a core, ns; zero if not known.
    mean_rest: CachePadded<AtomicU64>,
}

/// Sums over all cores since the start, or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Requests received.
    pub(super) received: u64,
    /// Requests that have left the server: answered, or with a closed session.
    pub(super) departures: u64,
    /// Responses whose grant was known.
    pub(super) grants: u64,
    /// Time from grant to response, summed over the responses in `grants`.
    pub(super) grant_nanos: u64,
    /// Responses.
    pub(super) served: u64,
    /// Time in the server, summed over the responses in `served`.
    pub(super) served_nanos: u64,
    /// Responses that were in the server for too long to be in time.
    pub(super) late: u64,
    /// Responses above the class's percentile ([`Samples::set_percentile`]).
    pub(super) above_percentile: u64,
    /// Time for which executed requests waited for a core.
    pub(super) waited_nanos: u64,
    /// Requests that waits for a core made late, in parts of [`WHOLE`].
    pub(super) late_by_wait: u64,
}

impl Samples {
    pub(super) fn new(cores: u32) -> Self {
        Samples {
            cores: (0..cores).map(|_| CachePadded(CoreCounters::default())).collect(),
            classes: CachePadded(AtomicU64::new(1)),
            percentiles: CachePadded(std::array::from_fn(|_| AtomicU64::new(0))),
            client_percentile: CachePadded(AtomicU64::new(0)),
            mean_rest: CachePadded(AtomicU64::new(0)),
        }
    }

    /// Sets the mean time in the server without the wait for a core, for the cores.
    pub(super) fn set_mean_rest(&self, mean: Nanos) {
        write(&self.mean_rest.0, mean.0);
    }

    /// Sets the sojourn time of nearly all requests of a class, for the cores.
    pub(super) fn set_percentile(&self, class: usize, sojourn: Nanos) {
        write(&self.percentiles.0[class], sojourn.0);
    }

    /// Sets the sojourn time that cores report to clients; zero for no report.
    pub(super) fn set_client_percentile(&self, sojourn: Nanos) {
        write(&self.client_percentile.0, sojourn.0);
    }

    /// Number of classes to read: the highest that has received a request, plus one; at least one.
    pub(super) fn classes(&self) -> usize {
        self.classes.0.load(Ordering::Relaxed) as usize
    }

    /// Sums over all requests.
    pub(super) fn totals(&self) -> Totals {
        (0..self.classes()).map(|class| self.class_totals(class)).fold(self.unclassified(), Totals::merge)
    }

    /// Sums of counts without a class: grants, waits for cores, and requests whose session closed
    /// before the response.
    pub(super) fn unclassified(&self) -> Totals {
        let mut totals = Totals::default();
        for CachePadded(line) in &self.cores {
            let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            totals = totals.merge(Totals {
                departures: read(&line.lost),
                grants: read(&line.grants),
                grant_nanos: read(&line.grant_nanos),
                waited_nanos: read(&line.waited_nanos),
                late_by_wait: read(&line.late_by_wait),
                ..Totals::default()
            });
        }
        totals
    }

    /// Sums over the requests of a class. Requests of closed sessions still count as in the server
    /// here.
    pub(super) fn class_totals(&self, class: usize) -> Totals {
        let mut totals = Totals::default();
        for CachePadded(line) in &self.cores {
            let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let counts = &line.classes[class];
            totals = totals.merge(Totals {
                received: read(&counts.received),
                departures: read(&counts.departures),
                served: read(&counts.served),
                served_nanos: read(&counts.served_nanos),
                late: read(&counts.late),
                above_percentile: read(&counts.above_percentile),
                ..Totals::default()
            });
        }
        totals
    }
}

impl Totals {
    /// Returns the sums of both.
    pub(super) fn merge(self, other: Totals) -> Totals {
        Totals {
            received: self.received.wrapping_add(other.received),
            departures: self.departures.wrapping_add(other.departures),
            grants: self.grants.wrapping_add(other.grants),
            grant_nanos: self.grant_nanos.wrapping_add(other.grant_nanos),
            served: self.served.wrapping_add(other.served),
            served_nanos: self.served_nanos.wrapping_add(other.served_nanos),
            late: self.late.wrapping_add(other.late),
            above_percentile: self.above_percentile.wrapping_add(other.above_percentile),
            waited_nanos: self.waited_nanos.wrapping_add(other.waited_nanos),
            late_by_wait: self.late_by_wait.wrapping_add(other.late_by_wait),
        }
    }

    pub(super) fn since(&self, earlier: &Totals) -> Totals {
        Totals {
            received: self.received.wrapping_sub(earlier.received),
            departures: self.departures.wrapping_sub(earlier.departures),
            grants: self.grants.wrapping_sub(earlier.grants),
            grant_nanos: self.grant_nanos.wrapping_sub(earlier.grant_nanos),
            served: self.served.wrapping_sub(earlier.served),
            served_nanos: self.served_nanos.wrapping_sub(earlier.served_nanos),
            late: self.late.wrapping_sub(earlier.late),
            above_percentile: self.above_percentile.wrapping_sub(earlier.above_percentile),
            waited_nanos: self.waited_nanos.wrapping_sub(earlier.waited_nanos),
            late_by_wait: self.late_by_wait.wrapping_sub(earlier.late_by_wait),
        }
    }

    /// Requests in the server. Cores go on counting during the read, so the number may be slightly
    /// wrong.
    pub(super) fn in_server(&self) -> u64 {
        (self.received.wrapping_sub(self.departures) as i64).max(0) as u64
    }

    /// Requests that waits for a core made late.
    pub(super) fn late_by_wait(&self) -> f64 {
        self.late_by_wait as f64 / WHOLE as f64
    }

    /// Mean time from a request's departure at its client to its response: the network's round trip
    /// and the time in the server. `None` without a response.
    pub(super) fn transit(&self, network: Nanos) -> Option<Nanos> {
        Some(network + Nanos(self.served_nanos.checked_div(self.served)?))
    }

    /// Mean end-to-end round trip, from a grant to the response that it made possible, while
    /// `issued` credits circulated for `elapsed`. `None` without a response.
    ///
    /// Clients send the credit ids, so this function trusts them only within the server's own
    /// knowledge. A round trip takes at least the transit. By Little's law the issued credits
    /// return after issued / (responses per time) on average.
    pub(super) fn round_trip(&self, network: Nanos, issued: u64, elapsed: Nanos) -> Option<Nanos> {
        let at_least = self.transit(network)?;
        let Some(measured) = self.grant_nanos.checked_div(self.grants) else { return Some(at_least) };
        let at_most = (u128::from(elapsed.0) * u128::from(issued) / u128::from(self.served)) as u64;
        Some(Nanos(measured.min(at_most)).max(at_least))
    }
}

/// One core's part of the samples: stamps grants and counts responses.
#[derive(Debug)]
pub(super) struct Sampler {
    samples: Arc<Samples>,
    core: usize,
    deadline: Nanos,
    /// Wait for a core that makes a request late by itself.
    long_wait: Nanos,
    /// Requests of each class that were rejected on arrival, and whose rejections have not left
    /// yet.
    rejected: [u32; CLASSES],
}

impl Sampler {
    /// Creates the sampler for the line of `core`. A response that was in the server for longer
    /// than `late` is late. A request that waited for a core for longer than `long` is late because
    /// of that wait.
    pub(super) fn new(samples: Arc<Samples>, core: usize, late: Nanos, long: Nanos) -> Self {
        Sampler { samples, core, deadline: late, long_wait: long, rejected: [0; CLASSES] }
    }

    /// Returns the credit id of a grant issued now: its time, so that no table of grants is needed.
    pub(super) fn stamp(&self, now: Time) -> CreditId {
        CreditId(now.0.max(1))
    }

    /// Sojourn time of nearly all requests, for clients; zero for no report.
    pub(super) fn client_percentile(&self) -> Nanos {
        Nanos(self.samples.client_percentile.0.load(Ordering::Relaxed))
    }

    /// Mean time in the server without the wait for a core; zero if not known.
    pub(super) fn mean_rest(&self) -> Nanos {
        Nanos(self.samples.mean_rest.0.load(Ordering::Relaxed))
    }

    /// Counts an arrival.
    pub(super) fn record_arrival(&self, method: Method) {
        let class = class_of(method);
        // Rare: once for each class.
        if class >= self.samples.classes() {
            self.samples.classes.0.fetch_max(class as u64 + 1, Ordering::Relaxed);
        }
        if let Some(line) = self.counters() {
            add(&line.classes[class].received, 1);
        }
    }

    /// Counts a request rejected on arrival. The request takes no slot while its rejection is still
    /// to leave.
    pub(super) fn record_rejection(&mut self, method: Method) {
        let class = class_of(method);
        self.rejected[class] = self.rejected[class].saturating_add(1);
        if let Some(line) = self.counters() {
            add(&line.classes[class].departures, 1);
        }
    }

    /// Counts an executed request that waited for a core for `delay`, and by how much that wait
    /// makes it likelier to be late. Nothing is known of the rest of its time but the mean; it
    /// counts as spread evenly from zero to twice that.
    pub(super) fn record_wait(&self, delay: Nanos) {
        let Some(line) = self.counters().filter(|_| delay > Nanos::ZERO) else { return };
        add(&line.waited_nanos, delay.0);
        let longest = self.mean_rest().0.saturating_mul(2);
        let more = delay.0.saturating_sub(self.deadline.0.saturating_sub(longest));
        let late =
            if delay > self.long_wait { WHOLE } else { more.saturating_mul(WHOLE).checked_div(longest).unwrap_or(0) };
        add(&line.late_by_wait, late.min(WHOLE));
    }

    /// Counts a closed session's pending requests, which will get no response.
    pub(super) fn record_close(&self, pending: u32) {
        if let Some(line) = self.counters() {
            add(&line.lost, pending.into());
        }
    }

    /// Counts a response or rejection that leaves.
    pub(super) fn record_departure(&mut self, method: Method, event: &Departure) {
        let class = class_of(method);
        if event.outcome != Outcome::Completed && self.rejected[class] > 0 {
            self.rejected[class] -= 1; // its departure was counted on arrival
            return;
        }
        let Some(line) = self.counters() else { return };
        let counts = &line.classes[class];
        add(&counts.departures, 1);
        if event.outcome != Outcome::Completed {
            return;
        }
        let percentile = self.samples.percentiles.0[class].load(Ordering::Relaxed);
        add(&counts.served, 1);
        add(&counts.served_nanos, event.sojourn.0);
        add(&counts.late, u64::from(event.sojourn > self.deadline));
        add(&counts.above_percentile, u64::from(event.sojourn.0 > percentile));
        if event.credit == CreditId::NONE {
            return;
        }
        // A grant can't be younger than the request that names it. Such an id is not from this
        // server.
        let elapsed = event.now.0.checked_sub(event.credit.0);
        if let Some(elapsed) = elapsed.filter(|elapsed| *elapsed >= event.sojourn.0) {
            add(&line.grants, 1);
            add(&line.grant_nanos, elapsed);
        }
    }
}

impl Sampler {
    fn counters(&self) -> Option<&CoreCounters> {
        self.samples.cores.get(self.core).map(|CachePadded(line)| line)
    }
}

/// Stores only a changed value: all cores read this line.
fn write(current: &AtomicU64, new: u64) {
    if current.load(Ordering::Relaxed) != new {
        current.store(new, Ordering::Relaxed);
    }
}

/// No read-modify-write: this core is the only writer.
fn add(counter: &AtomicU64, amount: u64) {
    if amount > 0 {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NETWORK: Nanos = Nanos::from_micros(10);

    fn sampler() -> (Arc<Samples>, Sampler) {
        let samples = Arc::new(Samples::new(2));
        let sampler = Sampler::new(Arc::clone(&samples), 1, Nanos::from_micros(190), Nanos::from_micros(140));
        (samples, sampler)
    }

    fn departure(now_us: u64, sojourn_us: u64, credit: CreditId) -> Departure {
        Departure {
            now: Time(now_us * 1_000),
            outcome: Outcome::Completed,
            sojourn: Nanos::from_micros(sojourn_us),
            credit,
        }
    }

    #[test]
    fn a_wait_counts_by_how_much_likelier_it_makes_a_late_response() {
        let (samples, sampler) = sampler();
        let count = |us| {
            let before = samples.totals();
            sampler.record_wait(Nanos::from_micros(us));
            samples.totals().since(&before).late_by_wait()
        };
        assert_eq!([0, 139, 140, 141, 200].map(count), [0.0, 0.0, 0.0, 1.0, 1.0]);
        samples.set_mean_rest(Nanos::from_micros(50));
        assert_eq!([0, 90, 115, 140, 141].map(count), [0.0, 0.0, 0.25, 0.5, 1.0], "the rest: up to 100 us");
        samples.set_mean_rest(Nanos::from_micros(1_000));
        assert_eq!([0, 125, 141].map(count), [0.0, 0.0625, 1.0], "nearly all are late without a wait");
        assert_eq!(samples.totals().waited_nanos, (139 + 140 + 141 + 200 + 90 + 115 + 140 + 141 + 125 + 141) * 1_000);
    }

    #[test]
    fn a_round_trip_lasts_from_the_grant_to_the_response() {
        let (samples, mut sampler) = sampler();
        let round_trip = |issued| samples.totals().round_trip(NETWORK, issued, Nanos::from_micros(100));
        assert_eq!(round_trip(10), None);
        sampler.record_departure(Method::DEFAULT, &departure(90, 20, CreditId::NONE));
        assert_eq!(round_trip(10), Some(Nanos::from_micros(30)), "without a grant: network and server");
        let grant = sampler.stamp(Time(100_000));
        sampler.record_departure(Method::DEFAULT, &departure(145, 20, grant));
        assert_eq!(round_trip(10), Some(Nanos::from_micros(45)));
    }

    #[test]
    fn a_forged_round_trip_is_bounded_by_littles_law() {
        let (samples, mut sampler) = sampler();
        for _ in 0..10 {
            sampler.record_departure(Method::DEFAULT, &departure(80_000_000, 20, CreditId(1)));
        }
        let round_trip = |issued| samples.totals().round_trip(NETWORK, issued, Nanos::from_micros(100));
        assert_eq!(round_trip(10), Some(Nanos::from_micros(100)), "10 responses in 100 us, and 10 credits out");
        assert_eq!(round_trip(0), Some(Nanos::from_micros(30)));
    }

    #[test]
    fn rejections_and_impossible_credit_ids_are_not_sampled() {
        let (samples, mut sampler) = sampler();
        sampler.record_departure(
            Method::DEFAULT,
            &Departure { outcome: Outcome::Rejected, ..departure(50, 20, CreditId(10_000)) },
        );
        assert_eq!((samples.totals().grants, samples.totals().served), (0, 0));
        for (credit, why) in [
            (CreditId(9_999_000), "from the future"),
            (CreditId(990_000), "younger than its own request"),
            (CreditId(u64::MAX), "nonsense"),
        ] {
            sampler.record_departure(Method::DEFAULT, &departure(1_000, 20, credit));
            assert_eq!(samples.totals().grants, 0, "{why}");
        }
    }

    #[test]
    fn in_server_is_arrivals_minus_departures() {
        let (samples, mut sampler) = sampler();
        (0..7).for_each(|_| sampler.record_arrival(Method::DEFAULT));
        sampler.record_departure(Method::DEFAULT, &departure(90, 20, CreditId::NONE));
        sampler.record_departure(
            Method::DEFAULT,
            &Departure { outcome: Outcome::Rejected, ..departure(90, 20, CreditId::NONE) },
        );
        sampler.record_close(3);
        assert_eq!(samples.totals().in_server(), 2);
        sampler.record_close(9);
        assert_eq!(samples.totals().in_server(), 0, "a plant that counts wrongly does no harm");
    }

    #[test]
    fn a_response_is_late_when_its_sojourn_exceeds_the_bound() {
        let (samples, mut sampler) = sampler();
        for sojourn_us in [20, 190, 191, 5_000] {
            sampler.record_departure(Method::DEFAULT, &departure(9_000, sojourn_us, CreditId::NONE));
        }
        assert_eq!((samples.totals().served, samples.totals().late), (4, 2));
    }

    #[test]
    fn a_rejected_request_takes_no_slot_and_is_counted_out_once() {
        let (samples, mut sampler) = sampler();
        let dropped = Departure { outcome: Outcome::Rejected, ..departure(90, 20, CreditId::NONE) };
        (0..3).for_each(|_| sampler.record_arrival(Method::DEFAULT));
        sampler.record_rejection(Method::DEFAULT);
        assert_eq!(samples.totals().in_server(), 2);
        sampler.record_departure(Method::DEFAULT, &dropped);
        assert_eq!(samples.totals().in_server(), 2, "its drop");
        sampler.record_departure(Method::DEFAULT, &dropped);
        assert_eq!(samples.totals().in_server(), 1, "one that was dropped when its turn came");
    }
}
