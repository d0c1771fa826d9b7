//! Whether backends are reachable: a request for a path that the operator names, or a connection to
//! one that was unreachable. Does not contain the choice of a backend.

use super::pool::Pool;
use crate::admission::Admission;
use crate::http::request_body::RequestBody;
use crate::http::versions::to_http2;
use http::header::{HOST, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderValue, Request};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Interval between two checks of a backend.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest time of an answer. A backend that is merely overloaded is slow, and must not be put
/// aside: the other ones would get its load.
const LONGEST: Duration = Duration::from_secs(5);
/// Checks in a row that fail before a backend is put aside.
const FAILURES: u32 = 2;

/// Watches one backend for as long as the proxy runs.
pub(crate) async fn watch(admission: Admission, pool: Arc<Pool>, backend: usize, path: Option<String>) {
    let mut failures = 0;
    loop {
        sleep(INTERVAL).await;
        match &path {
            Some(path) => {
                failures = if is_well(&pool, backend, path).await { 0 } else { failures + 1 };
                let is_up = failures < FAILURES;
                if admission.is_up(backend) != is_up {
                    admission.set_up(backend, is_up);
                }
            }
            None if admission.is_up(backend) => {}
            None => {
                if pool.open(backend, None).await.is_ok() {
                    admission.set_up(backend, true);
                }
            }
        }
    }
}

/// Whether the backend answers a request for `path` with a status below 400.
async fn is_well(pool: &Pool, backend: usize, path: &str) -> bool {
    let ask = async {
        let mut connection = pool.open(backend, None).await.ok()?;
        let mut request = Request::get(path).body(RequestBody::empty()).ok()?;
        request.headers_mut().insert(HOST, HeaderValue::from_static("leeward-health"));
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("leeward-proxy"));
        if connection.sender.is_http2() {
            let scheme = if pool.address(backend).is_tls() { Scheme::HTTPS } else { Scheme::HTTP };
            to_http2(&mut request, scheme, "");
        }
        connection.sender.try_send_request(request).await.ok()
    };
    let answer = timeout(LONGEST, ask).await.ok().flatten();
    answer.is_some_and(|answer| answer.status().as_u16() < 400)
}
