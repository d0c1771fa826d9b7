//! Searches that can't wait are rejected at a lock, others are answered normally, and nothing is
//! lost.

use leeward_core::budget::Budget;
use leeward_core::params::Params;
use leeward_core::units::Nanos;
use leeward_rpc::client::{CallError, Client};
use leeward_rpc::server::Server;
use leeward_rpc::wire::RejectCode;
use leeward_runtime::IdlePolicy;
use leeward_search::wire::{self, ADD, SEARCH};
use leeward_search::{Document, Index, Layout, MatchMode, Query, Search, corpus};
use std::sync::Arc;

#[test]
fn searches_are_answered_completely_or_rejected_by_a_lock() {
    let index = Arc::new(Index::build(corpus::small(), Layout { segments: 1, seal_at: 5, merge_factor: 2 }));
    let none = leeward_controllers::builtin().find("none").unwrap().clone();
    let server = Server::builder()
        .admission(&none, Params::default())
        .cores(2)
        .idle(IdlePolicy::Block)
        // A very short budget: on a busy machine most waits exceed it, and some do not.
        .budget(Budget::new(Nanos::from_micros(20)))
        .start_async("127.0.0.1:0", Search::new(Arc::clone(&index)))
        .unwrap();
    let query = Query::parse("the delay of a queue", MatchMode::Any, 10).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let (address, query) = (server.address().to_string(), query.clone());
            std::thread::spawn(move || {
                let none = leeward_controllers::builtin().find("none").unwrap().clone();
                let client = Client::builder().replica(address).admission(&none, Params::default()).build().unwrap();
                let text = query.words().collect::<Vec<_>>().join(" ");
                let (mut found, mut rejected, mut added) = (0u64, 0u64, 0u64);
                for round in 0..40 {
                    let mut bytes = Vec::new();
                    wire::write_query(&text, MatchMode::Any, 10, &mut bytes);
                    // Sent together, so that they compete for the locks.
                    let calls: Vec<_> = (0..8).map(|_| client.call(SEARCH, bytes.clone())).collect();
                    let mut document = Vec::new();
                    let title = format!("from {number}, the {round}th");
                    wire::write_document(&Document { title, text: "delay".into() }, &mut document);
                    let add = client.call(ADD, document);
                    for call in calls {
                        match pollster::block_on(call) {
                            Ok(answer) => {
                                assert_eq!(wire::read_result(&answer.payload).unwrap().hits.len(), 10);
                                found += 1;
                            }
                            Err(CallError::Rejected { reason: RejectCode::Lock, .. }) => rejected += 1,
                            Err(CallError::QueueFull { .. }) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                    match pollster::block_on(add) {
                        Ok(_) => added += 1,
                        Err(CallError::Rejected { reason: RejectCode::Lock, .. } | CallError::QueueFull { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
                client.shut_down();
                (found, rejected, added)
            })
        })
        .collect();
    let (mut found, mut rejected, mut added) = (0, 0, 0);
    for thread in threads {
        let (finds, rejections, adds) = thread.join().unwrap();
        (found, rejected, added) = (found + finds, rejected + rejections, added + adds);
    }
    assert!(found > 0 && added > 0, "{found} found, {rejected} dropped, {added} added");
    let counts = server.stop().unwrap();
    assert!(counts.rejected >= rejected);
    // Every acknowledged document is in the index, and no rejected one.
    assert_eq!(index.size().documents, corpus::small().len() as u64 + added);
    // All locks are free.
    assert!(pollster::block_on(index.search(&query)).is_ok());
}
