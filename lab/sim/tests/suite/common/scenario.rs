//! Random scenarios: one seed draws a whole scenario, so that a failure can be reproduced from its
//! number.

use leeward_core::params::{Params, RawParam};
use leeward_core::registry::{Algorithm, Registry};
use leeward_core::units::{Cost, Nanos, Rate, Tenant};
use leeward_sim::config::{
    Application, Aqm, Arrivals, ClientModel, Costs, FirstServer, LockKind, LockModel, LockPolicy, NetworkModel, Path,
    QueueOrder, Replicas, RequestKind, RequestKinds, Segment, ServerModel, Shares, SimConfig, Stalls, Step, Workload,
};
use leeward_sim::service_time::ServiceTime;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// All inputs of one run.
pub(crate) struct Scenario {
    pub(crate) algorithm: Algorithm,
    pub(crate) params: Params,
    pub(crate) config: SimConfig,
    /// Text for messages.
    pub(crate) description: String,
}

/// Random choices of one scenario.
struct ScenarioRng(Xoshiro256PlusPlus);

impl ScenarioRng {
    fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}

/// The scenario that `seed` draws, audited after every control period.
pub(crate) fn draw(seed: u64, registry: &Registry) -> Scenario {
    let mut dice = ScenarioRng(Xoshiro256PlusPlus::seed_from_u64(seed));
    let algorithms: Vec<Algorithm> = registry.algorithms().cloned().collect();
    let algorithm = dice.one_of(&algorithms);
    let pairs = if algorithm.name == "breakwater" { breakwater_switches(&mut dice) } else { Vec::new() };
    let params = algorithm.params(&pairs).expect("drawn parameters are valid");
    let config = draw_config(&mut dice, seed);
    let text = format!("{} {pairs:?} {config:?}", algorithm.name);
    Scenario { algorithm, params, config, description: text }
}

fn breakwater_switches(dice: &mut ScenarioRng) -> Vec<(&'static str, RawParam)> {
    let word = |word: &str| RawParam::Text(word.into());
    let mut pairs = vec![
        ("credits", RawParam::Switch(dice.below(4) > 0)),
        ("aqm", RawParam::Switch(dice.below(3) > 0)),
        ("additive", word(dice.one_of(&["carried", "at_least_one"]))),
        ("waking", word(dice.one_of(&["fifo", "random"]))),
        ("demand", word(dice.one_of(&["speculation", "synchronization"]))),
    ];
    if dice.below(2) == 0 {
        pairs.push(("client_delay", word(dice.one_of(&["5us", "10us", "100us", "1ms"]))));
    }
    pairs
}

fn draw_config(dice: &mut ScenarioRng, seed: u64) -> SimConfig {
    let mean = dice.one_of(&[Nanos(1_000), Nanos(10_000), Nanos(100_000)]);
    let service = match dice.below(4) {
        0 => ServiceTime::Exponential(mean),
        1 => ServiceTime::Constant(mean),
        2 => ServiceTime::Bimodal(mean),
        _ => ServiceTime::Lognormal { mean, sigma: 1.0 },
    };
    let server = ServerModel {
        cores: dice.between(1, 16) as u32,
        costs: dice.one_of(&[Costs::default(), Costs::FREE]),
        batch: dice.between(1, 32) as u32,
        order: dice.one_of(&[QueueOrder::TasksFirst, QueueOrder::PacketsFirst]),
        aqm: Aqm::Head,
        scheduling: None,
        stalls: dice.one_of(&[
            None,
            None,
            Some(Stalls { mean_interval: Nanos::from_millis(2), mean_length: Nanos::from_micros(200) }),
        ]),
        ..ServerModel::default()
    };
    let capacity = server.capacity(mean).0;
    // About 20,000 requests at capacity: enough to fill and drain every queue, few enough for
    // hundreds of scenarios.
    let duration = Nanos::from_secs_f64(20_000.0 / capacity);
    let segments = dice.between(1, 4);
    let demand = (0..segments)
        .map(|segment| Segment {
            from: duration * segment / segments,
            rate: Rate(capacity * dice.between(0, 250) as f64 / 100.0),
        })
        .collect();
    let network =
        NetworkModel { rtt: Nanos(dice.between(0, 60_000)), jitter: Nanos(dice.one_of(&[0, 0, 5_000, 50_000])) };
    SimConfig {
        slo: (mean + network.rtt) * 10,
        server,
        network,
        workload: Workload {
            clients: dice.one_of(&[1, 3, 10, 100, 500]),
            arrivals: dice.one_of(&[Arrivals::Poisson, Arrivals::Constant]),
            shares: dice.one_of(&[Shares::Equal, Shares::Zipf(1.0)]),
            demand,
            service,
        },
        warmup: duration / 4,
        duration,
        stopping: None,
        window: Some(duration / 10),
        fine_window: Some(duration / 100),
        seed,
        audit: true,
        // Drawn last, so that all other values of a seed are the same as before locks were added.
        application: draw_application(dice),
        locks: draw_locks(dice, mean),
        clients: draw_clients(dice, mean),
        kinds: draw_kinds(dice, mean),
        replicas: None,
        tier: None,
        graph: None,
        enforced: 100,
    }
}

