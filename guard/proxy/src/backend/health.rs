//! Whether backends are reachable: a request for a path that the operator names, or a connection to
//! one that was unreachable. Does not contain the choice of a backend.

use super::pool::Pool;
use crate::http::request_body::RequestBody;
use crate::http::versions::to_http2;
use crate::worker::Worker;
use http::header::{HOST, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderValue, Request};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Interval between two checks of a backend.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest time of an answer. A backend that is merely overloaded is slow, and must not be put
/// aside: the other ones would get its load.
const LONGEST: Duration = Duration::from_secs(5);
/// Checks in a row that fail before a backend is put aside.
const FAILURES: u32 = 2;

/// Watches all backends for as long as the proxy runs; `loads` changes with each reload.
pub(crate) async fn watch_all(worker: Arc<Worker>, mut loads: watch::Receiver<u64>) {
    let mut watched: Vec<Arc<Pool>> = Vec::new();
    loop {
        let pools = worker.pools();
        for (backend, pool) in pools.iter().enumerate() {
            let is_known = watched.get(backend).is_some_and(|known| Arc::ptr_eq(known, pool));
            if !is_known && !worker.admission.is_removed(backend) {
                tokio::spawn(watch_backend(Arc::clone(&worker), backend, Arc::clone(pool)));
            }
        }
        watched = pools;
        if loads.changed().await.is_err() {
            return;
        }
    }
}

/// Watches a backend until a reload removes it.
async fn watch_backend(worker: Arc<Worker>, backend: usize, pool: Arc<Pool>) {
    let admission = &worker.admission;
    let mut failures = 0;
    loop {
        sleep(INTERVAL).await;
        let configuration = worker.configuration();
        let is_well = match &configuration.settings.health {
            Some(path) => {
                failures = if is_well(&pool, path).await { 0 } else { failures + 1 };
                failures < FAILURES
            }
            None => admission.is_up(backend) || pool.open(None).await.is_ok(),
        };
        // It may have been removed meanwhile, and another one have its number.
        if !Arc::ptr_eq(&worker.pool(backend), &pool) {
            return;
        }
        if admission.is_up(backend) != is_well {
            admission.set_up(backend, is_well);
        }
    }
}

/// Whether the backend answers a request for `path` with a status below 400.
async fn is_well(pool: &Pool, path: &str) -> bool {
    let ask = async {
        let mut connection = pool.open(None).await.ok()?;
        let mut request = Request::get(path).body(RequestBody::empty()).ok()?;
        request.headers_mut().insert(HOST, HeaderValue::from_static("leeward-health"));
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("leeward-proxy"));
        if connection.sender.is_http2() {
            let scheme = if pool.address().is_tls() { Scheme::HTTPS } else { Scheme::HTTP };
            to_http2(&mut request, scheme, "");
        }
        connection.sender.try_send_request(request).await.ok()
    };
    let answer = timeout(LONGEST, ask).await.ok().flatten();
    answer.is_some_and(|answer| answer.status().as_u16() < 400)
}
