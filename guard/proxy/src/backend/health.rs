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
        let is_up = admission.is_up(backend);
        let state = match &configuration.settings.health {
            Some(path) => {
                let checked = check(&pool, path).await;
                failures = if checked.is_ok() { 0 } else { failures + 1 };
                // One that refused a connection meanwhile is not well because of this.
                if failures < FAILURES && admission.is_up(backend) { Ok(()) } else { checked }
            }
            None if is_up => Ok(()),
            None => pool.open(None).await.map(drop).map_err(|error| error.to_string()),
        };
        // It may have been removed meanwhile, and another one have its number.
        if !Arc::ptr_eq(&worker.pool(backend), &pool) {
            return;
        }
        // One on probation gets requests, although it is not up.
        if !is_up || state.is_err() {
            admission.set_up(backend, state);
        }
    }
}

/// Asks the backend for `path`.
///
/// # Errors
/// It does not answer with a status below 400: the reason.
async fn check(pool: &Pool, path: &str) -> Result<(), String> {
    let ask = async {
        let mut connection = pool.open(None).await.map_err(|error| error.to_string())?;
        let mut request = Request::new(RequestBody::empty());
        *request.uri_mut() = path.parse().map_err(|_| "its path is none".to_owned())?;
        request.headers_mut().insert(HOST, HeaderValue::from_static("leeward-health"));
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("leeward-proxy"));
        if connection.sender.is_http2() {
            let scheme = if pool.address().is_tls() { Scheme::HTTPS } else { Scheme::HTTP };
            to_http2(&mut request, scheme, "");
        }
        connection.sender.try_send_request(request).await.map_err(|failed| failed.error().to_string())
    };
    match timeout(LONGEST, ask).await {
        Ok(Ok(answer)) if answer.status().as_u16() < 400 => Ok(()),
        Ok(Ok(answer)) => Err(format!("{path} says {}", answer.status().as_u16())),
        Ok(Err(error)) => Err(format!("{path}: {error}")),
        Err(_) => Err(format!("{path}: no response in {} s", LONGEST.as_secs())),
    }
}
