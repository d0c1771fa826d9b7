//! Invariants of the dispatcher after any history, against a naive list of the waiting requests.
//! Does not contain the limits.

use leeward_concurrency::dispatch::{
    Answer, Arrival, Dispatch, DispatchSettings, Dispatcher, QueueKey, QueuedRequest, Refusal,
};
use leeward_concurrency::{ConcurrencyLimit, Outcome, Response, Tick};
use leeward_core::units::{Nanos, Tenant, Time};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const OBJECTIVE: Nanos = Nanos::from_millis(50);
const CAPACITY: usize = 12;
const BYTES: usize = 4_000;
/// Time at the backend of every request, so that the rate is known exactly.
const SOJOURN: Nanos = Nanos::from_millis(1);

/// A limit that steps through numbers, one per tick.
struct Stepping {
    limits: Vec<u32>,
    at: usize,
}

impl ConcurrencyLimit for Stepping {
    fn limit(&self) -> u32 {
        self.limits[self.at % self.limits.len()]
    }

    fn on_dispatch(&mut self, _: Time, _: u32) {}

    fn on_response(&mut self, _: &Response) {}

    fn on_tick(&mut self, _: &Tick) {
        self.at += 1;
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arrive {
        class: u8,
        tenant: u32,
        timeout_ms: Option<u64>,
        bytes: usize,
    },
    /// An answer to the request of this number, modulo those at the backends, and its end.
    Answer(usize),
    /// A failure of it, and its end.
    Fail(usize),
    /// The end of a request without an answer.
    Abandon(usize),
    Leave(usize),
    Begin(usize),
    SetUp(usize, bool),
    Tick(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u8..10, 0u32..4, prop::option::of(0u64..80), 0usize..900)
            .prop_map(|(class, tenant, timeout_ms, bytes)| Step::Arrive { class, tenant, timeout_ms, bytes }),
        4 => any::<usize>().prop_map(Step::Answer),
        2 => any::<usize>().prop_map(Step::Fail),
        1 => any::<usize>().prop_map(Step::Abandon),
        1 => any::<usize>().prop_map(Step::Leave),
        1 => any::<usize>().prop_map(Step::Begin),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(backend, is_up)| Step::SetUp(backend, is_up)),
        2 => (0u64..30).prop_map(Step::Tick),
    ]
}

/// A request that waits, in the naive list.
#[derive(Clone, Copy, Debug)]
struct Listed {
    key: QueueKey,
    class: u8,
    tenant: u32,
    deadline: Time,
    bytes: usize,
}

/// The dispatcher, and what must be true of it.
struct Model {
    dispatcher: Dispatcher<u64>,
    is_shared: bool,
    now: Time,
    arrived: u64,
    /// Waiting requests by number: the order of arrival.
    waiting: BTreeMap<u64, Listed>,
    /// Requests at backends.
    sent: Vec<usize>,
    results: BTreeSet<u64>,
    has_answers: bool,
}

impl Model {
    fn new(limits: &[Vec<u32>], is_shared: bool) -> Self {
        let settings = DispatchSettings { objective: OBJECTIVE, capacity: CAPACITY, capacity_bytes: BYTES };
        let build =
            |limits: &Vec<u32>| -> Box<dyn ConcurrencyLimit> { Box::new(Stepping { limits: limits.clone(), at: 0 }) };
        let dispatcher = if is_shared {
            Dispatcher::shared(settings, build(&limits[0]), limits.len())
        } else {
            Dispatcher::new(settings, limits.iter().map(build).collect())
        };
        Model {
            dispatcher,
            is_shared,
            now: Time::ZERO + Nanos::from_secs(1),
            arrived: 0,
            waiting: BTreeMap::new(),
            sent: Vec::new(),
            results: BTreeSet::new(),
            has_answers: false,
        }
    }

    fn in_flight(&self) -> u32 {
        (0..self.dispatcher.backends()).map(|backend| self.dispatcher.in_flight(backend)).sum()
    }

    /// The requests under the limit of a backend.
    fn under_limit(&self, backend: usize) -> u32 {
        if self.is_shared { self.in_flight() } else { self.dispatcher.in_flight(backend) }
    }

