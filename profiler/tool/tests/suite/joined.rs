//! Recordings of several processes, joined: synthetic traces of a front process that calls two
//! others, whose clocks differ.

use std::path::{Path, PathBuf};

use crate::support::*;
use leeward_profile::analysis::timeline::BarKind;
use leeward_profile::format::EventKind;
use leeward_profile::format::context::ContextField;
use leeward_profile::format::write::{TraceConfig, TraceWriter};
use leeward_profile::join::{ClockSource, JoinError, Joined, PartKind, RequestNode};
use leeward_profile::symbols::{Options, Symbols};
use leeward_profile::trace::{Trace, ignore_progress};
use proptest::prelude::*;

const FRONT: u8 = 1;
const STORE: u8 = 2;
const CACHE: u8 = 3;

/// Nanoseconds that the clocks of the other processes are ahead.
const AHEAD: u64 = 123_456_789_000;

struct Recordings {
    folder: tempfile::TempDir,
    traces: Vec<Trace>,
}

impl Recordings {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn symbols(&self) -> Vec<Symbols> {
        self.traces.iter().map(|trace| Symbols::new(trace, Options::default())).collect()
    }

    fn joined(&self) -> Result<Joined<'_>, JoinError> {
        Joined::new(&self.traces, &mut ignore_progress)
    }
}

fn writer(folder: &Path, process: u8, name: &str, boot: &str) -> TraceWriter {
    let mut config = setup();
    config.header.id = [process; 16];
    config.header.pid = u32::from(process);
    config.header.command = format!("/usr/bin/{name} --port 80");
    config.header.boot = boot.into();
    TraceWriter::create(&folder.join(name), &TraceConfig { ..config }).unwrap()
}

fn context(writer: &mut TraceWriter, time: u64, id: u64, trace: u64, span: u64, parent: u64) {
    for (field, value) in [
        (ContextField::TraceHigh, 0xABCD),
        (ContextField::TraceLow, trace),
        (ContextField::Span, span),
        (ContextField::Parent, parent),
    ] {
        writer.event(WORKER, time, EventKind::RequestContext { id, field, value }).unwrap();
    }
}

/// Times of one request of a backend, by the front's clock.
struct Backend {
    sent: u64,
    start: u64,
    end: u64,
    answered: u64,
}

/// Writes requests of the front, which calls `store` and then `cache`. Each 50th waits 20 ms for a
/// lock in the store, held by a snapshot. `boot` are the boot ids of front and backends.
fn recordings(count: u64, boot: [&str; 2], ahead: u64) -> Recordings {
    let folder = tempfile::tempdir().unwrap();
    let mut front = writer(folder.path(), FRONT, "front", boot[0]);
    let mut store = writer(folder.path(), STORE, "store", boot[1]);
    let mut cache = writer(folder.path(), CACHE, "cache", boot[1]);
    front.labels(&[(1, "store:7000"), (2, "cache:7001")]).unwrap();
    for id in 1..=count {
        let slow = if id % 50 == 0 { 20_000_000 } else { 0 };
        let at = 1_000_000_000 + id * 50_000_000;
        let (trace, to_store, to_cache) = (id, id * 10 + 1, id * 10 + 2);
        let jitter = id * 7919 % 30_000;
        let of_store = Backend {
            sent: at + 50_000,
            start: at + 100_000 + jitter,
            end: at + 400_000 + jitter + slow,
            answered: at + 480_000 + jitter + slow,
        };
        let begin = of_store.answered + 20_000;
        let of_cache = Backend { sent: begin, start: begin + 40_000, end: begin + 90_000, answered: begin + 140_000 };
        let end = of_cache.answered + 30_000;
        front.event(WORKER, at, EventKind::RequestStart { id, queue: None }).unwrap();
        context(&mut front, at, id, trace, id * 10, 0);
        for (span, peer, one) in [(to_store, 1, &of_store), (to_cache, 2, &of_cache)] {
            front.event(WORKER, one.sent, EventKind::RemoteCall { id, span, peer }).unwrap();
            front.event(WORKER, one.answered, EventKind::RemoteAnswer { id, span }).unwrap();
        }
        front.event(WORKER, end - 10, call(HANDLE, end - at - 20)).unwrap();
        front.event(WORKER, end, EventKind::RequestEnd { id }).unwrap();

        for (writer, span, one) in [(&mut store, to_store, &of_store), (&mut cache, to_cache, &of_cache)] {
            let (start, end) = (one.start + ahead, one.end + ahead);
            writer.event(WORKER, start, EventKind::RequestStart { id: id + 5, queue: None }).unwrap();
            context(writer, start, id + 5, trace, span + 1000, span);
            let wait = if span == to_store { slow } else { 0 };
            if wait > 0 {
                writer.event(BACKGROUND, start + 10_000 + wait, lock_held(SNAPSHOT + 16, 0, wait + 5_000)).unwrap();
                writer.event(WORKER, start + 30_000 + wait, lock_held(PARSE + 16, wait, 10_000)).unwrap();
            }
            writer.event(WORKER, end - 10, call(PARSE, end - start - 20)).unwrap();
            writer.event(WORKER, end, EventKind::RequestEnd { id: id + 5 }).unwrap();
        }
    }
    let last = 1_000_000_000 + (count + 1) * 50_000_000;
    front.finish(last).unwrap();
    store.finish(last + ahead).unwrap();
    cache.finish(last + ahead).unwrap();
    let names = ["store", "front", "cache"];
    let traces = names.map(|name| Trace::open(&folder.path().join(name), &mut ignore_progress).unwrap());
    Recordings { traces: traces.into(), folder }
}

