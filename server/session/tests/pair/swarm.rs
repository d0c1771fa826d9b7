//! Hundreds of random scenarios over every controller, each drawn from one seed. A scenario
//! contains honest clients that come and go, abusive clients, slow readers, half-open peers, cuts,
//! damage, and sometimes a stop in the middle. Conservation is checked after every step
//! (`leeward_pair`), and in the end every request and session must have ended.
//!
//! `LEEWARD_SWARM_SEED=7 cargo test -p leeward-session --test pair swarm` replays one of them.

use crate::DATAGRAMS;
use crate::support::{TIMEOUT, call, encode, register};
use leeward_core::params::Params;
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::units::{Nanos, Priority};
use leeward_host::RequestCounts;
use leeward_pair::{ClientId, Cut, Endpoint, Faults, Handler, Pair, PairConfig, ReadMode, Rng, WireModel, Work};
use leeward_session::client::ConnectionConfig;
use leeward_wire::{Budget, Demand, Frame, PayloadLimit, Ping, Pong, Timestamp, Version};

const SCENARIOS: u64 = 300;

/// A running scenario.
struct Swarm {
    pair: Pair,
    rng: Rng,
    honest: Vec<ClientId>,
    raw: Vec<ClientId>,
    /// Honest clients that have left, or are leaving.
    closing_clients: Vec<ClientId>,
    /// Clients that read slowly or not at all, or are cut off: their requests may stay open.
    unreading_clients: Vec<ClientId>,
    description: String,
}

fn handler(seed: u64, mean: u64) -> Handler {
    let mut random = Rng::new(seed);
    Box::new(move |payload, _| {
        let service = Nanos(random.below(2 * mean));
        match random.below(40) {
            0 => Work::Failure(service, "a mood".into()),
            1 => Work::Congested(service, "accounts".into()),
            2 => Work::Result(service, vec![7; random.below(20_000) as usize]),
            // Its calls are abandoned when its connection ends.
            3 if random.one_in(20) => Work::Hang,
            _ => Work::Result(service, payload.to_vec()),
        }
    })
}

impl Swarm {
    fn draw(seed: u64) -> Swarm {
        let mut random = Rng::new(seed);
        let registry = leeward_controllers::builtin();
        let algorithms: Vec<&Algorithm> = registry.algorithms().collect();
        let algorithm = algorithms[seed as usize % algorithms.len()];
        // A silence of seconds takes many ticks: fewer where the ends must detect it by a time-out.
        let least = if DATAGRAMS.is_some() { 50_000 } else { 1_000 };
        let rtt = Nanos(least + random.below(200_000));
        let mean = 500 + random.below(50_000);
        let environment = Environment::new(1, rtt, (rtt + Nanos(mean)) * (2 + random.below(20)));
        let wire = WireModel {
            delay: rtt / 2,
            jitter: Nanos([0, rtt.0 / 10, rtt.0 * 2][random.below(3) as usize]),
            chunk_max: [0, 1, 70, 3_000][random.below(4) as usize],
            buffer_max: [200, 5_000, 200_000][random.below(3) as usize],
        };
        let config = PairConfig {
            seed,
            wire,
            datagrams: DATAGRAMS.map(|_| Faults::each([0, 10, 50, 200][random.below(4) as usize])),
            workers: 1 + random.below(4) as usize,
            unanswered_max: [1, 16, 256][random.below(3) as usize],
            payload_max: PayloadLimit::new(8 * 1024),
            max_version: Version::NEWEST,
            unsent_max: [1_000, 1 << 20][random.below(2) as usize],
            connections_max: if random.one_in(5) { 10 } else { usize::MAX },
            scan_interval: Nanos::from_millis(1),
            idle_timeout: Nanos::from_millis(20),
            frame_timeout: Nanos::from_millis(20),
            write_timeout: Nanos::from_millis(20),
            linger: Nanos::from_millis(5),
            drain_timeout: Nanos::from_millis(10),
        };
        let text = format!("{} in {environment:?}, {config:?}, {mean} ns of work", algorithm.name);
        let work = handler(seed, mean);
        let pair = Pair::new(algorithm, &Params::default(), environment, config, work).unwrap();
        Swarm {
            pair,
            rng: random,
            honest: Vec::new(),
            raw: Vec::new(),
            closing_clients: Vec::new(),
            unreading_clients: Vec::new(),
            description: text,
        }
    }

    fn any(&mut self, of: fn(&Swarm) -> &Vec<ClientId>) -> Option<ClientId> {
        let count = of(self).len() as u64;
        let at = self.rng.below(count) as usize;
        of(self).get(at).copied()
    }

