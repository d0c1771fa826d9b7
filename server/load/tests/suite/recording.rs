//! Recordings of a real server under load: replayed, its controller makes the same decisions. No
//! test asserts a time.

use leeward_core::params::{Params, RawParam};
use leeward_core::registry::Environment;
use leeward_core::units::{Nanos, Rate};
use leeward_load::{LoadConfig, Plan, Schedule, run};
use leeward_recording::{EndReason, Item, Reader, ReplayCounts, Replayer};
use leeward_rpc::server::{HandlerError, Recording, RecordingSummary, Request, Server, ServerError};
use leeward_runtime::IdlePolicy;
use leeward_workload::{Arrivals, Segment, ServiceTime, Shares, Workload};
use std::io::{self, Write};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A file in memory.
#[derive(Clone, Default)]
struct File(Arc<Mutex<Vec<u8>>>);

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn params(name: &str) -> Params {
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find(name).unwrap();
    // A target within reach of a busy test machine, so that the pool grows and shrinks.
    let pairs: &[(&str, RawParam)] =
        if name == "breakwater" { &[("target", RawParam::Text("100us".into()))] } else { &[] };
    algorithm.params(pairs).unwrap()
}

const RTT: Nanos = Nanos::from_micros(50);
const SLO: Nanos = Nanos::from_millis(1);

/// Loads a recorded server; calls `during` before the server stops. Returns the number of received
/// requests.
fn run_recorded(name: &str, cores: usize, recording: &Recording, during: impl FnOnce(&Server)) -> u64 {
    run_recorded_with(name, params(name), cores, recording, during)
}

fn run_recorded_with(
    name: &str,
    params: Params,
    cores: usize,
    recording: &Recording,
    during: impl FnOnce(&Server),
) -> u64 {
    let algorithm = leeward_controllers::builtin().find(name).unwrap().clone();
    let busy = |_: &Request<'_>, reply: &mut Vec<u8>| -> Result<(), HandlerError> {
        let until = Instant::now() + Duration::from_micros(20);
        while Instant::now() < until {}
        reply.push(1);
        Ok(())
    };
    let server = Server::builder()
        .admission(&algorithm, params.clone())
        .objective(RTT, SLO)
        .cores(cores)
        .idle(IdlePolicy::Block)
        .record(recording)
        .start("127.0.0.1:0", busy)
        .unwrap();
    let workload = Workload {
        clients: 30,
        arrivals: Arrivals::Poisson,
        shares: Shares::Equal,
        demand: vec![Segment { from: Nanos::ZERO, rate: Rate(20_000.0) }],
        service: ServiceTime::Constant(Nanos::from_micros(20)),
    };
    let plan = Plan::Open(Schedule::draw(&workload, 7, Nanos::from_millis(300)).unwrap());
    let environment = Environment::new(1, RTT, SLO);
    let (client_params, config) = (params, LoadConfig::new(server.address(), SLO));
    let client = || (algorithm.build_client)(&client_params, &environment);
    run(&config, &plan, client, &AtomicBool::new(false), |_| {}).unwrap();
    during(&server);
    let received = server.counts().received;
    server.stop().unwrap();
    received
}

fn replay(bytes: &[u8]) -> ReplayCounts {
    let mut replayer = None;
    for item in Reader::items(bytes) {
        match item.unwrap() {
            Item::Header(header) => {
                replayer = Some(Replayer::from_header(&header, &leeward_controllers::builtin()).unwrap())
            }
            Item::Entry(entry) => replayer.as_mut().unwrap().step(&entry).unwrap(),
            Item::End(_) => {}
        }
    }
    let replayer = replayer.unwrap();
    assert_eq!(replayer.difference().map(ToString::to_string), None);
    replayer.counts()
}

