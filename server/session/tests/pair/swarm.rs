//! Hundreds of random scenarios over every controller, each drawn from one number: honest clients that come and go,
//! cheats, slow readers, half-open peers, cuts, damage, and sometimes a stop in the middle. The books are checked after
//! every step (`leeward_pair`), and in the end everything has to settle.
//!
//! `LEEWARD_SWARM_SEED=7 cargo test -p leeward-session --test pair swarm` replays one of them.

use crate::DATAGRAMS;
use crate::support::{LONG, bytes, call, register};
use leeward_core::params::Params;
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::units::{Nanos, Priority};
use leeward_host::Counts;
use leeward_pair::{Chance, ClientId, Cut, End, Faults, Handler, Pair, PairConfig, Reading, WireModel, Work};
use leeward_session::client::ConnectionConfig;
use leeward_wire::{Budget, Demand, Frame, PayloadLimit, Ping, Pong, Timestamp, Version};

const SCENARIOS: u64 = 300;

/// A scenario under way.
struct Swarm {
    pair: Pair,
    chance: Chance,
    honest: Vec<ClientId>,
    raw: Vec<ClientId>,
    /// Honest ones that have left, or are leaving.
    leaving: Vec<ClientId>,
    /// Clients that hear nothing, or not soon: only the test that drives them can know that they are done.
    deaf: Vec<ClientId>,
    words: String,
}

fn handler(seed: u64, mean: u64) -> Handler {
    let mut chance = Chance::new(seed);
    Box::new(move |payload, _| {
        let takes = Nanos(chance.below(2 * mean));
        match chance.below(40) {
            0 => Work::Failure(takes, "a mood".into()),
            1 => Work::Congested(takes, "accounts".into()),
            2 => Work::Result(takes, vec![7; chance.below(20_000) as usize]),
            // Its calls are abandoned when its connection ends.
            3 if chance.one_in(20) => Work::Never,
            _ => Work::Result(takes, payload.to_vec()),
        }
    })
}

impl Swarm {
    fn draw(seed: u64) -> Swarm {
        let mut chance = Chance::new(seed);
        let registry = leeward_controllers::builtin();
        let algorithms: Vec<&Algorithm> = registry.algorithms().collect();
        let algorithm = algorithms[seed as usize % algorithms.len()];
        // A silence of seconds is many ticks: fewer where ends have to find it out.
        let least = if DATAGRAMS.is_some() { 50_000 } else { 1_000 };
        let rtt = Nanos(least + chance.below(200_000));
        let mean = 500 + chance.below(50_000);
        let environment = Environment::new(1, rtt, (rtt + Nanos(mean)) * (2 + chance.below(20)));
        let wire = WireModel {
            delay: rtt / 2,
            jitter: Nanos([0, rtt.0 / 10, rtt.0 * 2][chance.below(3) as usize]),
            chunk_max: [0, 1, 70, 3_000][chance.below(4) as usize],
            room: [200, 5_000, 200_000][chance.below(3) as usize],
        };
        let config = PairConfig {
            seed,
            wire,
            datagrams: DATAGRAMS.map(|_| Faults::each([0, 10, 50, 200][chance.below(4) as usize])),
            workers: 1 + chance.below(4) as usize,
            unanswered_max: [1, 16, 256][chance.below(3) as usize],
            payload_max: PayloadLimit::new(8 * 1024),
            newest: Version::NEWEST,
            unsent_max: [1_000, 1 << 20][chance.below(2) as usize],
            connections_max: if chance.one_in(5) { 10 } else { usize::MAX },
            sweep: Nanos::from_millis(1),
            silence: Nanos::from_millis(20),
            part: Nanos::from_millis(20),
            stuck: Nanos::from_millis(20),
            linger: Nanos::from_millis(5),
            drain: Nanos::from_millis(10),
        };
        let words = format!("{} in {environment:?}, {config:?}, {mean} ns of work", algorithm.name);
        let work = handler(seed, mean);
        let pair = Pair::new(algorithm, &Params::default(), environment, config, work).unwrap();
        Swarm { pair, chance, honest: Vec::new(), raw: Vec::new(), leaving: Vec::new(), deaf: Vec::new(), words }
    }

    fn any(&mut self, of: fn(&Swarm) -> &Vec<ClientId>) -> Option<ClientId> {
        let count = of(self).len() as u64;
        let at = self.chance.below(count) as usize;
        of(self).get(at).copied()
    }