    fn check_sent(&mut self, backend: usize) {
        self.sent.push(backend);
        assert!(self.under_limit(backend) <= self.dispatcher.limit(backend), "a place above the limit");
    }

    fn take(&mut self, done: Vec<Dispatch<u64>>) {
        for Dispatch { token, result } in done {
            assert!(self.results.insert(token), "{token} has two results");
            let listed = self.waiting.get(&token).copied().expect("it waited");
            match result {
                Ok(backend) => {
                    let first = self.waiting.values().map(|other| other.class).min().expect("itself");
                    assert_eq!(listed.class, first, "a more important one waits");
                    let of_flow = |other: &&Listed| (other.class, other.tenant) == (listed.class, listed.tenant);
                    let soonest = self.waiting.values().filter(of_flow).map(|other| other.deadline).min();
                    assert_eq!(Some(listed.deadline), soonest, "a more urgent one of its flow waits");
                    // The last one is sent while there is any hope.
                    let margin = if self.waiting.len() > 1 { self.dispatcher.margin(backend) } else { Nanos::ZERO };
                    assert!(listed.deadline >= self.now + margin, "it is too late");
                    self.check_sent(backend);
                }
                Err(Refusal::Full) => {
                    let last = self.waiting.values().map(|other| other.class).max().expect("itself");
                    assert_eq!(listed.class, last, "a less important one waits");
                }
                Err(Refusal::Late | Refusal::Deadline) => {
                    let margin = (0..self.dispatcher.backends()).map(|backend| self.dispatcher.margin(backend)).max();
                    assert!(listed.deadline < self.now + margin.expect("a backend"), "it had time");
                }
                Err(Refusal::Wait) => panic!("only on arrival"),
            }
            self.waiting.remove(&token);
        }
    }

    /// Requests that a new one would wait for, from the list.
    fn ahead(&self, class: u8, tenant: u32) -> usize {
        let before = self.waiting.values().filter(|other| other.class < class).count();
        let of_class: Vec<&Listed> = self.waiting.values().filter(|other| other.class == class).collect();
        let own = of_class.iter().filter(|other| other.tenant == tenant).count();
        let others: BTreeSet<u32> =
            of_class.iter().map(|other| other.tenant).filter(|other| *other != tenant).collect();
        before + of_class.len().min(own + (own + 1) * others.len())
    }

    fn play(&mut self, step: &Step) {
        let mut done = Vec::new();
        match *step {
            Step::Arrive { class, tenant, timeout_ms, bytes } => {
                let number = self.arrived;
                self.arrived += 1;
                let timeout = timeout_ms.map_or(Nanos::MAX, Nanos::from_millis);
                let request = QueuedRequest { arrived: self.now, timeout, class, tenant: Tenant(tenant), bytes };
                let arrival = self.dispatcher.arrive(self.now, &request, || number, &mut done);
                match arrival {
                    Arrival::Sent(backend) => {
                        assert!(self.waiting.is_empty(), "it passes those that wait");
                        assert!(self.results.insert(number));
                        self.check_sent(backend);
                    }
                    Arrival::Queued(key) => {
                        let deadline = self.now + timeout.min(OBJECTIVE);
                        let class = class.min(7);
                        self.waiting.insert(number, Listed { key, class, tenant, deadline, bytes });
                    }
                    Arrival::Rejected(_) => assert!(self.results.insert(number)),
                }
            }
            Step::Answer(which) | Step::Fail(which) | Step::Abandon(which) if !self.sent.is_empty() => {
                let backend = self.sent.swap_remove(which % self.sent.len());
                if !matches!(step, Step::Abandon(_)) {
                    let dispatched = Time(self.now.0 - SOJOURN.0);
                    let outcome = if matches!(step, Step::Fail(_)) { Outcome::Failed } else { Outcome::Completed };
                    let answer = Answer { now: self.now, dispatched, outcome };
                    self.dispatcher.judge(backend, &answer);
                    self.dispatcher.answer(backend, &answer);
                    self.dispatcher.charge((which % 8) as u8, Tenant((which % 4) as u32), SOJOURN);
                    self.has_answers = true;
                }
                self.dispatcher.release(self.now, backend, &mut done);
            }
            Step::Leave(which) if !self.waiting.is_empty() => {
                let (number, listed) = self
                    .waiting
                    .iter()
                    .nth(which % self.waiting.len())
                    .map(|(number, of)| (*number, *of))
                    .expect("one");
                assert_eq!(self.dispatcher.leave(&listed.key), Some(number));
                assert_eq!(self.dispatcher.leave(&listed.key), None, "it leaves once");
                self.waiting.remove(&number);
                assert!(self.results.insert(number));
            }
            Step::Begin(backend) => {
                let backend = backend % self.dispatcher.backends();
                self.dispatcher.begin(self.now, backend);
                self.sent.push(backend);
            }
            Step::SetUp(backend, is_up) => {
                let backend = backend % self.dispatcher.backends();
                self.dispatcher.set_up(self.now, backend, is_up, &mut done);
                assert!(is_up || !self.dispatcher.is_up(backend));
            }
            Step::Tick(ms) => {
                self.now += Nanos::from_millis(ms);
                self.dispatcher.tick(self.now, None, &mut done);
            }
            Step::Answer(_) | Step::Fail(_) | Step::Abandon(_) | Step::Leave(_) => {}
        }
        self.take(done);
        self.check();
    }

