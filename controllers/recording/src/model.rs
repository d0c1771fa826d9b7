//! Model checking of a recording: two cores decide at the same time, and in all interleavings the
//! recording replays to the same decisions. Run with `RUSTFLAGS="--cfg loom" cargo test -p
//! leeward-recording --lib --release recording`.

use loom::thread;

use super::{Header, Item, MemorySink, Reader, Replayer, record};
use leeward_core::registry::Environment;
use leeward_core::server::{CoreId, Registration, Session, SessionSlot, Signals};
use leeward_core::units::{Nanos, Time};

/// Both sessions ask for the one credit of the pool; the order in the recording determines the
/// session that gets it. The recording may end during the calls.
fn check_recording(ends_concurrently: bool) {
    loom::model(move || {
        let registry = leeward_controllers::builtin();
        let algorithm = registry.find("breakwater").unwrap();
        let params = algorithm.params(&[("min_pool", leeward_core::params::RawParam::Integer(1))]).unwrap();
        let environment = Environment::new(2, Nanos::from_micros(10), Nanos::from_micros(200));
        let header = Header::new("loom", algorithm, &params, &environment);
        let memory = MemorySink::new(1 << 16);
        let halves = algorithm.server(&params, &environment).unwrap();
        let (mut halves, recorder) = record(halves, &header, Box::new(memory.clone()));
        for (index, core) in halves.cores.iter_mut().enumerate() {
            let mut session = Session::new(SessionSlot(0), CoreId(index as u32));
            core.open(&mut session, &Registration { now: Time::ZERO, demand: 1 });
        }
        halves.control.tick(&Signals::idle(Time(1)));
        let mut second = halves.cores.pop().unwrap();
        let mut first = halves.cores.pop().unwrap();
        let other = thread::spawn(move || second.next_to_wake(1).is_some());
        let mut whole = None;
        if ends_concurrently {
            whole = Some(memory.finish(&recorder));
        }
        let here = first.next_to_wake(2).is_some();
        let there = other.join().unwrap();
        assert!(here ^ there, "one of the two gets the credit");
        let bytes = whole.unwrap_or_else(|| memory.finish(&recorder));
        let mut replayer = None;
        for item in Reader::items(&bytes) {
            match item.unwrap() {
                Item::Header(header) => replayer = Some(Replayer::from_header(&header, &registry).unwrap()),
                Item::Entry(entry) => replayer.as_mut().unwrap().step(&entry).unwrap(),
                Item::End(_) => {}
            }
        }
        let replayer = replayer.unwrap();
        assert_eq!(replayer.difference(), None);
        let entries = replayer.counts().entries;
        assert!(if ends_concurrently { (3..=4).contains(&entries) } else { entries == 5 }, "{entries} entries");
    });
}

#[test]
fn concurrent_decisions_are_recorded_in_their_order() {
    check_recording(false);
}

#[test]
fn a_recording_ended_concurrently_is_a_complete_prefix() {
    check_recording(true);
}