#[test]
fn a_real_run_replays_to_the_same_decisions() {
    for name in ["breakwater", "gradient", "codel", "dagor"] {
        for cores in [1, 2] {
            let file = File::default();
            let recording = Recording::to(file.clone()).unwrap();
            let received = run_recorded(name, cores, &recording, |_| assert!(recording.is_recording()));
            let RecordingSummary { end, bytes } = recording.finish().unwrap().unwrap();
            let written = file.0.lock().unwrap();
            assert_eq!((end.reason, bytes), (EndReason::Complete, written.len() as u64));
            let counts = replay(&written);
            assert_eq!(counts.requests, received, "{name} on {cores} cores");
            assert_eq!((counts.entries, counts.opened, counts.closed), (end.entries, 30, 30));
            assert!(received > 0 && counts.ticks > 0 && counts.dequeues > 0, "{name}: {counts:?}");
            assert!(counts.dequeues + counts.rejected_recorded <= received, "{name}: {counts:?}");
            assert!(recording.finish().unwrap().is_none(), "it was ended before");
        }
    }
}

/// Every request is late at its dequeue, and so rejected, on each core.
#[test]
fn late_rejections_of_a_real_run_replay() {
    // Credit schemes only reject late requests under overload.
    let edge = leeward_controllers::builtin().find("edge").unwrap().clone();
    let late = edge.params(&[("lateness", RawParam::Text("1ns".into()))]).unwrap();
    let file = File::default();
    let recording = Recording::to(file.clone()).unwrap();
    let received = run_recorded_with("edge", late, 2, &recording, |_| {});
    recording.finish().unwrap().unwrap();
    let counts = replay(&file.0.lock().unwrap());
    assert!(counts.dequeues > 0 && counts.dequeues <= received, "{counts:?}");
    assert_eq!((counts.late_recorded, counts.late_replayed), (counts.dequeues, counts.dequeues));
}

#[test]
fn a_recording_may_end_before_its_server() {
    let file = File::default();
    let recording = Recording::to(file.clone()).unwrap();
    let mut recorded = None;
    run_recorded("breakwater", 2, &recording, |_| recorded = recording.finish().unwrap());
    let counts = replay(&file.0.lock().unwrap());
    assert_eq!(counts.entries, recorded.unwrap().end.entries);
}

/// A disk that blocks until it is released.
struct BlockedDisk(Arc<Mutex<()>>, File);

impl Write for BlockedDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        drop(self.0.lock());
        self.1.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct FullDisk;

impl Write for FullDisk {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_slow_disk_does_not_hold_up_the_server() {
    let (hold, file) = (Arc::new(Mutex::new(())), File::default());
    let recording = Recording::to(BlockedDisk(Arc::clone(&hold), file.clone())).unwrap();
    let held = hold.lock().unwrap();
    let received = run_recorded("breakwater", 2, &recording, |_| {});
    assert!(received > 0, "it serves");
    drop(held);
    recording.finish().unwrap().unwrap();
    assert!(replay(&file.0.lock().unwrap()).requests > 0);
}

#[test]
fn a_full_disk_is_reported_at_the_end() {
    let recording = Recording::to(FullDisk).unwrap();
    let received = run_recorded("breakwater", 1, &recording, |_| assert!(!recording.is_recording()));
    assert!(received > 0, "it serves");
    assert_eq!(recording.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
}

#[test]
fn a_recording_belongs_to_one_server() {
    let recording = Recording::to(File::default()).unwrap();
    let start = || {
        let reply = |_: &Request<'_>, _: &mut Vec<u8>| -> Result<(), HandlerError> { Ok(()) };
        Server::builder().idle(IdlePolicy::Block).record(&recording).start("127.0.0.1:0", reply)
    };
    let first = start().unwrap();
    assert!(matches!(start(), Err(ServerError::RecordingUsed)));
    first.stop().unwrap();
    assert_eq!(recording.finish().unwrap().unwrap().end.reason, EndReason::Complete);
    assert!(Recording::to(File::default()).unwrap().finish().unwrap().is_none(), "no server, no recording");
}
