//! Remains of requests that are refused, for a lock or for the length of their answers: none.

use leeward_core::budget::Budget;
use leeward_core::units::Nanos;
use leeward_engine::Input;
use leeward_kv::protocol::{Decoder, DecoderOutput, ExecuteError, Executor, Request};
use leeward_kv::store::stats::Counter;
use leeward_kv::store::{RequestContext, Store, StoreConfig};
use leeward_runtime::budget;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const NOW: RequestContext = RequestContext::at(1_700_000_000);

fn request(text: &[u8]) -> Request {
    let mut decoder = Decoder::new(1 << 20);
    decoder.spare()[..text.len()].copy_from_slice(text);
    decoder.filled(text.len());
    let mut request = Request::default();
    assert!(matches!(decoder.next(&mut request), DecoderOutput::Request));
    request
}

/// Clients that may wait for nothing ask for a key and have it made if it is missing, beside one that deletes it and others
/// that keep its lock busy. Whoever finds the empty item must learn that somebody fills it, or is to do so itself: were one
/// left of which nobody was told, all would take the empty value for the truth.
#[test]
fn an_item_made_for_a_miss_is_told_of_and_refusals_are_counted() {
    let store = Arc::new(Store::new(&StoreConfig { hash_power: 10, ..StoreConfig::default() }).unwrap());
    let executor = Executor::new(Arc::clone(&store), 0);
    let (refused, asked, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let spin = |times| (0..times).for_each(|_| std::hint::spin_loop());
            while !stop.load(Ordering::Relaxed) {
                store.read(b"key", &NOW, |_| spin(20)).unwrap();
                spin(20);
            }
        });
        scope.spawn(|| {
            let delete = request(b"md key\r\n");
            while !stop.load(Ordering::Relaxed) {
                let _ = executor.execute(&delete, &NOW, &mut Vec::new()).unwrap();
            }
        });
        let clients: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let get = request(b"mg key N30 s\r\n");
                    let mut reply = Vec::new();
                    for _ in 0..20_000 {
                        reply.clear();
                        asked.fetch_add(1, Ordering::Relaxed);
                        let (outcome, _) =
                            budget::with(Budget::new(Nanos::ZERO), || executor.execute(&get, &NOW, &mut reply));
                        match outcome {
                            Ok(_) => {
                                let text = String::from_utf8_lossy(&reply);
                                let is_told = text.ends_with(" W\r\n") || text.ends_with(" Z\r\n");
                                assert!(is_told || text == "EN\r\n", "{text}");
                            }
                            Err(_) => {
                                assert_eq!(reply, b"");
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                })
            })
            .collect();
        let ends: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        stop.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(Result::unwrap);
    });
    let refused = refused.into_inner();
    eprintln!("{refused} refusals of {}", asked.into_inner());
    assert_eq!(store.stats().get(Counter::Refused), refused);
}

/// A value that there is no memory for is not told, in no command, and is as it was.
#[test]
fn a_value_that_is_too_long_is_left_alone() {
    let store = Arc::new(Store::new(&StoreConfig { hash_power: 10, ..StoreConfig::default() }).unwrap());
    let executor = Executor::new(store, 0);
    let execute = |text: &[u8], longest: usize| {
        let mut reply = Vec::new();
        let outcome = executor.execute(&request(text), &RequestContext { reply_max: longest, ..NOW }, &mut reply);
        (outcome.err(), String::from_utf8(reply).unwrap())
    };
    assert_eq!(execute(b"set a 0 0 5\r\nhello\r\n", 4), (None, "STORED\r\n".into()));
    for asks in ["get a", "gets a", "gat 9 a", "gats 9 a", "get b a", "mg a v", "mg a v T9", "mg a v q"] {
        assert_eq!(
            execute(format!("{asks}\r\n").as_bytes(), 4),
            (Some(ExecuteError::TooLong), String::new()),
            "{asks}"
        );
    }
    assert_eq!(execute(b"mg a s t h\r\n", 4), (None, "HD s5 t-1 h0\r\n".into()));
    assert_eq!(execute(b"get a\r\n", 5), (None, "VALUE a 0 5\r\nhello\r\nEND\r\n".into()));
    // It is the answer that is bounded, not each of its values.
    assert_eq!(execute(b"get a a\r\n", 20), (Some(ExecuteError::TooLong), String::new()));
}
