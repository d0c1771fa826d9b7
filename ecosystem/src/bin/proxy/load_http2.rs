//! Load over HTTP/2 from one thread: an open loop with Poisson arrivals, whose requests are streams
//! of a few connections, or unary calls of gRPC, of the plan's kinds.

use crate::load::{gap, pick, unit};
use crate::plan::{Demand, Group, Kind, LoadResult, Plan};
use crate::sample::Protocol;
use anyhow::{Context, Result};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio::time::{sleep_until, timeout};

/// Connections that share the requests.
const CONNECTIONS: usize = 8;
/// A client gives up after this time.
const PATIENCE: Duration = Duration::from_secs(2);
/// An empty message of gRPC.
const EMPTY: &[u8] = &[0; 5];
/// What gRPC calls the statuses of an overload.
const REFUSED: [&str; 2] = ["8", "14"];

type Body = Full<Bytes>;

/// End of a request.
#[derive(Clone, Copy)]
enum End {
    Answered,
    Refused,
    Failed,
}

/// Runs a plan of rates on the calling thread.
pub(crate) fn run(plan: &Plan, protocol: Protocol) -> Result<LoadResult> {
    let cpu = || Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime));
    let (before, begin) = (cpu().unwrap_or_default(), Instant::now());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let count = plan.kinds.iter().map(|kind| kind.group + 1).max().context("a plan has a kind")?;
    let groups = Rc::new(RefCell::new(vec![Group::default(); count]));
    let local = LocalSet::new();
    local.block_on(&runtime, generate(plan, protocol, &groups))?;
    // Requests in flight end or are given up.
    runtime.block_on(local);
    let busy = (cpu().unwrap_or_default() - before).as_secs_f64() / begin.elapsed().as_secs_f64().max(1e-9);
    let span = plan.phases.iter().map(|(_, span)| *span).sum::<Duration>().saturating_sub(plan.warmup);
    let groups = groups.take();
    Ok(LoadResult { groups, span, ticks: Vec::new(), busy })
}

async fn generate(plan: &Plan, protocol: Protocol, groups: &Rc<RefCell<Vec<Group>>>) -> Result<()> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(connect(plan).await?);
    }
    let (begin, mut random) = (Instant::now(), plan.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let (mut next, mut end, mut index) = (begin, begin, 0);
    for (demand, span) in &plan.phases {
        let Demand::Rate(rate) = *demand else { anyhow::bail!("HTTP/2 has no closed loop") };
        end += *span;
        loop {
            next += gap(rate, unit(&mut random));
            if next >= end {
                next = end;
                break;
            }
            if next > Instant::now() {
                sleep_until(next.into()).await;
            }
            index = (index + 1) % CONNECTIONS;
            if connections[index].is_closed() {
                connections[index] = connect(plan).await?;
            }
            let (sender, due) = (connections[index].clone(), next);
            let (objective, is_measured) = (plan.objective, due.duration_since(begin) >= plan.warmup);
            let (groups, kind) = (Rc::clone(groups), &plan.kinds[pick(&plan.kinds, unit(&mut random))]);
            let (group, request) = (kind.group, request(kind, protocol)?);
            tokio::task::spawn_local(async move {
                let ended = timeout(PATIENCE, send(sender, protocol, request)).await.unwrap_or(End::Failed);
                if is_measured {
                    record(&mut groups.borrow_mut()[group], ended, due.elapsed(), objective);
                }
            });
        }
    }
    Ok(())
}

async fn connect(plan: &Plan) -> Result<SendRequest<Body>> {
    let stream = TcpStream::connect(plan.address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .initial_max_send_streams(1_000)
        .handshake(TokioIo::new(stream))
        .await
        .context("the proxy speaks no HTTP/2")?;
    tokio::task::spawn_local(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

fn request(kind: &Kind, protocol: Protocol) -> Result<Request<Body>> {
    let uri = format!("http://leeward{}", kind.path);
    let (mut request, body) = match protocol {
        Protocol::Grpc => {
            (Request::post(uri).header("content-type", "application/grpc").header("te", "trailers"), EMPTY)
        }
        _ => (Request::get(uri), &[][..]),
    };
    for line in kind.headers.lines() {
        let (name, value) = line.split_once(": ").context("a header line has a colon")?;
        request = request.header(name, value);
    }
    Ok(request.body(Full::new(Bytes::from_static(body)))?)
}

async fn send(mut sender: SendRequest<Body>, protocol: Protocol, request: Request<Body>) -> End {
    if sender.ready().await.is_err() {
        return End::Failed;
    }
    let Ok(response) = sender.send_request(request).await else { return End::Failed };
    match response.status() {
        StatusCode::OK if protocol == Protocol::Grpc => call_status(response).await,
        StatusCode::OK => match response.into_body().collect().await {
            Ok(_) => End::Answered,
            Err(_) => End::Failed,
        },
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => End::Refused,
        _ => End::Failed,
    }
}

/// How a call of gRPC ended: its status stands in the trailers, or in the head if there are none.
async fn call_status(response: http::Response<Incoming>) -> End {
    let of_head = response.headers().get("grpc-status").cloned();
    let Ok(body) = response.into_body().collect().await else { return End::Failed };
    let status = body.trailers().and_then(|trailers| trailers.get("grpc-status")).cloned().or(of_head);
    match status.as_ref().and_then(|status| status.to_str().ok()) {
        Some("0") => End::Answered,
        Some(status) if REFUSED.contains(&status) => End::Refused,
        _ => End::Failed,
    }
}

fn record(group: &mut Group, ended: End, latency: Duration, objective: Duration) {
    group.due += 1;
    match ended {
        End::Answered => {
            group.answered += 1;
            group.in_time += u64::from(latency <= objective);
            group.latency.saturating_record(latency.as_micros() as u64);
        }
        End::Refused => group.refused += 1,
        End::Failed => group.failed += 1,
    }
}
