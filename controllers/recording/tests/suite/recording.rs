//! Recordings as bytes: for any bytes, reading ends with a clear error, in bounded memory. A full
//! sink ends a recording and not the plant.

use leeward_core::params::{Params, RawParam};
use leeward_core::registry::Environment;
use leeward_core::server::{
    Admission, Arrival, ControlLoop, CoreGrant, CoreId, Departure, Downstream, Feedback, Gauges, Outcome, Registration,
    RejectReason, ServerHalves, Session, SessionSlot, Signals, Verdict,
};
use leeward_core::units::{CreditId, Credits, Method, Nanos, Priority, Time};
use leeward_recording::{
    Answer, Block, EndReason, Entry, Header, Item, MemorySink, ReadError, Reader, Replayer, SessionCall, SessionEntry,
    Sink, SinkFull, record,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::sync::{Arc, Mutex, OnceLock};

/// The bytes of `docs/recording-format.md`: preamble and header, eight entries, end.
const PINNED: &str = "\
    4c4545575245430a0300012c000000e0b834f705302e312e300661207465737405636f64656c02904ec09a0c0108696e7465\
    7276616c000738303030306e730261000000c912ff792c0102d80401030507e8070403020100000000ac02cd010213010305\
    40ac026101021401030507e807040302010000000001c201021301030540220102000103054008058000092601ff00000000\
    00000002070000000200010101014801ac020103040000003263aefd0008a202";

fn environment() -> Environment {
    Environment::new(2, Nanos::from_micros(10), Nanos::from_micros(200))
}

fn header(name: &str) -> Header {
    Header::new("a test", leeward_controllers::builtin().find(name).unwrap(), &Params::default(), &environment())
}

fn halves(name: &str) -> ServerHalves {
    leeward_controllers::builtin().find(name).unwrap().server(&Params::default(), &environment()).unwrap()
}

/// Runs a few sessions for a while, with clocks that differ.
fn drive(halves: &mut ServerHalves, steps: u64) {
    let mut sessions: Vec<Session> = (0..6).map(|n| Session::new(SessionSlot(n / 2), CoreId(n % 2))).collect();
    for session in &mut sessions {
        halves.cores[session.core.0 as usize].open(session, &Registration { now: Time(9), demand: 1 });
    }
    for step in 0..steps {
        let now = Time(1_000 + step * 7_000 - step % 3);
        let session = &mut sessions[(step % 6) as usize];
        let core = halves.cores[session.core.0 as usize].as_mut();
        match step % 5 {
            0 | 1 => {
                let delay = Nanos(step % 97 * 5_000);
                let random = step.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let event = Arrival::new(now)
                    .with_demand((step % 4) as u32)
                    .with_priority(Priority::from_random(random))
                    .with_delay(delay)
                    .with_random(random);
                let waited = Nanos(step % 89 * 8_000);
                let (verdict, pending) = session.request(core, &event);
                let outcome = match verdict {
                    Verdict::Admit if core.on_dequeue(waited) == Verdict::Admit => Outcome::Completed,
                    _ => Outcome::Rejected,
                };
                let sojourn = delay + Nanos(10_000);
                let _ = session.reply(core, pending, &Departure { now, outcome, sojourn, credit: CreditId(now.0 / 2) });
            }
            2 => drop(core.demand(session, now)),
            3 => {
                if let Some(slot) = core.next_to_wake(step) {
                    let chosen = sessions.iter_mut().find(|s| s.slot == slot && s.core == CoreId((step % 2) as u32));
                    if let Some(chosen) = chosen {
                        let _ = halves.cores[chosen.core.0 as usize].wake(chosen, now);
                    }
                }
            }
            _ if step % 50 == 4 => {
                core.close(session, now);
                *session = Session::new(session.slot, session.core);
                core.open(session, &Registration { now, demand: 2 });
            }
            _ => {
                let counts = Signals {
                    arrivals: 2,
                    completions: step % 3,
                    rejections: 1,
                    lock_rejections: 1,
                    ..Signals::idle(now)
                };
                // Always a queue, which shows an overload.
                halves.control.tick(&Signals { run_delay: Nanos(70_000 + step % 83 * 2_000), ..counts });
            }
        }
    }
}

fn recording(name: &str, steps: u64) -> Vec<u8> {
    let memory = MemorySink::new(1 << 24);
    let (mut halves, recorder) = record(halves(name), &header(name), Box::new(memory.clone()));
    drive(&mut halves, steps);
    memory.finish(&recorder)
}

fn sound() -> &'static [u8] {
    static SOUND: OnceLock<Vec<u8>> = OnceLock::new();
    SOUND.get_or_init(|| recording("breakwater", 600))
}

