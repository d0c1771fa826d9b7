//! Requests that are rejected, for a lock or for the length of their answers, leave no trace.

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

/// Clients without any budget for waiting request a key with creation of a missing item. One thread
/// deletes it and another keeps its lock busy.
///
/// A client that finds the empty item must learn that another client fills it, or that it must fill
/// it itself. Otherwise all clients would take the empty value for the true one.
#[test]
fn an_item_created_on_a_miss_is_announced_and_rejections_are_counted() {
    let store = Arc::new(Store::new(&StoreConfig { hash_power: 10, ..StoreConfig::default() }).unwrap());
    let executor = Executor::new(Arc::clone(&store), 0);
    let (rejected, requests, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
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
                        requests.fetch_add(1, Ordering::Relaxed);
                        let (outcome, _) =
                            budget::with(Budget::new(Nanos::ZERO), || executor.execute(&get, &NOW, &mut reply));
                        match outcome {
                            Ok(_) => {
                                let text = String::from_utf8_lossy(&reply);
                                let has_notice = text.ends_with(" W\r\n") || text.ends_with(" Z\r\n");
                                assert!(has_notice || text == "EN\r\n", "{text}");
                            }
                            Err(_) => {
                                assert_eq!(reply, b"");
                                rejected.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                })
            })
            .collect();
        let results: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        stop.store(true, Ordering::Relaxed);
        results.into_iter().for_each(Result::unwrap);
    });
    let rejected = rejected.into_inner();
    eprintln!("{rejected} refusals of {}", requests.into_inner());
    assert_eq!(store.stats().get(Counter::Refused), rejected);
}

/// A value without memory for its answer is not returned by any command, and stays unchanged.
#[test]
fn a_value_without_memory_for_its_answer_stays_unchanged() {
    let store = Arc::new(Store::new(&StoreConfig { hash_power: 10, ..StoreConfig::default() }).unwrap());
    let executor = Executor::new(store, 0);
    let execute = |text: &[u8], limit: usize| {
        let mut reply = Vec::new();
        let outcome = executor.execute(&request(text), &RequestContext { reply_max: limit, ..NOW }, &mut reply);
        (outcome.err(), String::from_utf8(reply).unwrap())
    };
    assert_eq!(execute(b"set a 0 0 5\r\nhello\r\n", 4), (None, "STORED\r\n".into()));
    for command in ["get a", "gets a", "gat 9 a", "gats 9 a", "get b a", "mg a v", "mg a v T9", "mg a v q"] {
        assert_eq!(
            execute(format!("{command}\r\n").as_bytes(), 4),
            (Some(ExecuteError::TooLong), String::new()),
            "{command}"
        );
    }
    assert_eq!(execute(b"mg a s t h\r\n", 4), (None, "HD s5 t-1 h0\r\n".into()));
    assert_eq!(execute(b"get a\r\n", 5), (None, "VALUE a 0 5\r\nhello\r\nEND\r\n".into()));
    // The limit applies to the answer, not to each of its values.
    assert_eq!(execute(b"get a a\r\n", 20), (Some(ExecuteError::TooLong), String::new()));
}
