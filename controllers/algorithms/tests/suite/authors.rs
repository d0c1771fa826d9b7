//! Random histories of events, with the decisions of the authors' own code beside ours as
//! published.
//!
//! `scripts/as-published --source CLONE` compiles the authors' code with a driver, which writes the
//! histories (`scripts/authors-code`), and runs these tests on many more of them: the folder is
//! then in `LEEWARD_AUTHORS_HISTORIES`. The committed histories in `tests/authors` are the first of
//! seed 1. `docs/as-published.md` lists where the codes differ.

use leeward_controllers::published::SWITCH;
use leeward_core::client::{ClientHalf, ClientVerdict, Gate, Reply, Submission};
use leeward_core::params::{Params, RawParam};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{
    Arrival, CoreId, Departure, Feedback, Outcome, PendingRequest, Registration, ServerHalves, Session, SessionSlot,
    Signals, Verdict,
};
use leeward_core::units::{CreditId, Nanos, Priority, Time};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::str::FromStr;

/// Lines of a file of histories, split into words.
fn lines(name: &str) -> Vec<Vec<String>> {
    let folder = std::env::var_os("LEEWARD_AUTHORS_HISTORIES")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/authors"), PathBuf::from);
    let path = folder.join(name).with_extension("txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| line.split_whitespace().map(String::from).collect()).collect()
}

fn number<T: FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("`{word}` is no number"))
}

fn us(word: &str) -> Nanos {
    Nanos::from_micros(number(word))
}

fn at(word: &str) -> Time {
    Time::ZERO + us(word)
}

fn algorithm(name: &str) -> Algorithm {
    leeward_controllers::builtin().find(name).unwrap().clone()
}

fn params(algorithm: &Algorithm, given: &[(&str, RawParam)]) -> Params {
    let all: Vec<(&str, RawParam)> =
        [(SWITCH, RawParam::Switch(true))].into_iter().chain(given.iter().cloned()).collect();
    algorithm.params(&all).unwrap()
}