/// The scenario that `seed` draws, on several servers.
pub(crate) fn draw_with_replicas(seed: u64, registry: &Registry) -> Scenario {
    let mut scenario = draw(seed, registry);
    let mut dice = ScenarioRng(Xoshiro256PlusPlus::seed_from_u64(!seed));
    let config = &mut scenario.config;
    config.clients = ClientModel::default();
    config.replicas = Some(Replicas {
        servers: dice.one_of(&[2, 2, 3, 5]),
        first: dice.one_of(&[FirstServer::Primary, FirstServer::InTurn]),
        credit_timeout: dice.one_of(&[None, Some(Nanos(1)), Some(Nanos::from_micros(10)), Some(Nanos::from_millis(1))]),
    });
    scenario.description = format!("{} {:?} {:?}", scenario.algorithm.name, scenario.params, scenario.config);
    scenario
}

/// About half of the scenarios have clients with pacing or a timeout.
fn draw_clients(dice: &mut ScenarioRng, mean: Nanos) -> ClientModel {
    let pacing = dice.one_of(&[Nanos::ZERO, Nanos::ZERO, Nanos::ZERO, mean, mean * 20]);
    let timeout = dice.one_of(&[None, None, None, Some(mean * 5), Some(Nanos::from_millis(1))]);
    ClientModel { pacing, timeout }
}

/// About half of the scenarios have several kinds of requests.
fn draw_kinds(dice: &mut ScenarioRng, mean: Nanos) -> RequestKinds {
    let count = dice.one_of(&[0, 0, 0, 1, 2, 3, 10, 64]);
    let weights: Vec<u64> = (0..count).map(|_| dice.between(1, 20)).collect();
    let all = weights.iter().sum::<u64>() as f64;
    let kind = |(index, weight): (usize, u64)| RequestKind {
        tenant: Tenant(dice.one_of(&[0, 0, 1, 2, index as u32, u32::MAX])),
        class: dice.one_of(&[None, Some(0), Some(3), Some(7)]),
        deadline: dice.one_of(&[None, None, Some(Nanos(1)), Some(mean * 3), Some(mean * 20)]),
        cost: Cost(dice.one_of(&[1, 1, 2, 50, 1_000_000])),
        service: dice.one_of(&[
            None,
            None,
            Some(ServiceTime::Exponential(mean)),
            Some(ServiceTime::Constant(mean * 2)),
        ]),
        ..RequestKind::new(&index.to_string(), weight as f64 / all)
    };
    RequestKinds(weights.into_iter().enumerate().map(kind).collect())
}

/// About half of the scenarios have locks.
fn draw_application(dice: &mut ScenarioRng) -> Application {
    let share = |dice: &mut ScenarioRng| dice.between(0, 20) as f64 / 20.0;
    match dice.below(8) {
        0 => Application::one_lock(share(dice), share(dice)),
        1 => Application::two_locks(share(dice)),
        2 => chained(dice.between(1, 10) as usize),
        3 => nested(share(dice)),
        _ => Application::default(),
    }
}

/// Consecutive locks that all requests take.
fn chained(locks: usize) -> Application {
    let work = Step::Work(1.0 / locks as f64);
    let steps = (0..locks).flat_map(|lock| [Step::Acquire(lock), work, Step::Release(lock)]).collect();
    Application {
        locks: (0..locks).map(|lock| format!("lock {lock}")).collect(),
        paths: vec![Path { share: 1.0, steps }],
    }
}

/// Nested locks, released in either order, with steps that take no time.
fn nested(p: f64) -> Application {
    use Step::{Acquire, Release, Work};
    let path = |share, steps: &[Step]| Path { share, steps: steps.to_vec() };
    let inner = [Acquire(0), Work(0.5), Acquire(1), Work(0.5), Release(0), Release(1)];
    let outer = [Work(0.0), Acquire(0), Acquire(1), Release(1), Work(1.0), Release(0), Work(0.0)];
    let lone = [Work(0.3), Acquire(1), Work(0.7), Release(1)];
    let paths = vec![path(p / 2.0, &inner), path(p / 2.0, &outer), path(1.0 - p, &lone)];
    Application { locks: vec!["outer".into(), "inner".into()], paths }
}

fn draw_locks(dice: &mut ScenarioRng, mean: Nanos) -> LockModel {
    let span = mean * dice.between(0, 30);
    LockModel {
        kind: dice.one_of(&[LockKind::Mutex, LockKind::Mutex, LockKind::Spinlock]),
        acquire: dice.one_of(&[
            LockPolicy::Plain,
            LockPolicy::UnlessCongested { budget: span, recheck: true },
            LockPolicy::UnlessCongested { budget: span, recheck: false },
            LockPolicy::Try,
            LockPolicy::Timed { timeout: span },
        ]),
    }
}