    /// Does one random action.
    fn step(&mut self) {
        match self.rng.below(100) {
            0..8 => self.connect(),
            8..60 => self.submit(),
            60..78 => self.misbehave(),
            78..82 => self.leave(),
            82..86 => self.change_read_mode(),
            86..90 => self.cut(),
            90..92 => self.damage(),
            _ => {
                if let Some(client) = self.any(|swarm| &swarm.honest) {
                    self.pair.ping(client);
                }
            }
        }
    }

    fn connect(&mut self) {
        if self.honest.len() + self.raw.len() > 25 {
            return;
        }
        if self.rng.one_in(3) {
            let client = self.pair.connect_raw();
            if !self.rng.one_in(4) {
                self.pair.send_frame(client, &register());
            }
            self.raw.push(client);
        } else {
            let output_max = [1, 1_000, 256 * 1024][self.rng.below(3) as usize];
            let client = self.pair.connect_with(ConnectionConfig { output_max, ..ConnectionConfig::default() });
            self.honest.push(client);
        }
    }

    fn submit(&mut self) {
        let Some(client) = self.any(|swarm| &swarm.honest) else { return };
        for _ in 0..1 + self.rng.below(6) {
            let length = [0, 5, 300, 9_000][self.rng.below(4) as usize];
            let payload = vec![self.rng.bits() as u8; self.rng.below(length + 1) as usize];
            let budget = match self.rng.below(3) {
                0 => Budget::of(Nanos(self.rng.below(1_000_000))),
                _ => Budget::UNLIMITED,
            };
            let priority = Priority::from_random(self.rng.bits());
            let token = self.pair.submit_with(client, &payload, priority, budget);
            if self.rng.one_in(10) {
                self.pair.cancel(client, token);
            }
        }
    }

    /// A raw client sends a random frame; most of them violate the protocol.
    fn misbehave(&mut self) {
        let Some(client) = self.any(|swarm| &swarm.raw) else { return };
        let number = 1 + self.rng.below(40);
        let timestamp = Timestamp(self.rng.bits());
        let bytes = match self.rng.below(14) {
            0 => encode(&register()),
            1 => encode(&Frame::Deregister),
            2 => encode(&Frame::Demand(Demand { demand: self.rng.bits() as u32 })),
            3 => encode(&Frame::Ping(Ping { timestamp })).repeat(number as usize),
            4 => encode(&Frame::Pong(Pong { timestamp })),
            // Without credit, and with duplicate identifiers.
            5 => (1..=number).flat_map(|request| encode(&call(request, b""))).collect(),
            6 => encode(&call(number, &vec![1; 20_000])),
            7 => (0..number).map(|_| self.rng.bits() as u8).collect(),
            8 => encode(&call(number, b"cut"))[..self.rng.below(67) as usize].to_vec(),
            9 => {
                let mut damaged = encode(&call(number, b"x"));
                let at = self.rng.below(damaged.len() as u64) as usize;
                damaged[at] ^= 1 << self.rng.below(8);
                damaged
            }
            _ => encode(&call(self.rng.bits() | 1, b"a call")),
        };
        self.pair.send_bytes(client, &bytes);
    }

    fn leave(&mut self) {
        if self.rng.one_in(3) {
            let Some(client) = self.any(|swarm| &swarm.raw) else { return };
            self.pair.close(client);
            self.raw.retain(|raw| *raw != client);
        } else if let Some(client) = self.any(|swarm| &swarm.honest) {
            if self.rng.one_in(2) {
                self.pair.close(client);
            } else {
                self.pair.deregister(client);
            }
            // A request after that ends at once.
            self.pair.submit(client, b"late");
            self.honest.retain(|honest| *honest != client);
            self.closing_clients.push(client);
        }
    }

    fn change_read_mode(&mut self) {
        let mode = match self.rng.below(4) {
            0 => ReadMode::Slow(1 + self.rng.below(300) as usize, Nanos(1 + self.rng.below(100_000))),
            1 => ReadMode::Paused,
            _ => ReadMode::Eager,
        };
        let of: fn(&Swarm) -> &Vec<ClientId> =
            if self.rng.one_in(2) { |swarm| &swarm.honest } else { |swarm| &swarm.raw };
        if let Some(client) = self.any(of) {
            self.pair.set_read_mode(client, mode);
            self.unreading_clients.push(client);
        }
    }

