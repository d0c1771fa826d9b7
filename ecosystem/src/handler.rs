//! Work of the service for a request: it waits, computes, or takes a connection from a pool.
//!
//! Does not contain protection.

use crate::args::{Args, Pool};
use crate::work::Work;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use leeward_tower::{LockRejection, locks::AcquireQueue};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Connections of the pool.
pub(crate) const CONNECTIONS: usize = 4;
/// Cost of an expensive request, in cheap ones.
pub(crate) const DEAR: u64 = 50;

struct Service {
    work: Work,
    dear: Work,
    slow: Work,
    idle: bool,
    wait: Duration,
    blocks: Duration,
    pool: Pool,
    connections: Semaphore,
    line: AcquireQueue,
    slower: Option<(Duration, Duration)>,
    began: OnceLock<Instant>,
}

/// Router of the service.
pub(crate) fn app(args: &Args) -> Router {
    let work = |times: u64| Work::of(Duration::from_micros(args.work * times));
    let ms = |at: usize| args.slower.get(at).copied().map(Duration::from_millis);
    let service = Arc::new(Service {
        work: work(1),
        dear: work(DEAR),
        slow: work(3),
        idle: args.work == 0,
        wait: Duration::from_millis(args.wait),
        blocks: Duration::from_millis(args.blocks),
        pool: args.pool,
        connections: Semaphore::new(CONNECTIONS),
        line: AcquireQueue::new("pool"),
        slower: ms(0).zip(ms(1)),
        began: OnceLock::new(),
    });
    if args.dear {
        let handler = move |headers: HeaderMap| {
            let service = Arc::clone(&service);
            async move { service.serve(headers.contains_key("x-dear")).await }
        };
        return Router::new().route("/", get(handler));
    }
    Router::new().route(
        "/",
        get(move || {
            let service = Arc::clone(&service);
            async move { service.serve(false).await }
        }),
    )
}

impl Service {
    async fn serve(&self, dear: bool) -> Response {
        let _connection = match self.pool {
            Pool::None => None,
            Pool::Plain => self.connections.acquire().await.ok(),
            Pool::Line => match self.line.acquire(self.connections.acquire()).await {
                Ok(connection) => connection.ok(),
                Err(congested) => return LockRejection(congested).into_response(),
            },
        };
        if !self.wait.is_zero() {
            tokio::time::sleep(self.wait).await;
        }
        if !self.blocks.is_zero() {
            std::thread::sleep(self.blocks);
        }
        if !self.idle {
            self.work(dear).run();
        }
        "ok".into_response()
    }

    fn work(&self, dear: bool) -> Work {
        let slow = self.slower.is_some_and(|(from, until)| {
            let passed = self.began.get_or_init(Instant::now).elapsed();
            passed >= from && passed < until
        });
        match (dear, slow) {
            (true, _) => self.dear,
            (false, true) => self.slow,
            (false, false) => self.work,
        }
    }
}