/// Reads `bytes` and replays as far as possible; returns the number of entries, and the error.
fn read(bytes: &[u8]) -> (u64, Option<ReadError>) {
    let registry = leeward_controllers::builtin();
    let mut replayer = None;
    let mut entries = 0;
    for item in Reader::items(bytes) {
        match item {
            Ok(Item::Header(header)) => replayer = Replayer::from_header(&header, &registry).ok(),
            Ok(Item::Entry(entry)) => {
                entries += 1;
                if replayer.as_mut().is_some_and(|replayer| replayer.step(&entry).is_err()) {
                    replayer = None;
                }
            }
            Ok(Item::End(end)) => assert_eq!(end.entries, entries),
            Err(error) => return (entries, Some(error)),
        }
    }
    (entries, None)
}

fn entries(bytes: &[u8]) -> Vec<Entry> {
    Reader::items(bytes)
        .filter_map(|item| match item {
            Ok(Item::Entry(entry)) => Some(entry),
            _ => None,
        })
        .collect()
}

#[test]
fn a_recording_replays() {
    for algorithm in leeward_controllers::builtin().algorithms() {
        let bytes = recording(algorithm.name, 3_000);
        let mut replayer = Replayer::from_header(&header(algorithm.name), &leeward_controllers::builtin()).unwrap();
        for entry in entries(&bytes) {
            replayer.step(&entry).unwrap();
        }
        assert_eq!(replayer.difference(), None, "{}", algorithm.name);
        let counts = replayer.counts();
        assert!(counts.closed > 10 && counts.dequeues > 100 && counts.entries > 2_000, "{counts:?}");
        let asks_twice = ["breakwater", "efficiency", "auto", "edge"].contains(&algorithm.name);
        assert_eq!(counts.late_recorded > 10, asks_twice, "{} {counts:?}", algorithm.name);
        assert_eq!(read(&bytes).1, None);
    }
}

#[test]
fn every_truncation_is_detected_and_the_entries_before_it_are_read() {
    let bytes = sound();
    let whole = read(bytes).0;
    let mut before = 0;
    for length in 0..bytes.len() {
        let (entries, error) = read(&bytes[..length]);
        match error.unwrap() {
            ReadError::NotARecording => assert_eq!(length, 0),
            ReadError::Truncated { offset, entries: counted } => {
                assert_eq!((offset, counted), (length as u64, entries));
            }
            other => panic!("{length}: {other}"),
        }
        assert!(entries >= before, "more bytes, fewer entries");
        before = entries;
    }
    assert_eq!(before, whole);
}

#[test]
fn invalid_recordings_are_reported() {
    let check = |bytes: &[u8], expected: &str| {
        let message = read(bytes).1.unwrap().to_string();
        assert!(message.contains(expected), "{message}");
    };
    check(b"", "not a recording");
    check(b"{", "not a recording");
    check(b"[scenario]\nid = 'x'\n", "not a recording");
    let mut newer = sound().to_vec();
    newer[8] = 9;
    check(&newer, "format 9");
    let mut longer = sound().to_vec();
    longer.push(0);
    check(&longer, "something follows the end");
    let header = Block::recording(&header("none"), &[]);
    check(&[sound(), &header].concat(), "something follows the end");
}