    /// Does one thing to the pair.
    fn act(&mut self) {
        match self.chance.below(100) {
            0..8 => self.connect(),
            8..60 => self.submit(),
            60..78 => self.cheat(),
            78..82 => self.leave(),
            82..86 => self.read_otherwise(),
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
        if self.chance.one_in(3) {
            let client = self.pair.connect_raw();
            if !self.chance.one_in(4) {
                self.pair.say(client, &register());
            }
            self.raw.push(client);
        } else {
            let output_max = [1, 1_000, 256 * 1024][self.chance.below(3) as usize];
            let client = self.pair.connect_with(ConnectionConfig { output_max, ..ConnectionConfig::default() });
            self.honest.push(client);
        }
    }

    fn submit(&mut self) {
        let Some(client) = self.any(|swarm| &swarm.honest) else { return };
        for _ in 0..1 + self.chance.below(6) {
            let length = [0, 5, 300, 9_000][self.chance.below(4) as usize];
            let payload = vec![self.chance.bits() as u8; self.chance.below(length + 1) as usize];
            let budget = match self.chance.below(3) {
                0 => Budget::of(Nanos(self.chance.below(1_000_000))),
                _ => Budget::UNLIMITED,
            };
            let priority = Priority::from_random(self.chance.bits());
            let token = self.pair.submit_with(client, &payload, priority, budget);
            if self.chance.one_in(10) {
                self.pair.cancel(client, token);
            }
        }
    }

    /// A raw client says something, most of it against the rules.
    fn cheat(&mut self) {
        let Some(client) = self.any(|swarm| &swarm.raw) else { return };
        let number = 1 + self.chance.below(40);
        let timestamp = Timestamp(self.chance.bits());
        let saying = match self.chance.below(14) {
            0 => bytes(&register()),
            1 => bytes(&Frame::Deregister),
            2 => bytes(&Frame::Demand(Demand { demand: self.chance.bits() as u32 })),
            3 => bytes(&Frame::Ping(Ping { timestamp })).repeat(number as usize),
            4 => bytes(&Frame::Pong(Pong { timestamp })),
            // Without credit, and each name twice.
            5 => (1..=number).flat_map(|request| bytes(&call(request, b""))).collect(),
            6 => bytes(&call(number, &vec![1; 20_000])),
            7 => (0..number).map(|_| self.chance.bits() as u8).collect(),
            8 => bytes(&call(number, b"cut"))[..self.chance.below(67) as usize].to_vec(),
            9 => {
                let mut damaged = bytes(&call(number, b"x"));
                let at = self.chance.below(damaged.len() as u64) as usize;
                damaged[at] ^= 1 << self.chance.below(8);
                damaged
            }
            _ => bytes(&call(self.chance.bits() | 1, b"a call")),
        };
        self.pair.say_bytes(client, &saying);
    }

    fn leave(&mut self) {
        if self.chance.one_in(3) {
            let Some(client) = self.any(|swarm| &swarm.raw) else { return };
            self.pair.close(client);
            self.raw.retain(|raw| *raw != client);
        } else if let Some(client) = self.any(|swarm| &swarm.honest) {
            if self.chance.one_in(2) {
                self.pair.close(client);
            } else {
                self.pair.deregister(client);
            }
            // A request after that ends at once.
            self.pair.submit(client, b"late");
            self.honest.retain(|honest| *honest != client);
            self.leaving.push(client);
        }
    }

    fn read_otherwise(&mut self) {
        let reading = match self.chance.below(4) {
            0 => Reading::Slow(1 + self.chance.below(300) as usize, Nanos(1 + self.chance.below(100_000))),
            1 => Reading::Never,
            _ => Reading::Eager,
        };
        let of: fn(&Swarm) -> &Vec<ClientId> =
            if self.chance.one_in(2) { |swarm| &swarm.honest } else { |swarm| &swarm.raw };
        if let Some(client) = self.any(of) {
            self.pair.reads(client, reading);
            self.deaf.push(client);
        }
    }

    fn cut(&mut self) {
        let cut = [Cut::ClientHalf, Cut::ServerHalf, Cut::Reset, Cut::Silence][self.chance.below(4) as usize];
        if let Some(client) = self.any(|swarm| &swarm.honest) {
            self.pair.cut(client, cut);
            if cut == Cut::Silence {
                self.deaf.push(client);
            }
        }
    }

    fn damage(&mut self) {
        let Some(client) = self.any(|swarm| &swarm.honest) else { return };
        let to = if self.chance.one_in(2) { End::Server } else { End::Client };
        let chance = &mut self.chance;
        self.pair.tamper(client, to, |chunks| {
            let count = chunks.len() as u64;
            if count == 0 {
                return;
            }
            let (one, other) = (chance.below(count) as usize, chance.below(count) as usize);
            match chance.below(4) {
                0 => chunks.swap(one, other),
                1 => chunks.push(chunks[one].clone()),
                2 => drop(chunks.remove(one)),
                _ => chunks[one].iter_mut().take(1).for_each(|byte| *byte ^= 1 << chance.below(8)),
            }
        });
    }

    /// The whole scenario.
    fn run(mut self) -> Result<(u64, Counts), String> {
        let acts = 200 + self.chance.below(300);
        let stop_at = self.chance.below(4 * acts);
        for act in 0..acts {
            if act == stop_at {
                self.pair.stop();
            }
            self.act();
            let pause = [0, 1_000, 100_000][self.chance.below(3) as usize];
            let pause = Nanos(self.chance.below(pause + 1));
            self.pair.run_for(pause);
            if let Some(violation) = self.pair.violation() {
                return Err(format!("act {act}: {violation}\n{}", self.words));
            }
        }
        // Those that hear go on until everything has its end; then the server stops.
        self.pair.run_for(Nanos::from_millis(200));
        self.pair.stop();
        self.pair.run_while(LONG, |pair| !pair.has_stopped());
        // A client that was not told by any datagram finds out by the silence.
        let patience = if DATAGRAMS.is_some() { Nanos::from_secs(20) } else { Nanos::from_millis(200) };
        let hearing: Vec<_> = self.honest.iter().chain(&self.leaving).filter(|id| !self.deaf.contains(id)).collect();
        let waits = |pair: &mut Pair| hearing.iter().any(|client| pair.open_requests(**client) > 0);
        self.pair.run_while(patience, waits);
        self.pair.run_for(Nanos::from_millis(if DATAGRAMS.is_some() { 10 } else { 200 }));
        for client in self.honest.iter().chain(&self.leaving) {
            let left = self.pair.open_requests(*client);
            if left > 0 && !self.deaf.contains(client) {
                return Err(format!("{left} requests of {client:?}, which hears, have no end\n{}", self.words));
            }
            self.pair.close(*client);
        }
        self.pair.settled().map_err(|found| format!("{found}\n{}", self.words))?;
        Ok((self.pair.trace(), self.pair.counts()))
    }
}

/// All, or the one that is to be replayed.
#[allow(clippy::disallowed_methods)] // a test's own switch, not configuration
fn seeds() -> Vec<u64> {
    match std::env::var("LEEWARD_SWARM_SEED") {
        Ok(seed) => vec![seed.parse().expect("LEEWARD_SWARM_SEED is a number")],
        Err(_) => (1..=SCENARIOS).collect(),
    }
}

#[test]
fn random_scenarios_keep_their_books() {
    let (seeds, mut counts) = (seeds(), Vec::new());
    for seed in &seeds {
        match Swarm::draw(*seed).run() {
            Ok((_, found)) => counts.push(found),
            Err(violation) => {
                panic!("{violation}\nreplay: LEEWARD_SWARM_SEED={seed} cargo test -p leeward-session --test pair swarm")
            }
        }
    }
    // The scenarios do what they are drawn for.
    let sum = |of: fn(&Counts) -> u64| counts.iter().map(of).sum::<u64>();
    if seeds.len() > 1 {
        assert!(sum(|counts| counts.completed) > 10_000, "{}", sum(|counts| counts.completed));
        let rare: [fn(&Counts) -> u64; 3] =
            [|counts| counts.abandoned, |counts| counts.without_credit, |counts| counts.credits];
        for of in rare {
            assert!(sum(of) > 100, "{}", sum(of));
        }
    }
}

#[test]
fn a_scenario_is_its_seed() {
    for seed in 1..=20 {
        let once = Swarm::draw(seed).run().unwrap();
        assert_eq!(Swarm::draw(seed).run().unwrap(), once, "seed {seed}");
    }
}