    fn cut(&mut self) {
        let cut = [Cut::ClientHalf, Cut::ServerHalf, Cut::Reset, Cut::Silence][self.rng.below(4) as usize];
        if let Some(client) = self.any(|swarm| &swarm.honest) {
            self.pair.cut(client, cut);
            if cut == Cut::Silence {
                self.unreading_clients.push(client);
            }
        }
    }

    fn damage(&mut self) {
        let Some(client) = self.any(|swarm| &swarm.honest) else { return };
        let to = if self.rng.one_in(2) { Endpoint::Server } else { Endpoint::Client };
        let random = &mut self.rng;
        self.pair.tamper(client, to, |chunks| {
            let count = chunks.len() as u64;
            if count == 0 {
                return;
            }
            let (one, other) = (random.below(count) as usize, random.below(count) as usize);
            match random.below(4) {
                0 => chunks.swap(one, other),
                1 => chunks.push(chunks[one].clone()),
                2 => drop(chunks.remove(one)),
                _ => chunks[one].iter_mut().take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
            }
        });
    }

    /// Runs the whole scenario.
    fn run(mut self) -> Result<(u64, RequestCounts), String> {
        let actions = 200 + self.rng.below(300);
        let stop_at = self.rng.below(4 * actions);
        for action in 0..actions {
            if action == stop_at {
                self.pair.stop();
            }
            self.step();
            let pause = [0, 1_000, 100_000][self.rng.below(3) as usize];
            let pause = Nanos(self.rng.below(pause + 1));
            self.pair.run_for(pause);
            if let Some(violation) = self.pair.violation() {
                return Err(format!("act {action}: {violation}\n{}", self.description));
            }
        }
        // Reading clients continue until all their requests have ended; then the server stops.
        self.pair.run_for(Nanos::from_millis(200));
        self.pair.stop();
        self.pair.run_while(TIMEOUT, |pair| !pair.has_stopped());
        // A client whose closing datagrams were lost detects the end by the silence.
        let patience = if DATAGRAMS.is_some() { Nanos::from_secs(20) } else { Nanos::from_millis(200) };
        let reading: Vec<_> =
            self.honest.iter().chain(&self.closing_clients).filter(|id| !self.unreading_clients.contains(id)).collect();
        let waits = |pair: &mut Pair| reading.iter().any(|client| pair.open_requests(**client) > 0);
        self.pair.run_while(patience, waits);
        self.pair.run_for(Nanos::from_millis(if DATAGRAMS.is_some() { 10 } else { 200 }));
        for client in self.honest.iter().chain(&self.closing_clients) {
            let left = self.pair.open_requests(*client);
            if left > 0 && !self.unreading_clients.contains(client) {
                return Err(format!("{left} requests of {client:?}, which hears, have no end\n{}", self.description));
            }
            self.pair.close(*client);
        }
        self.pair.check_settled().map_err(|violation| format!("{violation}\n{}", self.description))?;
        Ok((self.pair.trace(), self.pair.counts()))
    }
}

/// All seeds, or the one to replay.
#[allow(clippy::disallowed_methods)] // test-only switch, not configuration
fn seeds() -> Vec<u64> {
    match std::env::var("LEEWARD_SWARM_SEED") {
        Ok(seed) => vec![seed.parse().expect("LEEWARD_SWARM_SEED is a number")],
        Err(_) => (1..=SCENARIOS).collect(),
    }
}

#[test]
fn random_scenarios_pass_the_conservation_checks() {
    let (seeds, mut counts) = (seeds(), Vec::new());
    for seed in &seeds {
        match Swarm::draw(*seed).run() {
            Ok((_, found)) => counts.push(found),
            Err(violation) => {
                panic!("{violation}\nreplay: LEEWARD_SWARM_SEED={seed} cargo test -p leeward-session --test pair swarm")
            }
        }
    }
    // The scenarios cover the rare events.
    let sum = |of: fn(&RequestCounts) -> u64| counts.iter().map(of).sum::<u64>();
    if seeds.len() > 1 {
        assert!(sum(|counts| counts.completed) > 10_000, "{}", sum(|counts| counts.completed));
        let rare: [fn(&RequestCounts) -> u64; 3] =
            [|counts| counts.abandoned, |counts| counts.without_credit, |counts| counts.credits];
        for of in rare {
            assert!(sum(of) > 100, "{}", sum(of));
        }
    }
}

#[test]
fn equal_seeds_give_equal_scenarios() {
    for seed in 1..=20 {
        let once = Swarm::draw(seed).run().unwrap();
        assert_eq!(Swarm::draw(seed).run().unwrap(), once, "seed {seed}");
    }
}