    fn check(&self) {
        assert_eq!(self.dispatcher.queued(), self.waiting.len());
        assert!(self.waiting.len() <= CAPACITY);
        assert!(self.waiting.values().map(|of| of.bytes).sum::<usize>() <= BYTES);
        assert_eq!(self.in_flight() as usize, self.sent.len());
        assert_eq!(self.results.len() + self.waiting.len(), self.arrived as usize);
        for (class, tenant) in [(0, 0), (3, 1), (7, 3), (5, 9)] {
            let ahead = self.dispatcher.ahead(class, Tenant(tenant));
            assert_eq!(ahead, self.ahead(class, tenant), "class {class}, tenant {tenant}");
        }
    }

    /// Lets everything end: then nobody waits, and nothing is at a backend.
    fn finish(&mut self) {
        while !self.sent.is_empty() || !self.waiting.is_empty() {
            self.play(&Step::Answer(0));
            self.play(&Step::Tick(10));
        }
        assert_eq!(self.results.len(), self.arrived as usize);
        assert_eq!(self.dispatcher.oldest_wait(self.now), Nanos::ZERO);
    }
}

fn limits() -> impl Strategy<Value = Vec<Vec<u32>>> {
    prop::collection::vec(prop::collection::vec(0u32..6, 1..5), 1..4)
}

proptest! {
    #[test]
    fn any_history_keeps_the_invariants(
        limits in limits(),
        is_shared in any::<bool>(),
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let mut model = Model::new(&limits, is_shared);
        steps.iter().for_each(|step| model.play(step));
        model.finish();
    }

    /// Tenants that always have requests get the same time at the backend, whatever theirs cost.
    #[test]
    fn tenants_share_the_time_at_the_backend(costs_ms in prop::collection::vec(1u64..12, 2..5)) {
        let settings =
            DispatchSettings { objective: Nanos::from_secs(100_000), capacity: 10_000, capacity_bytes: usize::MAX };
        let limit: Box<dyn ConcurrencyLimit> = Box::new(Stepping { limits: vec![1], at: 0 });
        let mut dispatcher: Dispatcher<usize> = Dispatcher::new(settings, vec![limit]);
        let (mut now, mut spent, mut done) = (Time::ZERO, vec![0; costs_ms.len()], Vec::new());
        let request = |now: Time, tenant: usize| QueuedRequest {
            arrived: now,
            timeout: Nanos::MAX,
            class: 3,
            tenant: Tenant(tenant as u32),
            bytes: 1,
        };
        prop_assert_eq!(dispatcher.arrive(now, &request(now, 0), || 0, &mut done), Arrival::Sent(0));
        for _ in 0..5 {
            for tenant in 0..costs_ms.len() {
                dispatcher.arrive(now, &request(now, tenant), || tenant, &mut done);
            }
        }
        let mut present = 0;
        for served in 0..2_000 {
            let cost = Nanos::from_millis(costs_ms[present]);
            let dispatched = now;
            now += cost;
            // What costs are is not known in the beginning.
            if served >= 200 {
                spent[present] += costs_ms[present];
            }
            let tenant = Tenant(present as u32);
            dispatcher.answer(0, &Answer { now, dispatched, outcome: Outcome::Completed });
            dispatcher.charge(3, tenant, cost);
            dispatcher.arrive(now, &request(now, present), || present, &mut done);
            dispatcher.release(now, 0, &mut done);
            let Some(Dispatch { token, result: Ok(_) }) = done.pop() else { panic!("one is sent") };
            prop_assert!(done.is_empty());
            present = token;
        }
        let (least, most) = (spent.iter().min().unwrap(), spent.iter().max().unwrap());
        prop_assert!(most - least <= 4 * costs_ms.iter().max().unwrap(), "{:?} of {:?}", spent, costs_ms);
    }
}

