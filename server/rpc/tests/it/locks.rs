//! Locks in handlers: a rejected request ends with the lock's name, and is counted, credited and
//! recorded, without an effect. No test asserts a time; time limits are long, and only turn a hang
//! into a failure.

use super::TRANSPORT;
use crate::serve::{Serve, over, replica_of};
use leeward_core::budget::Budget;
use leeward_core::params::Params;
use leeward_core::units::Nanos;
use leeward_recording::{Item, Reader, Replayer};
use leeward_rpc::client::{CallError, CallOptions, Client};
use leeward_rpc::server::{Builder, HandlerError, OwnedRequest, Recording, Request, Server};
use leeward_rpc::statistics::{self, Statistics};
use leeward_rpc::wire::{Method, RejectCode};
use leeward_runtime::locks::{LockKind, Mutex};
use leeward_runtime::{IdlePolicy, budget};
use leeward_testkit::wait::until;
use std::io::{self, Write};
use std::sync::Arc;

const ADD: Method = Method(1);
/// Returns the rest of the budget.
const LEFT: Method = Method(2);

type Balance = Arc<Mutex<u64>>;

/// An objective so long that a busy machine is no overload.
fn builder() -> Builder {
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    over(TRANSPORT, Server::builder())
        .admission(&breakwater, Params::default())
        .objective(Nanos::from_micros(10), Nanos::from_secs(30))
        .idle(IdlePolicy::Block)
}

fn left() -> Vec<u8> {
    budget::current().remaining().map_or(u64::MAX, |left| left.0).to_le_bytes().to_vec()
}

fn plain(builder: Builder, account: &Balance) -> Server {
    let account = Arc::clone(account);
    let add = move |request: &Request<'_>, reply: &mut Vec<u8>| {
        if request.method == LEFT {
            *reply = left();
            return Ok(());
        }
        *account.lock_blocking_unless_congested()? += 1;
        Ok(())
    };
    builder.serve(add).unwrap()
}

fn with_tasks(builder: Builder, account: &Balance) -> Server {
    let account = Arc::clone(account);
    let add = move |request: OwnedRequest| {
        let account = Arc::clone(&account);
        async move {
            if request.method == LEFT {
                return Ok(left());
            }
            let mut account = account.lock_unless_congested().await?;
            *account += 1;
            // Others find it locked.
            leeward_runtime::tasks::yield_now().await;
            Ok::<_, HandlerError>(Vec::new())
        }
    };
    builder.serve_async(add).unwrap()
}

fn client(server: &Server) -> Client {
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    replica_of(Client::builder(), server)
        .admission(&breakwater, Params::default())
        .objective(Nanos::from_micros(10), Nanos::from_secs(30))
        .build()
        .unwrap()
}

#[test]
fn a_request_refused_by_a_lock_is_rejected_with_the_locks_name() {
    for start in [plain, with_tasks] {
        let account: Balance = Arc::new(Mutex::new("accounts", 0));
        let server = start(builder().cores(2), &account);
        let client = client(&server);
        let held = account.lock_blocking();
        std::thread::scope(|threads| {
            // The oldest waiter is a thread of the test.
            let waiter = threads.spawn(|| *account.lock_blocking());
            until("a delay", || account.delay() > Nanos::from_millis(1));
            let options = || CallOptions::new().budget(Nanos::from_millis(1));
            for _ in 0..3 {
                match client.call_blocking_with(ADD, "", options()) {
                    Err(error @ CallError::Rejected { reason: RejectCode::Lock, .. }) => {
                        assert!(error.to_string().ends_with("Lock (accounts)"), "{error}");
                        assert!(error.is_overload());
                    }
                    other => panic!("{other:?}"),
                }
            }
            drop(held);
            waiter.join().unwrap();
        });
        client.call_blocking_with(ADD, "", CallOptions::new().budget(Nanos::from_millis(1))).unwrap();
        assert_eq!(*account.lock_blocking(), 1, "what was refused has changed nothing");
        assert_eq!(account.stats().refused, 3);
        assert!(
            leeward_runtime::locks::stats().iter().any(|lock| lock.name == "accounts" && lock.kind == LockKind::Mutex)
        );
        client.shut_down();
        until("the end of the session", || server.gauges().credits_issued.is_none_or(|issued| issued == 0));
        let counts = server.stop().unwrap();
        assert_eq!((counts.received, counts.completed, counts.rejected), (4, 1, 3));
    }
}

#[test]
fn a_request_has_its_own_budget_or_the_servers() {
    for start in [plain, with_tasks] {
        let account: Balance = Arc::new(Mutex::new("unused", 0));
        let ample = Nanos::from_secs(1_000);
        let (limited, open) = (start(builder().budget(Budget::new(ample)), &account), start(builder(), &account));
        let left = |server: &Server, options| {
            let client = client(server);
            let response = client.call_blocking_with(LEFT, "", options).unwrap();
            client.shut_down();
            u64::from_le_bytes(response.payload.try_into().unwrap())
        };
        assert_eq!(left(&open, CallOptions::new()), u64::MAX);
        // The wait in the queue is deducted.
        let remaining = left(&limited, CallOptions::new());
        assert!(remaining < ample.0, "{remaining}");
        let header = Nanos::from_secs(4);
        let remaining = left(&limited, CallOptions::new().budget(header));
        assert!(remaining < header.0, "{remaining}");
        limited.stop().unwrap();
        open.stop().unwrap();
    }
}

