//! Clients that ask again when they are refused, up to three times, at twice the capacity: how much more the server gets than was asked
//! for. The clients are programs as people write them, on an executor: each has a connection, and asks at even gaps.

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

/// Times that a refused request is sent again.
const RETRIES: u8 = 3;
const CLIENTS: u32 = 400;
/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Policies of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// Nothing says that a request was sent before.
    Unmarked,
    /// A header says so.
    Marked,
    /// The client layer marks, and lets one in ten pass.
    Layer,
}

/// Fates of what the clients wanted.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// Requests, whatever became of them.
    wanted: u64,
    /// Of them answered with a result within the objective, repetitions included.
    in_time: u64,
    /// Of them without any answer.
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
                let (ratio, share) = self.retried(policy, capacity)?;
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

    /// Requests that came to the server over requests that clients wanted, and those answered in time over the capacity.
    fn retried(&mut self, policy: Policy, capacity: f64) -> Result<(f64, f64)> {
        let slo = SLO.as_millis() as u64;
        let server = Server::start(&Args { guard: Guard::Level, work: 500, slo, cpu: Some(0), ..Args::default() })?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let gap = Duration::from_secs_f64(f64::from(CLIENTS) / (capacity * 2.0));
        let asked = runtime.block_on(clients(server.address, policy, gap, self.span))?;
        drop(runtime);
        let said = server.stop()?;
        let arrived = said["arrived"].as_f64().unwrap_or(f64::NAN);
        anyhow::ensure!(asked.failed * 100 <= asked.wanted, "{asked:?}: clients without answers");
        let share = asked.in_time as f64 / self.span.as_secs_f64() / capacity;
        Ok((arrived / asked.wanted.max(1) as f64, share))
    }
}

/// All clients, each beginning at a moment of its own.
async fn clients(address: SocketAddr, policy: Policy, gap: Duration, span: Duration) -> Result<Asked> {
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
                let send = sends(sender);
                let until = begin + span;
                match policy {
                    Policy::Layer => asks(layer.layer(send), policy, (first, until), gap).await,
                    Policy::Unmarked | Policy::Marked => asks(send, policy, (first, until), gap).await,
                }
            })
        })
        .collect();
    let mut sum = Asked::default();
    for task in tasks {
        let asked = task.await?;
        sum.wanted += asked.wanted;
        sum.in_time += asked.in_time;
        sum.failed += asked.failed;
    }
    Ok(sum)
}

/// A connection as a service, which the layer wants to clone.
fn sends(
    sender: SendRequest<Empty<Bytes>>,
) -> impl Service<Request<Empty<Bytes>>, Response = Response<hyper::body::Incoming>, Error = hyper::Error, Future: Send>
+ Clone
+ Send {
    let sender = Arc::new(Mutex::new(sender));
    service_fn(move |request| sender.lock().unwrap_or_else(PoisonError::into_inner).send_request(request))
}

/// Requests of a client: they are due at even gaps, and latency counts from then.
async fn asks<S, B>(mut service: S, policy: Policy, (first, until): (Instant, Instant), gap: Duration) -> Asked
where
    S: Service<Request<Empty<Bytes>>, Response = Response<B>, Error = hyper::Error>,
    B: Body,
{
    let (mut asked, mut due) = (Asked::default(), first);
    while due < until {
        sleep_until(due).await;
        asked.wanted += 1;
        let answer = timeout(PATIENCE, wants(&mut service, policy)).await;
        match answer {
            Ok(Some(true)) => asked.in_time += u64::from(due.elapsed() <= SLO),
            Ok(Some(false)) => {}
            Ok(None) | Err(_) => {
                // Its connection is of no use any more.
                asked.failed += 1;
                return asked;
            }
        }
        due += gap;
    }
    asked
}

/// A request with its repetitions; whether there was a result in the end, and nothing where the connection has broken.
async fn wants<S, B>(service: &mut S, policy: Policy) -> Option<bool>
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