/// A dispatcher with an objective of 100 ms before one backend with four places, all taken at the
/// beginning.
fn full() -> Dispatcher<u64> {
    let settings = DispatchSettings { objective: Nanos::from_millis(100), capacity: CAPACITY, capacity_bytes: BYTES };
    let mut dispatcher = Dispatcher::new(settings, vec![Box::new(Stepping { limits: vec![4], at: 0 })]);
    for _ in 0..4 {
        dispatcher.begin(Time::ZERO, 0);
    }
    dispatcher
}

#[test]
fn a_request_hangs_that_many_others_overtake() {
    let mut dispatcher = full();
    assert_eq!(dispatcher.hang_after(0), Nanos::from_millis(100));
    let overtaken_at = dispatcher.overtaken_at(0);
    let mut overtaken = 0;
    for turn in 0..40_u64 {
        let now = Time(100_000_000 + turn * 1_000_000);
        if !dispatcher.gives_up_place(now, 0, Nanos(now.0), overtaken_at) {
            overtaken = turn + 1;
        }
        let answer = Answer { now, dispatched: Time(now.0 - 20_000_000), outcome: Outcome::Completed };
        dispatcher.answer(0, &answer);
    }
    assert_eq!(overtaken, 8, "twice as many as are there");
    assert_eq!(dispatcher.hang_after(0), Nanos::from_millis(160), "eight times as long as others");
}

#[test]
fn where_all_requests_may_hang_one_place_is_tried_once_a_second_at_least() {
    let mut dispatcher = full();
    // Another request takes the place each time, and hangs, too.
    let is_trial =
        |tick: &u64| dispatcher.gives_up_place(Time(tick * 10_000_000), 0, Nanos(tick * 10_000_000), u64::MAX);
    let trials: Vec<u64> = (1..1_000).filter(is_trial).collect();
    assert_eq!(trials[..6], [11, 31, 71, 151, 251, 351], "10 ms each: pauses of 100 ms to a second");
    assert!(trials.windows(2).all(|two| two[1] - two[0] <= 100), "{trials:?}");
}

/// A request that arrives at `now`.
fn arrive(dispatcher: &mut Dispatcher<u64>, now: Time) -> Arrival {
    let request = QueuedRequest { arrived: now, timeout: Nanos::MAX, class: 3, tenant: Tenant::DEFAULT, bytes: 1 };
    dispatcher.arrive(now, &request, || 0, &mut Vec::new())
}

#[test]
fn a_backend_that_is_down_hides_no_silence_of_the_others() {
    let settings = DispatchSettings { objective: Nanos::from_millis(100), capacity: CAPACITY, capacity_bytes: BYTES };
    let limit = || Box::new(Stepping { limits: vec![4], at: 0 }) as Box<dyn ConcurrencyLimit>;
    let mut dispatcher: Dispatcher<u64> = Dispatcher::new(settings, vec![limit(), limit()]);
    dispatcher.set_up(Time::ZERO, 1, false, &mut Vec::new());
    for _ in 0..4 {
        dispatcher.begin(Time::ZERO, 0);
    }
    let now = Time(2_000_000_000);
    assert!(matches!(arrive(&mut dispatcher, now), Arrival::Queued(_)), "the next place is for this one");
    assert!(matches!(arrive(&mut dispatcher, now), Arrival::Rejected(Refusal::Wait)));
}