#[test]
fn impossible_slots_and_cores_are_rejected() {
    let check = |change: &dyn Fn(&mut leeward_recording::SessionEntry), expected: &str| {
        let mut entries = entries(sound());
        let Entry::Session(first) = &mut entries[0] else { panic!("an open comes first") };
        change(first);
        let mut replayer = Replayer::from_header(&header("breakwater"), &leeward_controllers::builtin()).unwrap();
        let message = entries.iter().find_map(|entry| replayer.step(entry).err()).unwrap().to_string();
        assert!(message.contains(expected), "{message}");
    };
    check(&|entry| entry.slot = SessionSlot(u32::MAX), "places for more than");
    check(&|entry| entry.core = CoreId(2), "there is no core 2");
    check(&|entry| entry.slot = SessionSlot(77), "which is not open");
    check(&|entry| entry.slot = SessionSlot(1), "which is already open");
}

/// Sink that takes `left` blocks.
struct LimitedSink {
    memory: MemorySink,
    left: usize,
}

impl Sink for LimitedSink {
    fn take(&mut self, block: Block) -> Result<Vec<u8>, SinkFull> {
        self.left = self.left.checked_sub(1).ok_or(SinkFull)?;
        self.memory.take(block)
    }
}

#[test]
fn a_full_sink_ends_the_recording_but_not_the_controller() {
    for left in [0, 1, 2, 5] {
        let memory = MemorySink::new(1 << 24);
        let sink = LimitedSink { memory: memory.clone(), left };
        let (mut recorded, recorder) = record(halves("breakwater"), &header("breakwater"), Box::new(sink));
        drive(&mut recorded, 100_000);
        assert!(!recorder.is_recording());
        let mut plain = halves("breakwater");
        drive(&mut plain, 100_000);
        assert_eq!(recorded.control.gauges(), plain.control.gauges(), "the plant went on all the same");
        let bytes = memory.finish(&recorder);
        if left == 0 {
            continue;
        }
        let items: Vec<Item> = Reader::items(&bytes).collect::<Result<_, _>>().unwrap();
        let Some(Item::End(end)) = items.last() else { panic!("no end") };
        assert_eq!((end.reason, end.entries), (EndReason::Overrun, items.len() as u64 - 2));
        assert_eq!(end.entries > 0, left > 1);
    }
}