/// The parameters of a line `P`, by the names and units of its numbers.
fn given(words: &[String], names: &[(&'static str, &str)]) -> Vec<(&'static str, RawParam)> {
    let param =
        |((name, unit), word): (&(&'static str, &str), &String)| (*name, RawParam::Text(format!("{word}{unit}")));
    names.iter().zip(&words[1..]).map(param).collect()
}

/// Counts decisions, and reports the first that differs with the history that led to it.
struct Comparison<'a> {
    lines: &'a [Vec<String>],
    began: usize,
    histories: usize,
    decisions: usize,
}

impl<'a> Comparison<'a> {
    fn new(lines: &'a [Vec<String>]) -> Self {
        Comparison { lines, began: 0, histories: 0, decisions: 0 }
    }

    fn begin(&mut self, line: usize) {
        (self.began, self.histories) = (line, self.histories + 1);
    }

    fn check(&mut self, line: usize, ours: &str) {
        let authors = self.lines[line].last().unwrap();
        self.decisions += 1;
        if authors != ours {
            let from = self.began.max(line.saturating_sub(40));
            let history: Vec<String> = self.lines[from..=line].iter().map(|words| words.join(" ")).collect();
            panic!(
                "line {}: the authors' code decides {authors}, ours {ours}, after\n{} …\n{}",
                line + 1,
                self.lines[self.began].join(" "),
                history.join("\n")
            );
        }
    }

    /// Prints the counts; `scripts/as-published` adds them up.
    fn finish(&self, name: &str) {
        println!("{name}: {} histories, {} decisions", self.histories, self.decisions);
        assert!(self.histories > 0 && self.decisions > 100);
    }
}

#[test]
fn sedas_clients_send_when_the_authors_clients_send() {
    let lines = lines("seda");
    let seda = algorithm("seda");
    let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
    let mut compared = Comparison::new(&lines);
    let mut set: Vec<(&str, RawParam)> = Vec::new();
    let mut client: Option<Box<dyn ClientHalf>> = None;
    for (line, words) in lines.iter().enumerate() {
        let word = |index: usize| words[index].as_str();
        match word(0) {
            "P" => {
                set = given(words, &[("target", "us"), ("adj_i", ""), ("adj_d", ""), ("min_rate", ""), ("burst", "")]);
            }
            "H" => {
                compared.begin(line);
                let rate = ("initial_rate", RawParam::Text(word(1).into()));
                let all: Vec<(&str, RawParam)> = set.iter().cloned().chain([rate]).collect();
                client = Some((seda.build_client)(&params(&seda, &all), &environment).unwrap().half);
            }
            "R" => {
                let (now, round_trip) = (at(word(1)), us(word(2)));
                let reply = Reply { now, outcome: Outcome::Completed, round_trip, feedback: Feedback::NONE };
                client.as_mut().unwrap().reply(&reply);
            }
            _ => {
                let (client, now) = (client.as_mut().unwrap(), at(word(1)));
                let sends = client.gate(now, 0) == Gate::Open;
                if sends {
                    client.on_sent(now);
                }
                compared.check(line, if sends { "1" } else { "0" });
            }
        }
    }
    compared.finish("seda");
}

#[test]
fn dagors_server_drops_what_the_authors_server_drops() {
    let lines = lines("dagor");
    let dagor = algorithm("dagor");
    let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
    let mut compared = Comparison::new(&lines);
    let mut set: Vec<(&str, RawParam)> = Vec::new();
    let mut server: Option<ServerHalves> = None;
    let mut session = Session::new(SessionSlot(0), CoreId(0));
    let mut arrivals = 0;
    for (line, words) in lines.iter().enumerate() {
        let word = |index: usize| words[index].as_str();
        match word(0) {
            "P" => {
                let law = [("queue_target", "us"), ("decrease", ""), ("increase", "")];
                set = given(words, &[&law[..], &[("update_period", "us"), ("update_requests", "")]].concat());
            }
            "H" => {
                compared.begin(line);
                server = Some(dagor.server(&params(&dagor, &set), &environment).unwrap());
                (session, arrivals) = (Session::new(SessionSlot(0), CoreId(0)), 0);
            }
            "T" => {
                let server = server.as_mut().unwrap();
                let signals = Signals { run_delay: us(word(2)), arrivals, ..Signals::idle(at(word(1))) };
                server.control.tick(&signals);
                arrivals = 0;
                // The authors number priorities from 0.
                let threshold = server.control.gauges().priority_threshold.unwrap() - 1.0;
                compared.check(line, &(threshold as u32).to_string());
            }
            _ => {
                arrivals += 1;
                let core = server.as_mut().unwrap().cores[0].as_mut();
                let arrival = Arrival::new(Time::ZERO).with_priority(Priority::new(number::<u8>(word(1)) + 1));
                let (verdict, pending) = session.request(core, &arrival);
                compared.check(line, if verdict == Verdict::Admit { "0" } else { "1" });
                let outcome = if verdict == Verdict::Admit { Outcome::Completed } else { Outcome::Rejected };
                session.reply(core, pending, &departure(Time::ZERO, outcome));
            }
        }
    }
    compared.finish("dagor");
}

#[test]
fn dagors_clients_send_what_the_authors_clients_send() {
    let lines = lines("dagor_client");
    let dagor = algorithm("dagor");
    let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
    let mut compared = Comparison::new(&lines);
    let mut client: Option<Box<dyn ClientHalf>> = None;
    let mut first: u64 = 0;
    for (line, words) in lines.iter().enumerate() {
        let word = |index: usize| words[index].as_str();
        match word(0) {
            "H" => {
                compared.begin(line);
                first = number(word(1));
                client = Some((dagor.build_client)(&params(&dagor, &[]), &environment).unwrap().half);
            }
            "R" => {
                let feedback = Feedback { threshold: Priority::new(number::<u8>(word(1)) + 1), ..Feedback::NONE };
                let reply = Reply { now: Time::ZERO, outcome: Outcome::Completed, round_trip: Nanos::ZERO, feedback };
                client.as_mut().unwrap().reply(&reply);
            }
            _ => {
                // The client draws its first threshold from the upper bits.
                let priority = Priority::new(number::<u8>(word(1)) + 1);
                let submission = Submission { now: Time::ZERO, priority, random: first << 57 };
                let accepts = client.as_mut().unwrap().submit(&submission) == ClientVerdict::Accept;
                compared.check(line, if accepts { "1" } else { "0" });
            }
        }
    }
    compared.finish("dagor_client");
}

fn departure(now: Time, outcome: Outcome) -> Departure {
    Departure { now, outcome, sojourn: Nanos::ZERO, credit: CreditId::NONE }
}

/// A server of Breakwater with sessions on its first core.
struct Breakwater {
    server: ServerHalves,
    sessions: Vec<Session>,
    pending: Vec<VecDeque<PendingRequest>>,
}

impl Breakwater {
    fn new(given: &[(&str, RawParam)], cores: u32, sessions: u32) -> Self {
        let breakwater = algorithm("breakwater");
        let environment = Environment::new(cores, Nanos::from_micros(10), Nanos::from_micros(200));
        let mut server = breakwater.server(&params(&breakwater, given), &environment).unwrap();
        let open = |slot| {
            let mut session = Session::new(SessionSlot(slot), CoreId(0));
            server.cores[0].open(&mut session, &Registration { now: Time::ZERO, demand: 0 });
            session
        };
        let sessions: Vec<Session> = (0..sessions).map(open).collect();
        let pending = sessions.iter().map(|_| VecDeque::new()).collect();
        Breakwater { server, sessions, pending }
    }

    /// One control period. The authors' loop gives a credit to each session that it wakes, and
    /// their threads take more afterwards.
    fn tick(&mut self, delay: Nanos) -> String {
        self.server.control.tick(&Signals { run_delay: delay, ..Signals::idle(Time::ZERO) });
        let core = self.server.cores[0].as_mut();
        let woken: Vec<SessionSlot> = std::iter::from_fn(|| core.next_to_wake(0)).collect();
        let mut text = self.server.control.gauges().credit_pool.unwrap().to_string();
        for slot in woken {
            let core = self.server.cores[0].as_mut();
            let window = core.wake(&mut self.sessions[slot.0 as usize], Time::ZERO).window.0;
            text += &format!(" {}:{window}", slot.0);
        }
        text
    }

    fn call(&mut self, index: usize, demand: u32, delay: Nanos) -> String {
        let (session, core) = (&mut self.sessions[index], self.server.cores[0].as_mut());
        let arrival = Arrival::new(Time::ZERO).with_demand(demand).with_delay(delay);
        let (verdict, pending) = session.request(core, &arrival);
        if verdict == Verdict::Admit {
            self.pending[index].push_back(pending);
            return "-".into();
        }
        session.reply(core, pending, &departure(Time::ZERO, Outcome::Rejected)).window.0.to_string()
    }

    fn respond(&mut self, index: usize) -> String {
        let pending = self.pending[index].pop_front().unwrap();
        let (session, core) = (&mut self.sessions[index], self.server.cores[0].as_mut());
        session.reply(core, pending, &departure(Time::ZERO, Outcome::Completed)).window.0.to_string()
    }

    fn tell_demand(&mut self, index: usize, demand: u32) -> String {
        let (session, core) = (&mut self.sessions[index], self.server.cores[0].as_mut());
        session.demand = demand;
        core.demand(session, Time::ZERO);
        session.window.0.to_string()
    }
}

#[test]
fn breakwaters_server_gives_the_credits_of_the_authors_server() {
    let mut lines = lines("breakwater");
    // A period's decision is all of its words.
    for words in lines.iter_mut().filter(|words| words[0] == "T") {
        let decision = words.split_off(2).join(" ");
        words.push(decision);
    }
    let mut compared = Comparison::new(&lines);
    let mut set: Vec<(&str, RawParam)> = Vec::new();
    let mut server: Option<Breakwater> = None;
    for (line, words) in lines.iter().enumerate() {
        let word = |index: usize| words[index].as_str();
        if word(0) == "P" {
            set = given(words, &[("target", "us"), ("aqm_threshold", "us"), ("alpha", ""), ("beta", "")]);
            continue;
        }
        if word(0) == "H" {
            compared.begin(line);
            server = Some(Breakwater::new(&set, number(word(1)), number(word(2))));
            continue;
        }
        let server = server.as_mut().unwrap();
        let ours = match word(0) {
            "T" => server.tick(us(word(1))),
            "C" => server.call(number(word(1)), number(word(2)), us(word(3))),
            "R" => server.respond(number(word(1))),
            _ => server.tell_demand(number(word(1)), number(word(2))),
        };
        compared.check(line, &ours);
    }
    compared.finish("breakwater");
}
