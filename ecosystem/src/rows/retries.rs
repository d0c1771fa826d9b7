//! Clients that retry rejected requests up to three times, at twice the capacity.
//!
//! The result is the demand on the server over the clients' own demand. The clients are typical
//! programs on an executor: each has one connection and sends requests at even intervals.

use super::{Bench, SLO};
use crate::args::Args;
use crate::child::Server;
use crate::guard::Guard;
use anyhow::Result;
use axum::body::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use leeward_tower::client;
use leeward_tower::headers::LEEWARD;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};
use tower::{Layer, Service, service_fn};

/// Maximum retries of a rejected request.
const RETRIES: u8 = 3;
const CLIENTS: u32 = 400;
/// Longest wait for one request with its retries.
const PATIENCE: Duration = Duration::from_secs(2);

/// Retry policies of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// Retries are not marked.
    Unmarked,
    /// A header marks retries.
    Marked,
    /// The client layer marks retries and lets through at most 10 % of them.
    Layer,
}

/// Counters of the clients' own requests, retries not counted.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    /// Requests, with any outcome.
    requests: u64,
    /// Requests answered with a result within the objective, after retries if needed.
    in_time: u64,
    /// Requests without any response.
    failed: u64,
}

impl Bench {
    pub(super) fn retries(&mut self) -> Result<()> {
        let capacity = self.capacity(Guard::Nothing, (500, 0))?;
        let of = [(Policy::Unmarked, "unmarked"), (Policy::Marked, "marked"), (Policy::Layer, "client layer")];
        for (policy, name) in of {
            let mut ratios = Vec::new();
            let mut shares = Vec::new();
            for _ in 0..self.rounds {
                let (ratio, share) = self.measure_retries(policy, capacity)?;
                ratios.push(ratio);
                shares.push(share);
            }
            let (ratio, share) = (super::median(ratios), super::median(shares));
            let is_ours = policy == Policy::Layer;
            self.row(
                format!("demand / asked for, retried {RETRIES} times at 2 x, {name}"),
                if is_ours { "<= 1.15" } else { "" },
                format!("{ratio:.2}, in time / capacity {share:.2}"),
                ratio,
                is_ours.then_some(ratio <= 1.15),
            );
        }
        Ok(())
    }

    /// Returns server arrivals over client requests, and the share of the capacity answered in
    /// time.
    fn measure_retries(&mut self, policy: Policy, capacity: f64) -> Result<(f64, f64)> {
        let slo = SLO.as_millis() as u64;
        let server = Server::start(&Args { guard: Guard::Level, work: 500, slo, cpu: Some(0), ..Args::default() })?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let gap = Duration::from_secs_f64(f64::from(CLIENTS) / (capacity * 2.0));
        let totals = runtime.block_on(run_clients(server.address, policy, gap, self.span))?;
        drop(runtime);
        let report = server.stop()?;
        let arrived = report["arrived"].as_f64().unwrap_or(f64::NAN);
        anyhow::ensure!(totals.failed * 100 <= totals.requests, "{totals:?}: clients without answers");
        let share = totals.in_time as f64 / self.span.as_secs_f64() / capacity;
        Ok((arrived / totals.requests.max(1) as f64, share))
    }
}

/// Runs all clients with staggered starts.
async fn run_clients(address: SocketAddr, policy: Policy, gap: Duration, span: Duration) -> Result<Totals> {
    let layer = client::client(SLO);
    let mut senders = Vec::new();
    for _ in 0..CLIENTS {
        let (sender, connection) =
            http1::handshake(TokioIo::new(tokio::net::TcpStream::connect(address).await?)).await?;
        tokio::spawn(connection);
        senders.push(sender);
    }
    let begin = Instant::now();
    let tasks: Vec<_> = (0..CLIENTS)
        .zip(senders)
        .map(|(index, sender)| {
            let first = begin + gap * index / CLIENTS;
            let layer = layer.clone();
            tokio::spawn(async move {
                let send = connection_service(sender);
                let until = begin + span;
                match policy {
                    Policy::Layer => run_client(layer.layer(send), policy, (first, until), gap).await,
                    Policy::Unmarked | Policy::Marked => run_client(send, policy, (first, until), gap).await,
                }
            })
        })
        .collect();
    let mut sum = Totals::default();
    for task in tasks {
        let totals = task.await?;
        sum.requests += totals.requests;
        sum.in_time += totals.in_time;
        sum.failed += totals.failed;
    }
    Ok(sum)
}

/// A connection as a service that the layer can clone.
fn connection_service(
    sender: SendRequest<Empty<Bytes>>,
) -> impl Service<Request<Empty<Bytes>>, Response = Response<hyper::body::Incoming>, Error = hyper::Error, Future: Send>
+ Clone
+ Send {
    let sender = Arc::new(Mutex::new(sender));
    service_fn(move |request| sender.lock().unwrap_or_else(PoisonError::into_inner).send_request(request))
}

/// Runs one client. Its requests are due at even intervals, and latency counts from then.
async fn run_client<S, B>(mut service: S, policy: Policy, (first, until): (Instant, Instant), gap: Duration) -> Totals
where
    S: Service<Request<Empty<Bytes>>, Response = Response<B>, Error = hyper::Error>,
    B: Body,
{
    let (mut totals, mut due) = (Totals::default(), first);
    while due < until {
        sleep_until(due).await;
        totals.requests += 1;
        let answer = timeout(PATIENCE, send_with_retries(&mut service, policy)).await;
        match answer {
            Ok(Some(true)) => totals.in_time += u64::from(due.elapsed() <= SLO),
            Ok(Some(false)) => {}
            Ok(None) | Err(_) => {
                // The connection can't be used any more.
                totals.failed += 1;
                return totals;
            }
        }
        due += gap;
    }
    totals
}

/// Sends a request with retries: true for a result, false if all were rejected, `None` if the
/// connection broke.
async fn send_with_retries<S, B>(service: &mut S, policy: Policy) -> Option<bool>
where
    S: Service<Request<Empty<Bytes>>, Response = Response<B>, Error = hyper::Error>,
    B: Body,
{
    for attempt in 0..=RETRIES {
        let mut request = Request::new(Empty::new());
        request.headers_mut().insert(http::header::HOST, http::HeaderValue::from_static("leeward"));
        match policy {
            Policy::Layer if attempt > 0 => client::mark_retry(&mut request, attempt),
            Policy::Marked if attempt > 0 => {
                let mark = http::HeaderValue::from_str(&format!("a={attempt}")).ok()?;
                request.headers_mut().insert(LEEWARD, mark);
            }
            _ => {}
        }
        std::future::poll_fn(|context| service.poll_ready(context)).await.ok()?;
        let response = service.call(request).await.ok()?;
        let refused = client::is_overload(&response);
        response.into_body().collect().await.ok()?;
        if !refused {
            return Some(true);
        }
    }
    Some(false)
}