#[test]
fn the_slow_backend_and_its_lock_are_found_from_the_front() {
    let all = recordings(500, ["a", "b"], AHEAD);
    let joined = all.joined().unwrap();
    assert_eq!(joined.warnings(), [""; 0]);
    let tail = joined.tail(&mut all.symbols(), 0.02, &mut ignore_progress).unwrap();
    assert_eq!((tail.front.as_str(), tail.requests, tail.slow), ("front", 500, 10));
    let steps: Vec<&str> = tail.steps.iter().map(|step| step.process.as_str()).collect();
    assert_eq!(steps, ["front", "store"]);
    let first = &tail.steps[0].parts[0];
    assert!((first.kind, first.process.as_str()) == (PartKind::Called, "store"), "{first:?}");
    assert!((99.0..101.0).contains(&first.explains), "{first:?}");
    assert_eq!(tail.steps[1].parts[0].kind, PartKind::Own);
    let finding = &tail.tail.unwrap().findings[0];
    assert!(finding.cause.contains("mutex") && finding.holders[0].thread.contains("background"), "{finding:?}");
    // Each nanosecond of a request is in one part.
    for (part_of, mean) in [(0, tail.slow_mean), (1, tail.rest_mean)] {
        let sum: u64 = tail.steps[0].parts.iter().map(|part| [part.slow, part.rest][part_of]).sum();
        assert!(sum.abs_diff(mean) <= 5, "{sum} of {mean}");
    }
}

