//! Recordings of simulated runs: in a replay every controller decides the same, and a changed
//! decision is found.

use leeward_core::params::{Params, RawParam};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{RejectReason, Verdict};
use leeward_core::units::Nanos;
use leeward_recording::{
    Answer, Block, Difference, Entry, Header, Item, MemorySink, Reader, Replayer, SessionCall, Timeline, record,
};
use leeward_sim::config::{ServerModel, Workload};
use leeward_sim::service_time::ServiceTime;
use leeward_sim::{SimConfig, simulate, simulate_wrapped};

fn config(cores: u32) -> SimConfig {
    let testbed = SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), 1.3);
    let share = |number: u32| number * cores / testbed.server.cores;
    let mut demand = testbed.workload.demand.clone();
    demand[0].rate.0 = demand[0].rate.0 * f64::from(cores) / f64::from(testbed.server.cores);
    SimConfig {
        server: ServerModel { cores, ..testbed.server.clone() },
        workload: Workload { clients: share(testbed.workload.clients), demand, ..testbed.workload.clone() },
        warmup: Nanos::from_millis(5),
        duration: Nanos::from_millis(40),
        ..testbed
    }
}

fn record_run(config: &SimConfig, algorithm: &Algorithm, params: &Params) -> Vec<u8> {
    let environment = Environment::new(config.server.cores, config.network.rtt, config.slo);
    let header = Header::new("simulator", algorithm, params, &environment);
    let memory = MemorySink::new(1 << 28);
    let mut ends = None;
    let wrap = |halves| {
        let (halves, recorder) = record(halves, &header, Box::new(memory.clone()));
        ends = Some(recorder);
        halves
    };
    let report = simulate_wrapped(config, algorithm, params, wrap).unwrap();
    assert_eq!(report, simulate(config, algorithm, params).unwrap(), "recording changes nothing");
    memory.finish(&ends.unwrap())
}

fn entries(bytes: &[u8]) -> (Header, Vec<Entry>) {
    let mut header = None;
    let mut entries = Vec::new();
    for item in Reader::items(bytes) {
        match item.unwrap() {
            Item::Header(read) => header = Some(read),
            Item::Entry(entry) => entries.push(entry),
            Item::End(end) => assert_eq!(end.entries, entries.len() as u64),
        }
    }
    (header.unwrap(), entries)
}

fn replay(mut replayer: Replayer, entries: &[Entry]) -> Replayer {
    for entry in entries {
        replayer.step(entry).unwrap();
    }
    replayer
}

fn difference(header: &Header, entries: &[Entry]) -> Option<Difference> {
    replay(Replayer::from_header(header, &leeward_controllers::builtin()).unwrap(), entries).difference().cloned()
}

#[test]
fn every_controller_replays_its_decisions() {
    for algorithm in leeward_controllers::builtin().algorithms() {
        for cores in [1, 10] {
            let bytes = record_run(&config(cores), algorithm, &Params::default());
            let (header, entries) = entries(&bytes);
            let replayer = replay(Replayer::from_header(&header, &leeward_controllers::builtin()).unwrap(), &entries);
            let found = replayer.difference().map(ToString::to_string);
            assert_eq!(found, None, "{} on {cores} cores", algorithm.name);
            let counts = replayer.counts();
            assert_eq!(counts.entries, entries.len() as u64);
            assert!(counts.requests > 200 && counts.ticks > 30, "{} {counts:?}", algorithm.name);
            assert_eq!(
                (counts.rejected_recorded, counts.late_recorded),
                (counts.rejected_replayed, counts.late_replayed)
            );
            assert!(counts.dequeues > 200 && counts.dequeues <= counts.requests, "{} {counts:?}", algorithm.name);
            let rows = entries.iter().fold(Timeline::new(20), |mut timeline, entry| {
                timeline.record(entry);
                timeline
            });
            assert_eq!(rows.rows().iter().map(|row| row.requests).sum::<u64>(), counts.requests);
            let rejected = counts.rejected_recorded + counts.late_recorded;
            assert_eq!(rows.rows().iter().map(|row| row.rejected).sum::<u64>(), rejected);
            let each = bytes.len() as f64 / counts.entries as f64;
            assert!(each < 30.0, "{}: {each:.1} bytes per call", algorithm.name);
        }
    }
}

#[test]
fn every_parameter_choice_of_breakwater_replays_its_decisions() {
    let registry = leeward_controllers::builtin();
    let breakwater = registry.find("breakwater").unwrap();
    let word = |text: &str| RawParam::Text(text.into());
    for pair in [
        ("waking", word("random")),
        ("demand", word("synchronization")),
        ("additive", word("at_least_one")),
        ("credits", word("off")),
        ("target", word("33.3us")),
        ("alpha", word("0.7%")),
    ] {
        let params = breakwater.params(&[pair]).unwrap();
        let (header, entries) = entries(&record_run(&config(4), breakwater, &params));
        assert_eq!(difference(&header, &entries), None, "{:?}", header.params);
    }
}