#[test]
fn a_silence_ends_with_its_requests() {
    let mut dispatcher = full();
    (0..4).for_each(|_| dispatcher.release(Time(500_000_000), 0, &mut Vec::new()));
    let now = Time(3_600_000_000_000);
    for number in 0..7 {
        let arrival = arrive(&mut dispatcher, now);
        assert!(!matches!(arrival, Arrival::Rejected(_)), "{number}: {arrival:?}");
    }
}

/// The bound that keeps the queue short is for those who make it long: a request of the first class
/// goes before them, and may use all of its time.
#[test]
fn a_long_queue_of_others_refuses_no_important_request() {
    let settings = DispatchSettings { objective: OBJECTIVE, capacity: 1_000, capacity_bytes: usize::MAX };
    let limit: Box<dyn ConcurrencyLimit> = Box::new(Stepping { limits: vec![1], at: 0 });
    let mut dispatcher: Dispatcher<()> = Dispatcher::new(settings, vec![limit]);
    let (mut now, mut done) = (Time::ZERO, Vec::new());
    let arrive = |dispatcher: &mut Dispatcher<()>, now, class, done: &mut Vec<Dispatch<()>>| {
        let tenant = Tenant::DEFAULT;
        let request = QueuedRequest { arrived: now, timeout: Nanos::MAX, class, tenant, bytes: 1 };
        dispatcher.arrive(now, &request, || (), done)
    };
    // Three seconds of twice what the backend can do, all of the last class.
    arrive(&mut dispatcher, now, 7, &mut done);
    for step in 0..3_000 {
        let dispatched = now;
        now += SOJOURN;
        dispatcher.answer(0, &Answer { now, dispatched, outcome: Outcome::Completed });
        dispatcher.release(now, 0, &mut done);
        for _ in 0..2 {
            arrive(&mut dispatcher, now, 7, &mut done);
        }
        if step % 10 == 0 {
            dispatcher.tick(now, None, &mut done);
        }
        done.clear();
    }
    assert!(matches!(arrive(&mut dispatcher, now, 7, &mut done), Arrival::Rejected(Refusal::Wait)));
    for number in 0..40 {
        let arrival = arrive(&mut dispatcher, now, 0, &mut done);
        assert!(matches!(arrival, Arrival::Queued(_)), "{number}: {arrival:?}");
    }
    let arrivals = (0..40).map(|_| arrive(&mut dispatcher, now, 0, &mut done));
    assert!(arrivals.into_iter().any(|arrival| arrival == Arrival::Rejected(Refusal::Wait)), "in time at the least");
}

/// Ends a request at a backend, which fails at once or answers.
fn end(dispatcher: &mut Dispatcher<()>, now: Time, backend: usize, outcome: Outcome) {
    dispatcher.judge(backend, &Answer { now, dispatched: Time(now.0 - 1_000), outcome });
    dispatcher.release(now, backend, &mut Vec::new());
}

/// A backend that fails while the other does not, with a request that hangs.
fn ejected() -> Dispatcher<()> {
    let settings = DispatchSettings { objective: OBJECTIVE, capacity: CAPACITY, capacity_bytes: BYTES };
    let limit = || -> Box<dyn ConcurrencyLimit> { Box::new(Stepping { limits: vec![4], at: 0 }) };
    let mut dispatcher = Dispatcher::new(settings, vec![limit(), limit()]);
    dispatcher.begin(Time::ZERO, 0);
    for turn in 0..40 {
        let outcomes = [Outcome::Failed, Outcome::Completed];
        for (backend, outcome) in outcomes.into_iter().enumerate() {
            dispatcher.begin(Time(turn), backend);
            end(&mut dispatcher, Time(1_000 + turn), backend, outcome);
        }
    }
    assert_eq!((dispatcher.is_up(0), dispatcher.is_up(1)), (false, true));
    dispatcher
}