#[test]
fn the_slowest_trace_is_a_tree_and_a_timeline_by_one_clock() {
    let all = recordings(200, ["a", "b"], AHEAD);
    let joined = all.joined().unwrap();
    let tree = joined.tree(None).unwrap();
    let children: Vec<&str> = tree.children.iter().map(|child| child.process.as_str()).collect();
    assert_eq!((tree.process.as_str(), children), ("front", vec!["store", "cache"]));
    let store = &tree.children[0];
    assert!(store.is_aligned && (60_000..=180_000).contains(&store.start), "{store:?}");
    assert!(store.latency > 20_000_000 && store.call.unwrap() > store.latency, "{store:?}");
    let timeline = joined.timeline(&tree, &mut all.symbols(), &mut ignore_progress).unwrap();
    let rows: Vec<&str> = timeline.timeline.rows.iter().map(|row| row.thread.as_str()).collect();
    let expected = [
        "front: requests",
        "front: worker (100)",
        "store: requests",
        "store: worker (100)",
        "store: background (101)",
        "cache: requests",
        "cache: worker (100)",
    ];
    assert_eq!(rows, expected);
    let wait = timeline.timeline.rows[3].bars.iter().find(|bar| bar.look == BarKind::Wait).unwrap();
    assert!(wait.start as i64 >= store.start && wait.end - wait.start == 20_000_000, "{wait:?}");
    assert_eq!(timeline.timeline.causes[0].0, "in store itself");
    // A single trace, by its id.
    let other = joined.tree(Some((0xABCD << 64) + 7)).unwrap();
    assert_eq!((other.id, other.trace.as_str()), (7, "000000000000abcd0000000000000007"));
    assert_eq!(joined.tree(Some(9)), None);
}

#[test]
fn a_shared_clock_is_used_only_where_the_calls_allow_it() {
    let source = |all: &Recordings| {
        let joined = all.joined().unwrap();
        joined.processes().map(|(_, _, clock)| clock.source).collect::<Vec<_>>()
    };
    let same = recordings(60, ["a", "a"], 0);
    assert_eq!(source(&same), [ClockSource::SameHost, ClockSource::Front, ClockSource::SameHost]);
    let wrong = recordings(60, ["a", "a"], AHEAD);
    assert_eq!(source(&wrong), [ClockSource::Calls, ClockSource::Front, ClockSource::Calls]);
}

#[test]
fn recordings_that_cannot_be_joined_are_refused_with_a_reason() {
    let all = recordings(60, ["a", "b"], AHEAD);
    let open = |names: &[&str]| -> Vec<Trace> {
        names.iter().map(|name| Trace::open(&all.path(name), &mut ignore_progress).unwrap()).collect()
    };
    let refused = |traces: &[Trace]| Joined::new(traces, &mut ignore_progress).unwrap_err().to_string();
    assert!(refused(&open(&["front", "store", "front"])).contains("are the same recording"));
    assert_eq!(refused(&open(&["front"])), "`join` takes 2 to 64 recordings; this is 1");
    assert!(refused(&open(&["store", "cache"])).contains("no request reports its calls"));
    let mut plain = writer(all.folder.path(), 9, "plain", "");
    usual_request(&mut plain, 1, 1000);
    plain.finish(100_000).unwrap();
    let refusal = refused(&open(&["front", "plain"]));
    assert!(refusal.starts_with("no request of plain carries a trace id"), "{refusal}");
    // With two others it is only a warning.
    let traces = open(&["front", "plain", "store"]);
    let joined = Joined::new(&traces, &mut ignore_progress).unwrap();
    assert_eq!(
        joined.warnings(),
        [
            "no request of plain carries a trace id",
            "the clock of plain can't be compared with that of front: no calls between them, or contradicting times. Its requests are shown in the middle of their calls"
        ]
    );
}

#[test]
fn a_backend_without_a_recording_is_named_by_its_label() {
    let all = recordings(500, ["a", "b"], AHEAD);
    let traces = ["front", "cache"].map(|name| Trace::open(&all.path(name), &mut ignore_progress).unwrap());
    let joined = Joined::new(&traces, &mut ignore_progress).unwrap();
    let mut symbols: Vec<Symbols> = traces.iter().map(|trace| Symbols::new(trace, Options::default())).collect();
    let tail = joined.tail(&mut symbols, 0.02, &mut ignore_progress).unwrap();
    let first = &tail.steps[0].parts[0];
    assert_eq!((first.kind, first.process.as_str(), tail.steps.len()), (PartKind::Unrecorded, "store:7000", 1));
    assert!(first.text.contains("in calls to store:7000, not recorded"), "{first:?}");
    let tree = joined.tree(None).unwrap();
    assert_eq!(tree.unrecorded.len(), 1);
}