/// Records the names of its called methods. The default implementations are forbidden here, so that
/// a new method must be added to the test below.
struct CallLog(Arc<Mutex<Vec<&'static str>>>);

impl CallLog {
    fn note(&self, method: &'static str) {
        self.0.lock().unwrap().push(method);
    }
}

#[deny(clippy::missing_trait_methods)]
impl Admission for CallLog {
    fn open(&mut self, _: &mut Session, _: &Registration) {
        self.note("open");
    }
    fn request(&mut self, _: &mut Session, _: &Arrival) -> Verdict {
        self.note("request");
        Verdict::Reject(RejectReason::Priority)
    }
    fn on_dequeue(&mut self, _: Nanos) -> Verdict {
        self.note("execute");
        Verdict::Reject(RejectReason::Concurrency)
    }
    fn reply(&mut self, _: &mut Session, _: &Departure) -> Feedback {
        self.note("reply");
        Feedback { custom: 1, ..Feedback::NONE }
    }
    fn demand(&mut self, _: &mut Session, _: Time) -> Option<Feedback> {
        self.note("demand");
        Some(Feedback { custom: 2, ..Feedback::NONE })
    }
    fn next_to_wake(&mut self, _: u64) -> Option<SessionSlot> {
        self.note("next to wake");
        Some(SessionSlot(3))
    }
    fn wake(&mut self, _: &mut Session, _: Time) -> Feedback {
        self.note("wake");
        Feedback { custom: 4, ..Feedback::NONE }
    }
    fn close(&mut self, _: &mut Session, _: Time) {
        self.note("close");
    }
}

#[deny(clippy::missing_trait_methods)]
impl ControlLoop for CallLog {
    fn period(&self) -> Nanos {
        self.note("period");
        Nanos(5)
    }
    fn reaction(&self) -> Nanos {
        self.note("reaction");
        Nanos(6)
    }
    fn tick(&mut self, _: &Signals) {
        self.note("tick");
    }
    fn on_core_grant(&mut self, _: &CoreGrant) {
        self.note("cores granted");
    }
    fn set_downstream(&mut self, _: &Downstream) {
        self.note("downstream");
    }
    fn gauges(&self) -> Gauges {
        self.note("gauges");
        Gauges { in_flight: Some(6), ..Gauges::default() }
    }
}

/// Every method of the halves is forwarded once, with its answer; while recording, each decision
/// has its entry.
#[test]
fn every_method_is_forwarded_and_recorded() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let call_log = || Box::new(CallLog(Arc::clone(&calls)));
    let memory = MemorySink::new(1 << 20);
    let halves = ServerHalves { cores: vec![call_log()], control: call_log() };
    let (mut halves, recorder) = record(halves, &header("none"), Box::new(memory.clone()));
    let all = |halves: &mut ServerHalves| {
        let (core, control) = (halves.cores[0].as_mut(), halves.control.as_mut());
        let mut session = Session::new(SessionSlot(0), CoreId(0));
        let now = Time(1);
        let arrival = Arrival::new(now);
        core.open(&mut session, &Registration { now, demand: 0 });
        assert_eq!(core.request(&mut session, &arrival), Verdict::Reject(RejectReason::Priority));
        assert_eq!(core.on_dequeue(Nanos(7)), Verdict::Reject(RejectReason::Concurrency));
        let departure = Departure { now, outcome: Outcome::Rejected, sojourn: Nanos(0), credit: CreditId::NONE };
        assert_eq!(core.reply(&mut session, &departure).custom, 1);
        assert_eq!(core.demand(&mut session, now).unwrap().custom, 2);
        assert_eq!(core.next_to_wake(0), Some(SessionSlot(3)));
        assert_eq!(core.wake(&mut session, now).custom, 4);
        core.close(&mut session, now);
        assert_eq!((control.period(), control.reaction()), (Nanos(5), Nanos(6)));
        control.tick(&Signals::idle(now));
        control.on_core_grant(&CoreGrant { now, granted: 1, total: 2 });
        control.set_downstream(&Downstream::new(3, 1.0));
        assert_eq!(control.gauges().in_flight, Some(6));
    };
    let fast = [
        "open",
        "request",
        "execute",
        "reply",
        "demand",
        "next to wake",
        "wake",
        "close",
        "period",
        "reaction",
        "tick",
    ];
    all(&mut halves);
    // The entry of a tick or a grant has the state after it.
    let slow = ["gauges", "cores granted", "gauges", "downstream", "gauges", "gauges"];
    assert_eq!(std::mem::take(&mut *calls.lock().unwrap()), [&fast[..], &slow].concat());
    let bytes = memory.finish(&recorder);
    all(&mut halves);
    assert_eq!(*calls.lock().unwrap(), [&fast[..], &["cores granted", "downstream", "gauges"]].concat());
    let name = |entry: &Entry| match entry {
        Entry::Session(entry) => entry.call.name(),
        Entry::Dequeue { .. } => "execute",
        Entry::NextToWake { .. } => "next to wake",
        Entry::Tick { .. } => "tick",
        Entry::CoreGrant { .. } => "cores granted",
        Entry::Downstream { .. } => "downstream",
        Entry::Threading { .. } => "threading",
    };
    let recorded: Vec<_> = entries(&bytes).iter().map(name).collect();
    let mut expected = vec!["open", "request", "execute", "reply (dropped)", "demand", "next to wake", "wake", "close"];
    expected.extend(["tick", "cores granted", "downstream"]);
    assert_eq!(recorded, expected);
}