/// On one overloaded core, many waiting requests are rejected when they are dequeued.
#[test]
fn late_rejections_replay() {
    let registry = leeward_controllers::builtin();
    let breakwater = registry.find("breakwater").unwrap();
    let stale = |span: &str| breakwater.params(&[("stale", RawParam::Text(span.into()))]).unwrap();
    let (header, entries) = entries(&record_run(&config(1), breakwater, &stale("60us")));
    let same = replay(Replayer::from_header(&header, &registry).unwrap(), &entries);
    assert_eq!(same.difference().map(ToString::to_string), None);
    let counts = same.counts();
    assert!(counts.late_recorded > 50 && counts.late_recorded < counts.dequeues, "{counts:?}");
    assert_eq!((counts.late_replayed, counts.late_both), (counts.late_recorded, counts.late_recorded));
    // With the same waiting times, a stricter controller rejects those requests and more.
    let stricter = Replayer::with_algorithm(breakwater, &stale("30us"), &header.environment).unwrap();
    let stricter = replay(stricter, &entries);
    let asked = stricter.counts();
    assert_eq!((asked.late_recorded, asked.late_both), (counts.late_recorded, counts.late_recorded));
    assert!(asked.late_replayed > asked.late_recorded, "{asked:?}");
    assert_eq!(stricter.difference().unwrap().call, "execute");
}

/// The entries with the last matching entry changed by `wanted`, and that entry's index.
fn corrupt(entries: &[Entry], wanted: impl Fn(&mut Entry) -> bool) -> (Vec<Entry>, u64) {
    let mut entries = entries.to_vec();
    for (index, entry) in entries.iter_mut().enumerate().rev() {
        if wanted(entry) {
            return (entries, index as u64 + 1);
        }
    }
    panic!("no such entry");
}

#[test]
fn canary_a_changed_decision_is_found() {
    let registry = leeward_controllers::builtin();
    let breakwater = registry.find("breakwater").unwrap();
    let (header, entries) = entries(&record_run(&config(2), breakwater, &Params::default()));
    let check = |what: &str, change: &dyn Fn(&mut Entry) -> bool| {
        let (corrupted, place) = corrupt(&entries, change);
        // Converts through bytes, as a replay of a file does.
        let (_, corrupted) = self::entries(&Block::recording(&header, &corrupted));
        let found = difference(&header, &corrupted).expect("the change is found");
        assert_eq!((found.entry, found.part), (place, what), "{found}");
    };
    check("answer", &|entry| match entry {
        Entry::Session(call) if matches!(call.call, SessionCall::Request(_)) => {
            call.answer = match call.answer {
                Answer::Verdict(Verdict::Admit) => Answer::Verdict(Verdict::Reject(RejectReason::Delay)),
                _ => Answer::Verdict(Verdict::Admit),
            };
            true
        }
        _ => false,
    });
    check("answer", &|entry| match entry {
        Entry::Session(call) => match &mut call.answer {
            Answer::Feedback(feedback) => {
                feedback.window.0 += 1;
                true
            }
            _ => false,
        },
        _ => false,
    });
    check("session's window", &|entry| match entry {
        Entry::Session(call) if matches!(call.call, SessionCall::Request(_)) => {
            call.window.0 += 1;
            true
        }
        _ => false,
    });
    check("pair of the controller's words", &|entry| match entry {
        Entry::Session(call) if matches!(call.call, SessionCall::Request(_)) => {
            call.custom = Some([7, 0]);
            true
        }
        _ => false,
    });
    check("answer", &|entry| match entry {
        Entry::Dequeue { verdict, .. } => {
            *verdict = match verdict {
                Verdict::Admit => Verdict::Reject(RejectReason::Delay),
                Verdict::Reject(_) => Verdict::Admit,
            };
            true
        }
        _ => false,
    });
    check("session to wake", &|entry| match entry {
        Entry::NextToWake { chosen: chosen @ Some(_), .. } => {
            *chosen = None;
            true
        }
        _ => false,
    });
    check("controller's state", &|entry| match entry {
        Entry::Tick { gauges, .. } => {
            gauges.credit_pool = gauges.credit_pool.map(|pool| pool + 1);
            true
        }
        _ => false,
    });
}

#[test]
fn other_parameters_give_other_decisions() {
    let registry = leeward_controllers::builtin();
    let breakwater = registry.find("breakwater").unwrap();
    let (header, entries) = entries(&record_run(&config(4), breakwater, &Params::default()));
    let target = breakwater.params(&[("target", RawParam::Text("5us".into()))]).unwrap();
    let other = replay(Replayer::with_algorithm(breakwater, &target, &header.environment).unwrap(), &entries);
    let counts = other.counts();
    assert!(other.difference().is_some() && counts.rejected_replayed > counts.rejected_recorded, "{counts:?}");
    assert!(counts.windows_replayed < counts.windows_recorded, "{counts:?}");
    // The same parameters, given explicitly: the same verdict on every request.
    let (algorithm, params) = header.algorithm(&registry).unwrap();
    let same = replay(Replayer::with_algorithm(algorithm, &params, &header.environment).unwrap(), &entries);
    assert_eq!(same.difference(), None);
}

/// The accounting of another controller stays consistent although the recorded plant followed other
/// verdicts.
#[test]
fn every_controller_can_replay_every_recording() {
    let registry = leeward_controllers::builtin();
    for recorded_name in ["none", "breakwater", "gradient"] {
        let algorithm = registry.find(recorded_name).unwrap();
        let (header, entries) = entries(&record_run(&config(2), algorithm, &Params::default()));
        for other in registry.algorithms() {
            let replayer = Replayer::with_algorithm(other, &Params::default(), &header.environment).unwrap();
            let counts = replay(replayer, &entries).counts();
            assert!(counts.requests > 1_000, "{} on a recording of {recorded_name}: {counts:?}", other.name);
        }
    }
}