#[test]
fn requests_without_their_call_are_no_roots() {
    let folder = tempfile::tempdir().unwrap();
    let mut front = writer(folder.path(), FRONT, "front", "a");
    let mut store = writer(folder.path(), STORE, "store", "a");
    for id in 1..=2_u64 {
        let at = id * 1_000_000_000;
        front.event(WORKER, at, EventKind::RequestStart { id, queue: None }).unwrap();
        context(&mut front, at, id, id, 1, 0);
        for call in 0..4200 {
            let (span, sent, other) = (10 + call, at + call * 10_000, 10 + call);
            front.event(WORKER, sent, EventKind::RemoteCall { id, span, peer: 0 }).unwrap();
            front.event(WORKER, sent + 9_000, EventKind::RemoteAnswer { id, span }).unwrap();
            // The front calls itself, and the store.
            let of = if call % 2 == 0 { &mut front } else { &mut store };
            of.event(WORKER, sent + 1_000, EventKind::RequestStart { id: other, queue: None }).unwrap();
            context(of, sent + 1_000, other, id, 100_000 + call, span);
            of.event(WORKER, sent + 8_000, EventKind::RequestEnd { id: other }).unwrap();
        }
        front.event(WORKER, at + 50_000_000, EventKind::RequestEnd { id }).unwrap();
    }
    front.finish(3_000_000_000).unwrap();
    store.finish(3_000_000_000).unwrap();
    let traces = ["front", "store"].map(|name| Trace::open(&folder.path().join(name), &mut ignore_progress).unwrap());
    let joined = Joined::new(&traces, &mut ignore_progress).unwrap();
    let mut symbols: Vec<Symbols> = traces.iter().map(|trace| Symbols::new(trace, Options::default())).collect();
    let tail = joined.tail(&mut symbols, 0.5, &mut ignore_progress).unwrap();
    assert_eq!((tail.front.as_str(), tail.requests), ("front", 2));
    let warning = "2 requests of front have more than 4096 calls";
    assert!(joined.warnings().iter().any(|text| text.starts_with(warning)), "{:?}", joined.warnings());
}

#[test]
fn of_simultaneous_calls_only_the_awaited_time_counts() {
    let folder = tempfile::tempdir().unwrap();
    let mut front = writer(folder.path(), FRONT, "front", "a");
    let mut store = writer(folder.path(), STORE, "store", "a");
    for id in 1..=10_u64 {
        let at = id * 100_000_000;
        let answered = at + if id == 10 { 10_000_000 } else { 1_000_000 };
        front.event(WORKER, at, EventKind::RequestStart { id, queue: None }).unwrap();
        context(&mut front, at, id, id, 1, 0);
        for call in 0..8 {
            let (span, sent) = (10 + call, at + call * 1_000);
            front.event(WORKER, sent, EventKind::RemoteCall { id, span, peer: 0 }).unwrap();
            store.event(WORKER, sent + 100, EventKind::RequestStart { id: call, queue: None }).unwrap();
            context(&mut store, sent + 100, call, id, 20 + call, span);
        }
        for call in 0..8 {
            store.event(WORKER, answered - 100, EventKind::RequestEnd { id: call }).unwrap();
            front.event(WORKER, answered, EventKind::RemoteAnswer { id, span: 10 + call }).unwrap();
        }
        front.event(WORKER, answered + 100, EventKind::RequestEnd { id }).unwrap();
    }
    front.finish(2_000_000_000).unwrap();
    store.finish(2_000_000_000).unwrap();
    let traces = ["front", "store"].map(|name| Trace::open(&folder.path().join(name), &mut ignore_progress).unwrap());
    let joined = Joined::new(&traces, &mut ignore_progress).unwrap();
    let mut symbols: Vec<Symbols> = traces.iter().map(|trace| Symbols::new(trace, Options::default())).collect();
    let tail = joined.tail(&mut symbols, 0.1, &mut ignore_progress).unwrap();
    assert_eq!((tail.slow, tail.steps.len()), (1, 2));
    let of_store = &tail.steps[1].parts[0];
    assert!((9_900_000..=10_000_000).contains(&of_store.slow) && of_store.explains < 101.0, "{of_store:?}");
}