#[test]
fn nothing_is_recorded_after_the_end() {
    let memory = MemorySink::new(1 << 20);
    let (mut recorded, recorder) = record(halves("dagor"), &header("dagor"), Box::new(memory.clone()));
    drive(&mut recorded, 100);
    let bytes = memory.finish(&recorder);
    drive(&mut recorded, 100);
    let again = recorder.finish();
    assert_eq!(again.end.entries, entries(&bytes).len() as u64);
    assert_eq!(again.blocks.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        rng_seed: RngSeed::Fixed(7),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_bytes_are_rejected(noise in prop::collection::vec(any::<u8>(), 0..2_000)) {
        prop_assert!(read(&noise).1.is_some());
        // The same bytes after a valid preamble.
        let (_, error) = read(&[&sound()[..10], &noise].concat());
        prop_assert!(error.is_some());
    }

    /// Any change of bytes is detected: checksums cover everything but the preamble, which is
    /// compared.
    #[test]
    fn a_changed_byte_is_detected(place in any::<prop::sample::Index>(), with in 1u8..) {
        let mut bytes = sound().to_vec();
        let place = place.index(bytes.len());
        bytes[place] ^= with;
        let error = read(&bytes).1;
        prop_assert!(error.is_some(), "byte {}", place);
    }

    #[test]
    fn missing_parts_are_detected(from in any::<prop::sample::Index>(), length in 1usize..400) {
        let bytes = sound();
        let from = from.index(bytes.len());
        let rest = bytes.get(from + length..).unwrap_or_default();
        prop_assert!(read(&[&bytes[..from], rest].concat()).1.is_some());
    }

    /// Damage with a matching checksum, as by an attacker: the replay stays harmless for every
    /// controller. A controller that panics on impossible sums (in this profile) is caught. The
    /// numbers are those of read entries, exchanged and changed.
    #[test]
    fn forged_entries_do_not_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<[u64; 4]>(), 0u8..8), 1..30),
        algorithm in 0usize..10,
    ) {
        let registry = leeward_controllers::builtin();
        let algorithm = registry.algorithms().nth(algorithm).unwrap();
        let mut forged = entries(sound());
        for (place, from, words, kind) in changes {
            let (place, from) = (place.index(forged.len()), from.index(forged.len()));
            let other = forged[from];
            match (&mut forged[place], kind) {
                (entry, 0) => *entry = other,
                (Entry::Tick { signals, .. }, 1..=4) => {
                    *signals = Signals {
                        now: Time(words[0]),
                        packet_delay: Nanos(words[1]),
                        run_delay: Nanos(words[2]),
                        arrivals: words[3],
                        completions: words[0] ^ words[1],
                        rejections: words[2],
                        lock_rejections: words[3],
                    };
                }
                (Entry::Session(entry), 1) => entry.pending = words[0] as u32,
                (Entry::Session(entry), 2) => entry.demand = words[0] as u32,
                (Entry::Session(entry), 3) => entry.slot = SessionSlot(words[0] as u32 >> (words[1] % 32)),
                (Entry::Session(entry), _) => {
                    use leeward_recording::SessionCall as Call;
                    let now = Time(words[0]);
                    entry.call = match entry.call {
                        Call::Open(_) => Call::Open(Registration { now, demand: words[1] as u32 }),
                        Call::Request(mut event) => {
                            event.now = now;
                            Call::Request(event.with_delay(Nanos(words[1])).with_demand(words[2] as u32))
                        }
                        Call::Reply(event) => Call::Reply(Departure { now, sojourn: Nanos(words[1]), credit: CreditId(words[2]), ..event }),
                        call => call,
                    };
                }
                (Entry::NextToWake { random, .. }, _) => *random = words[0],
                (Entry::Dequeue { waited, .. }, 1..=4) => *waited = Nanos(words[0]),
                (Entry::Dequeue { core, .. }, _) => *core = CoreId(words[0] as u32 >> (words[1] % 32)),
                _ => {}
            }
        }
        let bytes = Block::recording(&header(algorithm.name), &forged);
        prop_assert_eq!(&entries(&bytes), &forged);
        let same = Replayer::from_header(&header(algorithm.name), &registry).unwrap();
        let other = Replayer::with_algorithm(algorithm, &Params::default(), &environment()).unwrap();
        for mut replayer in [same, other] {
            for entry in &forged {
                if replayer.step(entry).is_err() {
                    break;
                }
            }
        }
    }
}