/// Acknowledged changes have happened, rejected ones have not, and no request waits forever.
#[test]
fn contending_requests_are_completed_or_rejected() {
    const CLIENTS: usize = 4;
    const CALLS: usize = 1_000;
    for start in [plain, with_tasks] {
        let account: Balance = Arc::new(Mutex::new("contended", 0));
        let server = start(builder().cores(2).budget(Budget::new(Nanos::from_micros(20))), &account);
        let (mut done, mut refused) = (0, 0);
        std::thread::scope(|threads| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    threads.spawn(|| {
                        let client = client(&server);
                        let calls: Vec<_> = (0..CALLS).map(|_| client.call(ADD, "")).collect();
                        let ends: Vec<_> = calls.into_iter().map(pollster::block_on).collect();
                        client.shut_down();
                        let refused =
                            |error: &CallError| matches!(error, CallError::Rejected { reason: RejectCode::Lock, .. });
                        let done = ends.iter().filter(|result| result.is_ok()).count();
                        (
                            done,
                            ends.iter()
                                .filter_map(|result| result.as_ref().err())
                                .filter(|result| refused(result))
                                .count(),
                        )
                    })
                })
                .collect();
            for client in clients {
                let (more, fewer) = client.join().unwrap();
                (done, refused) = (done + more, refused + fewer);
            }
        });
        let counts = server.stop().unwrap();
        assert_eq!(*account.lock_blocking(), done as u64);
        assert_eq!(counts.received, counts.completed + counts.rejected + counts.abandoned);
        assert!(done > 0);
        assert_eq!(account.stats().refused, refused as u64);
    }
}

#[test]
fn a_server_reports_its_locks_and_rejections() {
    for start in [plain, with_tasks] {
        let account: Balance = Arc::new(Mutex::new("told of", 0));
        let server = start(builder().cores(2), &account);
        let client = client(&server);
        let held = account.lock_blocking();
        std::thread::scope(|threads| {
            let waiter = threads.spawn(|| *account.lock_blocking());
            until("a delay", || account.delay() > Nanos::from_millis(1));
            let result = client.call_blocking_with(ADD, "", CallOptions::new().budget(Nanos::from_millis(1)));
            assert!(result.is_err());
            drop(held);
            waiter.join().unwrap();
        });
        let answer = client.call_blocking(statistics::METHOD, "whatever").unwrap();
        let statistics = Statistics::parse(&answer.payload).unwrap();
        assert_eq!((statistics.cores, statistics.received, statistics.completed, statistics.connections), (2, 1, 0, 1));
        assert_eq!((statistics.drops["Lock"], statistics.rejected()), (1, 1));
        assert!(statistics.credit_pool.is_some() && statistics.uptime_ns > 0);
        let lock = statistics.locks.iter().find(|lock| lock.name == "told of").unwrap();
        assert_eq!((lock.kind.as_str(), lock.refused, lock.contended), ("mutex", 1, 1));
        assert!(lock.waited_ns >= 1_000_000 && lock.longest_ns == lock.waited_ns);
        client.shut_down();
        let counts = server.stop().unwrap();
        assert_eq!((counts.received, counts.completed, counts.rejected), (1, 0, 1));
    }
}

/// A file in memory.
#[derive(Clone, Default)]
struct File(Arc<std::sync::Mutex<Vec<u8>>>);

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_recording_with_refusals_replays() {
    let (file, account): (File, Balance) = (File::default(), Arc::new(Mutex::new("recorded", 0)));
    let recording = Recording::to(file.clone()).unwrap();
    let server = with_tasks(builder().record(&recording), &account);
    let client = client(&server);
    let held = account.lock_blocking();
    std::thread::scope(|threads| {
        let waiter = threads.spawn(|| *account.lock_blocking());
        until("a delay", || account.delay() > Nanos::from_millis(1));
        for _ in 0..10 {
            let result = client.call_blocking_with(ADD, "", CallOptions::new().budget(Nanos::from_millis(1)));
            assert!(matches!(result, Err(CallError::Rejected { reason: RejectCode::Lock, .. })));
        }
        drop(held);
        waiter.join().unwrap();
    });
    for _ in 0..10 {
        client.call_blocking(ADD, "").unwrap();
    }
    client.shut_down();
    server.stop().unwrap();
    recording.finish().unwrap().unwrap();
    let bytes = file.0.lock().unwrap();
    let mut replayer = None;
    for item in Reader::items(&bytes) {
        match item.unwrap() {
            Item::Header(header) => {
                replayer = Some(Replayer::from_header(&header, &leeward_controllers::builtin()).unwrap())
            }
            Item::Entry(entry) => replayer.as_mut().unwrap().step(&entry).unwrap(),
            Item::End(_) => {}
        }
    }
    assert_eq!(replayer.unwrap().difference().map(ToString::to_string), None);
}