/// Front and two backends of one program and host. The front gives up each `given_up`-th call after
/// 1 ms; its request begins `late` after it was sent, and lasts 8 ms.
fn given_up_calls(given_up: u64, late: u64, ahead: u64, labels: [&str; 2]) -> (tempfile::TempDir, Vec<Trace>) {
    let folder = tempfile::tempdir().unwrap();
    let make = |process| {
        let mut config = setup();
        config.header.id = [process; 16];
        (config.header.pid, config.header.command) = (u32::from(process), "/usr/bin/node".into());
        config.header.boot = "a".into();
        TraceWriter::create(&folder.path().join(process.to_string()), &config).unwrap()
    };
    let mut writers = [FRONT, STORE, CACHE].map(make);
    writers[0].labels(&[(1, labels[0]), (2, labels[1])]).unwrap();
    for id in 1..=400_u64 {
        let at = id * 20_000_000;
        writers[0].event(WORKER, at, EventKind::RequestStart { id, queue: None }).unwrap();
        context(&mut writers[0], at, id, id, 1, 0);
        for backend in [1, 2_u64] {
            let is_given_up = backend == 1 && id % given_up == 0;
            let (span, sent) = (10 + backend, at + backend * 4_000_000);
            let (start, end) =
                if is_given_up { (sent + late, sent + late + 8_000_000) } else { (sent + 50_000, sent + 900_000) };
            writers[0].event(WORKER, sent, EventKind::RemoteCall { id, span, peer: backend as u32 }).unwrap();
            writers[0].event(WORKER, sent + 1_000_000, EventKind::RemoteAnswer { id, span }).unwrap();
            let writer = &mut writers[backend as usize];
            let request = id * 10;
            writer.event(WORKER, start + ahead, EventKind::RequestStart { id: request, queue: None }).unwrap();
            context(writer, start + ahead, request, id, 20 + backend, span);
            writer.event(WORKER, end + ahead, EventKind::RequestEnd { id: request }).unwrap();
        }
        writers[0].event(WORKER, at + 15_000_000, EventKind::RequestEnd { id }).unwrap();
    }
    writers.into_iter().for_each(|writer| writer.finish(9_000_000_000 + ahead).unwrap());
    let open = |process: u8| Trace::open(&folder.path().join(process.to_string()), &mut ignore_progress).unwrap();
    let traces = [FRONT, STORE, CACHE].map(open).into();
    (folder, traces)
}

#[test]
fn calls_that_are_given_up_leave_the_clock_of_the_host() {
    let joined = |given_up, late, ahead| {
        let (_folder, traces) = given_up_calls(given_up, late, ahead, ["store", "cache"]);
        let joined = Joined::new(&traces, &mut ignore_progress).unwrap();
        let (_, _, clock) = joined.processes().nth(1).unwrap();
        (clock.source, joined.warnings().to_vec())
    };
    // The backend was already at work, or took the request when its caller was gone.
    for late in [100_000, 3_000_000] {
        for given_up in [2, 10] {
            assert_eq!(joined(given_up, late, 0), (ClockSource::SameHost, vec![]), "{given_up} {late}");
        }
    }
    // A time namespace.
    assert_eq!(joined(30, 100_000, AHEAD), (ClockSource::Calls, vec![]));
}