/// The bytes of version 3. If they change, the version must change too, and old recordings must be
/// rejected or remain readable.
#[test]
fn the_bytes_of_format_version_3_are_unchanged() {
    let mut header = header("codel");
    header.version = "0.1.0".into();
    header.params = vec![("interval".into(), RawParam::Text("80000ns".into()))];
    let session = |call, answer| {
        Entry::Session(SessionEntry {
            core: CoreId(1),
            slot: SessionSlot(2),
            pending: 1,
            demand: 3,
            call,
            answer,
            window: Credits(5),
            method: Method::DEFAULT,
            custom: None,
        })
    };
    let arrival = Arrival::new(Time(300))
        .with_demand(3)
        .with_priority(Priority::new(7))
        .with_delay(Nanos(1_000))
        .with_random(0x0102_0304);
    let feedback = Feedback { window: Credits(5), ..Feedback::NONE };
    let named = Feedback { credit: CreditId(9), ..feedback };
    let departure =
        Departure { now: Time(290), outcome: Outcome::Rejected, sojourn: Nanos(64), credit: CreditId::NONE };
    let granted = Departure { outcome: Outcome::Completed, credit: CreditId(8), ..departure };
    let with_method = |entry| match entry {
        Entry::Session(entry) => Entry::Session(SessionEntry { method: Method(300), ..entry }),
        other => other,
    };
    let entries = [
        session(SessionCall::Request(arrival.with_method(Method(300))), Answer::Verdict(Verdict::Admit)),
        with_method(session(SessionCall::Reply(departure), Answer::Feedback(feedback))),
        session(SessionCall::Request(arrival), Answer::Verdict(Verdict::Reject(RejectReason::Delay))),
        session(SessionCall::Reply(departure), Answer::Feedback(feedback)),
        session(SessionCall::Reply(granted), Answer::Feedback(named)),
        Entry::NextToWake { core: CoreId(1), random: 255, chosen: Some(SessionSlot(2)) },
        Entry::Tick {
            signals: Signals { arrivals: 2, rejections: 1, lock_rejections: 1, ..Signals::idle(Time(290)) },
            gauges: Gauges { credit_pool: Some(-1), ..Gauges::default() },
        },
        Entry::Dequeue { core: CoreId(1), waited: Nanos(300), verdict: Verdict::Reject(RejectReason::Delay) },
    ];
    let bytes: String =
        Block::recording(&header, &entries).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join("");
    assert_eq!(bytes, PINNED);
}

#[test]
fn oversized_header_values_are_rejected() {
    let mut many = header("none");
    many.environment = Environment::new(u32::MAX, Nanos(1), Nanos(1));
    let error = read(&Block::recording(&many, &[])).1.unwrap();
    assert!(error.to_string().contains("an impossible number of cores"), "{error}");
    let mut long = header("none");
    long.params = vec![("x".repeat(300), RawParam::Integer(1))];
    let error = read(&Block::recording(&long, &[])).1.unwrap();
    assert!(error.to_string().contains("too long"), "{error}");
}
