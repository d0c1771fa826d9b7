//! The memory limit, eviction, and many threads at once: no chunk is lost, and none is used twice.

use leeward_kv::store::{
    Delta, DeltaOutcome, Mode, PAGE, RequestContext, Store, StoreConfig, Usage, Write, WriteOutcome,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const NOW: RequestContext = RequestContext::at(1_700_000_000);

/// Creates a value that contains its key and version, so that damage is visible.
fn value(key: u64, version: u64, length: usize) -> Vec<u8> {
    let mut bytes = [key.to_le_bytes(), version.to_le_bytes()].concat();
    bytes.resize(16 + length, (key ^ version) as u8);
    bytes
}

fn check(key: u64, bytes: &[u8]) -> u64 {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let version = number(8);
    assert_eq!(bytes, value(key, version, bytes.len() - 16), "a value that is not whole");
    version
}

fn read(store: &Store, key: u64) -> Option<u64> {
    let mut bytes = Vec::new();
    let found = store.read(&key.to_be_bytes(), &NOW, |found| {
        found.map(|found| {
            found.append_value(&mut bytes);
            found.mark_fetched();
        })
    });
    found.unwrap().map(|()| check(key, &bytes))
}

fn set(store: &Store, key: u64, version: u64, length: usize) -> WriteOutcome {
    store.write(&key.to_be_bytes(), &value(key, version, length), &Write::default(), &NOW).unwrap()
}

/// Checks the accounting: items, lists and used chunks agree.
fn balanced(store: &Store) -> Usage {
    let usage = store.usage();
    for (listed, class) in usage.lru_lengths.iter().zip(&usage.class_usage) {
        assert_eq!(*listed, class.used, "{usage:?}");
        assert_eq!(class.used + class.free, class.pages * (PAGE / class.chunk), "{usage:?}");
    }
    assert_eq!(usage.items, usage.lru_lengths.iter().sum::<usize>());
    assert_eq!(usage.pages, usage.class_usage.iter().map(|class| class.pages).sum::<usize>());
    assert!(usage.pages * PAGE <= store.config().memory);
    usage
}

fn small(pages: usize) -> Store {
    Store::new(&StoreConfig { memory: pages * PAGE, ..StoreConfig::default() }).unwrap()
}

#[test]
fn the_least_recently_used_items_are_evicted_first() {
    let store = small(2);
    for key in 0..40_000 {
        assert!(matches!(set(&store, key, 1, 50), WriteOutcome::Stored { .. }));
        // Key 0 is read repeatedly.
        assert_eq!(read(&store, 0), Some(1));
    }
    let usage = balanced(&store);
    assert_eq!(usage.pages, 2);
    let held = usage.items as u64;
    assert!((10_000..20_000).contains(&held));
    assert!((39_000..40_000).all(|key| read(&store, key) == Some(1)), "the last are there");
    assert!((1..10_000).all(|key| read(&store, key).is_none()), "the first are not");
}

#[test]
fn pages_move_to_needed_classes_within_the_memory_limit() {
    let store = small(4);
    // All memory goes to small items, then to large ones, then to small ones again.
    for round in 0..3 {
        for (key, length) in (0..60_000).map(|key| (key, 20)).chain((60_000..60_050).map(|key| (key, 300_000))) {
            assert!(matches!(set(&store, key, round, length), WriteOutcome::Stored { .. }), "{key}");
            if key >= 60_000 {
                assert_eq!(read(&store, key), Some(round));
            }
        }
        balanced(&store);
    }
}

#[test]
fn an_oversized_item_is_rejected_and_leaves_no_state() {
    let store = small(1);
    assert_eq!(set(&store, 1, 1, PAGE), WriteOutcome::TooLarge);
    assert!(matches!(set(&store, 1, 1, 10), WriteOutcome::Stored { .. }));
    assert!(matches!(set(&store, 2, 1, 900_000), WriteOutcome::Stored { .. }), "the only page changes hands");
    assert_eq!((read(&store, 1), read(&store, 2)), (None, Some(1)));
    let append = Write { mode: Mode::Append, ..Write::default() };
    let outcome = store.write(&2u64.to_be_bytes(), &vec![0; 400_000], &append, &NOW).unwrap();
    assert_eq!(outcome, WriteOutcome::NotStored);
    assert_eq!(read(&store, 2), Some(1), "as it was");
    balanced(&store);
}

/// Writers, readers, deleters and counters on few keys of many sizes, with scarce memory.
#[test]
fn concurrent_threads_lose_no_update() {
    let config = StoreConfig { memory: 3 * PAGE, hash_power: 10, threads: 4, ..StoreConfig::default() };
    let store = Store::new(&config).unwrap();
    let counted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (store, counted) = (&store, &counted);
            scope.spawn(move || {
                let mut state = thread.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let mut draw = |below: u64| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    (state >> 33) % below
                };
                for version in 0..30_000 {
                    let key = draw(300);
                    match draw(10) {
                        0..5 => {
                            let length = if draw(50) == 0 { 100_000 } else { draw(2_000) as usize };
                            let _ = set(store, key, version, length);
                        }
                        5..8 => assert!(read(store, key).is_none_or(|version| version < 30_000)),
                        8 => drop(store.delete(&key.to_be_bytes(), &NOW)),
                        _ => {
                            let delta = Delta { increment: true, amount: 1, cas: None, expires: None };
                            let add = Write { mode: Mode::Add, ..Write::default() };
                            let _ = store.write(b"counter", b"0", &add, &NOW).unwrap();
                            if let DeltaOutcome::Updated { .. } = store.add_delta(b"counter", &delta, &NOW).unwrap() {
                                counted.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                }
            });
        }
    });
    balanced(&store);
    (0..300).for_each(|key| assert!(read(&store, key).is_none_or(|version| version < 30_000)));
    assert!(counted.load(Ordering::Relaxed) > 0);
}

