//! Recordings of threading policies: every decision replays, a changed one is detected, and no
//! bytes make a reader panic.

use super::plant::{MS, Plant, SECOND, environment};
use leeward_core::params::Params;
use leeward_core::registry::Environment;
use leeward_core::units::{Nanos, Time};
use leeward_recording::{Entry, Header, Item, MemorySink, Reader, Replayer, ThreadingHeader, record};
use leeward_threading::ThreadingSetup;
use leeward_threading::registry::POLICIES;

/// Runs a recorded policy; returns the recording, and the number of switches.
fn recorded(policy: &str) -> (Vec<u8>, usize) {
    let registry = leeward_controllers::builtin();
    let none = registry.find("none").unwrap();
    let environment_of_server = Environment::new(1, Nanos::from_micros(10), Nanos::from_millis(5));
    let spec = leeward_threading::registry::find(policy).unwrap();
    let params = spec.params(&[]).unwrap();
    let threading = ThreadingHeader::new(spec, &params, &environment());
    let header = Header::new("a test", none, &Params::default(), &environment_of_server).with_threading(threading);
    let memory = MemorySink::new(1 << 24);
    let halves = none.server(&Params::default(), &environment_of_server).unwrap();
    let (_halves, recorder) = record(halves, &header, Box::new(memory.clone()));
    let mut plant = Plant::new(recorder.threading(spec.build(&params, &environment()).unwrap()));
    plant.steady(300.0, 200);
    plant.steady(13_000.0, 1_000);
    plant.signals.rejected = 3;
    plant.signals.oldest_wait = Nanos::from_millis(3);
    plant.steady(50.0, 10);
    plant.signals.oldest_wait = Nanos::ZERO;
    (0..20).for_each(|_| plant.arrive(0));
    plant.wait(SECOND);
    plant.steady(100.0, 100);
    plant.jump(50 * MS);
    plant.poll();
    assert_eq!(plant.violations, [], "{policy}");
    (memory.finish(&recorder), plant.switches.len())
}

fn replay(items: impl Iterator<Item = Item>) -> Replayer {
    let registry = leeward_controllers::builtin();
    let mut replayer = None;
    for item in items {
        match item {
            Item::Header(header) => replayer = Some(Replayer::from_header(&header, &registry).unwrap()),
            Item::Entry(entry) => replayer.as_mut().unwrap().step(&entry).unwrap(),
            Item::End(_) => {}
        }
    }
    replayer.unwrap()
}

fn items(bytes: &[u8]) -> impl Iterator<Item = Item> {
    Reader::items(bytes).map(|item| item.unwrap())
}

#[test]
fn every_policy_replays() {
    for spec in POLICIES {
        let (bytes, switches) = recorded(spec.name);
        let replayer = replay(items(&bytes));
        assert_eq!(replayer.difference(), None, "{}", spec.name);
        assert!(replayer.counts().threading > 0, "{}", spec.name);
        let wanted = items(&bytes).filter(|item| matches!(item, Item::Entry(Entry::Threading { wanted: Some(_), .. })));
        assert_eq!(wanted.count(), switches, "{}", spec.name);
    }
}

#[test]
fn canary_a_changed_decision_is_seen() {
    let (bytes, _) = recorded("leeward");
    let change = |change: fn(&mut Option<ThreadingSetup>, &mut Time)| {
        let mut changed = 0;
        let damaged = items(&bytes).map(|mut item| {
            if let Item::Entry(Entry::Threading { wanted, timeout, .. }) = &mut item
                && wanted.is_some()
            {
                changed += 1;
                if changed == 2 {
                    change(wanted, timeout);
                }
            }
            item
        });
        replay(damaged.collect::<Vec<_>>().into_iter()).difference().unwrap().to_string()
    };
    let other = change(|wanted, _| *wanted = Some(ThreadingSetup::Cores(7)));
    assert!(other.contains("threading (") && other.contains("wanted setup was CORE7"), "{other}");
    let none = change(|wanted, _| *wanted = None);
    assert!(none.contains("wanted setup was the present one"), "{none}");
    let late = change(|_, timeout| *timeout = Time(1));
    assert!(late.contains("time-out was 1ns"), "{late}");
}

#[test]
fn damaged_threading_recordings_do_not_panic() {
    let (bytes, _) = recorded("utune");
    // Damages single bytes of the recording; a reader rejects the block by its checksum.
    for at in (0..bytes.len()).step_by(bytes.len() / 400) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        let mut replayer = None;
        for item in Reader::items(&damaged) {
            match item {
                Ok(Item::Header(header)) => {
                    replayer = Replayer::from_header(&header, &leeward_controllers::builtin()).ok()
                }
                Ok(Item::Entry(entry)) => {
                    if let Some(replayer) = &mut replayer {
                        let _ = replayer.step(&entry);
                    }
                }
                Ok(Item::End(_)) | Err(_) => {}
            }
        }
        let cut = Reader::items(&bytes[..at]).last();
        assert!(cut.is_none_or(|last| last.is_err()) || at == 0, "{at}");
    }
}