#[test]
fn a_backend_that_was_ejected_is_tried_by_one_request_at_a_time() {
    let mut dispatcher = ejected();
    let now = Time(2_000_000);
    let sent = |dispatcher: &mut Dispatcher<()>| {
        let request = QueuedRequest { arrived: now, timeout: Nanos::MAX, class: 3, tenant: Tenant::DEFAULT, bytes: 1 };
        match dispatcher.arrive(now, &request, || (), &mut Vec::new()) {
            Arrival::Sent(backend) => backend,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(sent(&mut dispatcher), 1);
    // The hanging request is no trial, nor does it prevent one.
    dispatcher.set_up(now, 0, true, &mut Vec::new());
    assert_eq!([(); 3].map(|()| sent(&mut dispatcher)), [0, 1, 1]);
    assert!(!dispatcher.is_up(0), "it has not answered");
    assert_eq!(dispatcher.least_loaded(None), 1);
    // Nor does a trial that hangs, too, prevent the next one.
    dispatcher.set_up(now, 0, true, &mut Vec::new());
    assert_eq!(sent(&mut dispatcher), 0);
    end(&mut dispatcher, now, 0, Outcome::Failed);
    assert_eq!(sent(&mut dispatcher), 1);
    dispatcher.set_up(now, 0, true, &mut Vec::new());
    assert_eq!(sent(&mut dispatcher), 0);
    end(&mut dispatcher, now, 0, Outcome::Completed);
    assert!(dispatcher.is_up(0));
}

/// Without a request that could tell, it is up again at the second call; until then, what waits for
/// no place goes to others.
#[test]
fn a_backend_that_was_ejected_is_back_if_nothing_comes() {
    let mut dispatcher = ejected();
    let now = Time(2_000_000);
    dispatcher.set_up(now, 0, true, &mut Vec::new());
    (0..4).for_each(|_| dispatcher.begin(now, 1));
    assert_eq!((dispatcher.is_up(0), dispatcher.least_loaded(None)), (false, 1));
    dispatcher.set_up(now, 0, true, &mut Vec::new());
    assert_eq!((dispatcher.is_up(0), dispatcher.least_loaded(None)), (true, 0));
    // One that went down as one that fails is on probation, too.
    let mut dispatcher = ejected();
    dispatcher.set_up(now, 0, false, &mut Vec::new());
    dispatcher.set_up(now, 0, true, &mut Vec::new());
    assert!(!dispatcher.is_up(0));
}

/// Chance is no difference between backends: with twenty of them one always fails less for a while.
#[test]
fn equal_backends_are_not_ejected_by_chance() {
    let settings = DispatchSettings { objective: OBJECTIVE, capacity: CAPACITY, capacity_bytes: BYTES };
    let limits = (0..20).map(|_| Box::new(Stepping { limits: vec![4], at: 0 }) as Box<dyn ConcurrencyLimit>).collect();
    let mut dispatcher = Dispatcher::new(settings, limits);
    let mut random = 1_u64;
    for turn in 0..200_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let outcome = if random >> 63 == 0 { Outcome::Failed } else { Outcome::Completed };
        dispatcher.begin(Time(turn), (random >> 32) as usize % 20);
        end(&mut dispatcher, Time(1_000 + turn), (random >> 32) as usize % 20, outcome);
    }
    assert!((0..20).all(|backend| dispatcher.is_up(backend)));
}

/// One that is slow keeps its places, and gets no more than its share.
#[test]
fn failures_that_come_late_eject_no_backend() {
    let mut dispatcher = ejected();
    let now = Time::ZERO + OBJECTIVE * 3;
    dispatcher.set_up(now, 0, true, &mut Vec::new());
    end(&mut dispatcher, now, 0, Outcome::Completed);
    for _ in 0..100 {
        let dispatched = Time::ZERO + OBJECTIVE;
        assert!(!dispatcher.judge(0, &Answer { now, dispatched, outcome: Outcome::Failed }));
        end(&mut dispatcher, now, 1, Outcome::Completed);
    }
    assert!(dispatcher.is_up(0));
}