/// Requests without any budget for waiting, beside threads that keep the locks busy.
///
/// An acknowledged write is stored, and a rejected one has changed nothing. Each thread has
/// separate keys, so it knows their expected values.
#[test]
fn rejected_writes_change_nothing_and_acknowledged_ones_are_stored() {
    use leeward_core::budget::Budget;
    use leeward_core::units::Nanos;
    use leeward_runtime::budget;
    // Few locks and one class, and memory for all values.
    let config = StoreConfig { memory: 64 * PAGE, hash_power: 10, ..StoreConfig::default() };
    let store = Store::new(&config).unwrap();
    let (rejected, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                // Appends of large values hold locks for long.
                while !stop.load(Ordering::Relaxed) {
                    for key in 1_000_000..1_000_004u64 {
                        let _ = set(store, key, 1, 200_000);
                        let append = Write { mode: Mode::Append, ..Write::default() };
                        let _ = store.write(&key.to_be_bytes(), &[0; 100], &append, &NOW);
                        store.usage();
                    }
                }
            });
        }
        let writers: Vec<_> = (0..2u64)
            .map(|thread| {
                let (store, rejected) = (&store, &rejected);
                scope.spawn(move || {
                    let mut known = [None; 500];
                    for version in 0..20_000u64 {
                        let (index, length) = ((version * 7 % 500) as usize, (version % 900) as usize);
                        let key = thread * 500 + index as u64;
                        let write = Write::default();
                        let outcome = budget::with(Budget::new(Nanos::ZERO), || {
                            if version % 9 == 0 {
                                store.delete(&key.to_be_bytes(), &NOW).map(|_| None)
                            } else {
                                store.write(&key.to_be_bytes(), &value(key, version, length), &write, &NOW).map(Some)
                            }
                        });
                        match outcome.0 {
                            Ok(None) => known[index] = None,
                            Ok(Some(WriteOutcome::Stored { .. })) => known[index] = Some(version),
                            Ok(Some(other)) => panic!("{other:?}"),
                            Err(_) => drop(rejected.fetch_add(1, Ordering::Relaxed)),
                        }
                        assert_eq!(read(store, key), known[index], "{outcome:?}");
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    eprintln!("{} refusals", rejected.load(Ordering::Relaxed));
    balanced(&store);
}