#[test]
fn processes_of_one_program_have_the_names_that_callers_use() {
    let names = |labels| {
        let (_folder, traces) = given_up_calls(500, 0, 0, labels);
        let joined = Joined::new(&traces, &mut ignore_progress).unwrap();
        joined.processes().map(|(name, ..)| name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(["store", "db"]), ["node (1)", "store", "db"]);
    // One name for several processes names none.
    assert_eq!(names(["db", "db"]), ["node (1)", "node (2)", "node (3)"]);
}

/// Number of requests in a tree.
fn size(tree: &RequestNode) -> usize {
    let mut count = 0;
    tree.each(&mut |_, _| count += 1);
    count
}

#[test]
fn circles_and_duplicates_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut writers = ["a", "b"].map(|name| writer(folder.path(), name.as_bytes()[0], name, ""));
    // Each calls the other, with the same spans again and again.
    for (number, writer) in writers.iter_mut().enumerate() {
        for id in 1..=50_u64 {
            let at = id * 1_000_000;
            writer.event(WORKER, at, EventKind::RequestStart { id, queue: None }).unwrap();
            let (span, parent) = if number == 0 { (1, 2) } else { (2, 1) };
            context(writer, at, id, id % 10, span, parent);
            writer.event(WORKER, at + 1, EventKind::RemoteCall { id, span, peer: 0 }).unwrap();
            writer.event(WORKER, at + 500, EventKind::RemoteAnswer { id, span }).unwrap();
            writer.event(WORKER, at + 900, EventKind::RequestEnd { id }).unwrap();
        }
    }
    writers.into_iter().for_each(|writer| writer.finish(100_000_000).unwrap());
    let traces = ["a", "b"].map(|name| Trace::open(&folder.path().join(name), &mut ignore_progress).unwrap());
    let joined = Joined::new(&traces, &mut ignore_progress).unwrap();
    assert!(joined.warnings().iter().any(|text| text.contains("name the same call")), "{:?}", joined.warnings());
    let mut symbols: Vec<Symbols> = traces.iter().map(|trace| Symbols::new(trace, Options::default())).collect();
    let tail = joined.tail(&mut symbols, 0.1, &mut ignore_progress).unwrap();
    assert!(tail.steps.len() <= 16);
    let tree = joined.tree(None).unwrap();
    assert!(size(&tree) <= 1000);
    joined.timeline(&tree, &mut symbols, &mut ignore_progress).unwrap();
}

/// An event that links requests, with few different ids and spans so that they collide.
fn event() -> impl Strategy<Value = EventKind> {
    let id = 0_u64..4;
    let number = prop_oneof![0_u64..5, any::<u64>()];
    let field = prop_oneof![
        Just(ContextField::TraceHigh),
        Just(ContextField::TraceLow),
        Just(ContextField::Span),
        Just(ContextField::Parent)
    ];
    prop_oneof![
        id.clone().prop_map(|id| EventKind::RequestStart { id, queue: None }),
        id.clone().prop_map(|id| EventKind::RequestEnd { id }),
        (id.clone(), field, number.clone()).prop_map(|(id, field, value)| EventKind::RequestContext {
            id,
            field,
            value
        }),
        (id.clone(), number.clone(), 0_u32..3).prop_map(|(id, span, peer)| EventKind::RemoteCall { id, span, peer }),
        (id, number).prop_map(|(id, span)| EventKind::RemoteAnswer { id, span }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn any_events_are_joined_or_refused(
        all in prop::collection::vec(prop::collection::vec((event(), prop_oneof![20 => 0_u64..1_000_000_000, 1 => any::<u64>()]), 0..60), 2..4),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut traces = Vec::new();
        for (number, events) in all.into_iter().enumerate() {
            let name = format!("p{number}");
            let mut writer = writer(folder.path(), number as u8, &name, "");
            for (kind, time) in events {
                writer.event(WORKER, time, kind).unwrap();
            }
            writer.finish(2_000_000_000).unwrap();
            traces.push(Trace::open(&folder.path().join(name), &mut ignore_progress).unwrap());
        }
        if let Ok(joined) = Joined::new(&traces, &mut ignore_progress) {
            let mut symbols: Vec<Symbols> = traces.iter().map(|trace| Symbols::new(trace, Options::default())).collect();
            joined.tail(&mut symbols, 0.1, &mut ignore_progress).unwrap();
            if let Some(tree) = joined.tree(None) {
                joined.timeline(&tree, &mut symbols, &mut ignore_progress).unwrap();
            }
        }
    }
}
