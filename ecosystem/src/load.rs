//! Load over HTTP/1 from one thread: each connection asks at even gaps from a random moment on, or as soon as it was
//! answered. Of many such connections together the requests come nearly as of a Poisson process, and hardly any waits
//! for its own connection's last answer, which a client would not do. Latency counts from when a request was due, so
//! that a request that had to wait for its connection is not forgotten.

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Demand of a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Demand {
    /// Requests per second of all connections together.
    Rate(f64),
    /// Each connection asks again at once.
    Closed,
}

/// A load.
pub(crate) struct Plan {
    pub(crate) address: SocketAddr,
    pub(crate) connections: usize,
    /// Demands one after the other.
    pub(crate) phases: Vec<(Demand, Duration)>,
    /// Time from the beginning that does not count.
    pub(crate) warmup: Duration,
    pub(crate) objective: Duration,
    pub(crate) seed: u64,
    /// Header lines of a connection's requests, and the group that it counts in.
    pub(crate) kind: fn(usize) -> (String, usize),
}

/// Every connection alike.
pub(crate) fn alike(_: usize) -> (String, usize) {
    (String::new(), 0)
}

/// Fates of the requests of a group that were due while it counted.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) due: u64,
    pub(crate) answered: u64,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
    pub(crate) in_time: u64,
    /// Of the answered, in us from when they were due.
    pub(crate) latency: Histogram<u64>,
}

impl Default for Group {
    fn default() -> Self {
        let latency = Histogram::new_with_bounds(1, 600_000_000, 3).expect("sound bounds");
        Group { due: 0, answered: 0, refused: 0, failed: 0, in_time: 0, latency }
    }
}

/// Result of a load.
pub(crate) struct Came {
    pub(crate) groups: Vec<Group>,
    /// Time that counts.
    pub(crate) span: Duration,
    /// Share of its CPU that the generator used.
    pub(crate) busy: f64,
    /// When the last refusal was due, from the beginning.
    pub(crate) last_refusal: Duration,
    /// Answered in time, by half seconds of when they were due from the beginning.
    pub(crate) halves: Vec<u64>,
}

impl Came {
    pub(crate) fn all(&self) -> Group {
        let mut sum = Group::default();
        for group in &self.groups {
            sum.due += group.due;
            sum.answered += group.answered;
            sum.refused += group.refused;
            sum.failed += group.failed;
            sum.in_time += group.in_time;
            let _ = sum.latency.add(&group.latency);
        }
        sum
    }

    pub(crate) fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.span.as_secs_f64()
    }
}

#[derive(Default)]
struct Shared {
    groups: Vec<Group>,
    last_refusal: Duration,
    halves: Vec<u64>,
}

/// Runs a plan on this thread.
pub(crate) fn run(plan: Plan) -> Result<Came> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let plan = Arc::new(plan);
    let groups = (0..plan.connections).map(|index| (plan.kind)(index).1 + 1).max().unwrap_or(1);
    let shared = Arc::new(Mutex::new(Shared { groups: vec![Group::default(); groups], ..Shared::default() }));
    let (cpu, began) = (cpu_time(), Instant::now());
    runtime.block_on(async {
        // Connections first: the load begins when all are there.
        let mut streams = Vec::new();
        for _ in 0..plan.connections {
            let stream = TcpStream::connect(plan.address).await.context("connecting")?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let begin = Instant::now() + Duration::from_millis(5);
        let tasks: Vec<_> = streams
            .into_iter()
            .enumerate()
            .map(|(index, stream)| tokio::spawn(connection(index, stream, begin, plan.clone(), shared.clone())))
            .collect();
        for task in tasks {
            task.await?;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    let busy = (cpu_time() - cpu).as_secs_f64() / began.elapsed().as_secs_f64();
    let mut shared = shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let span = plan.phases.iter().map(|(_, span)| *span).sum::<Duration>().saturating_sub(plan.warmup);
    Ok(Came {
        groups: std::mem::take(&mut shared.groups),
        span,
        busy,
        last_refusal: shared.last_refusal,
        halves: std::mem::take(&mut shared.halves),
    })
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

async fn connection(index: usize, mut stream: TcpStream, begin: Instant, plan: Arc<Plan>, shared: Arc<Mutex<Shared>>) {
    let (header, group) = (plan.kind)(index);
    let request = format!("GET / HTTP/1.1\r\nhost: leeward\r\n{header}\r\n").into_bytes();
    let mut draw = Draw(plan.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (index as u64 + 1) << 17 | 1);
    let mut buffer = vec![0; 4096];
    let mut phase_begin = begin;
    for (demand, span) in &plan.phases {
        let end = phase_begin + *span;
        let mut due = phase_begin;
        loop {
            match demand {
                Demand::Rate(rate) => {
                    let gap = plan.connections as f64 / rate;
                    due += Duration::from_secs_f64(if due == phase_begin { gap * draw.unit() } else { gap });
                }
                Demand::Closed => due = due.max(Instant::now()),
            }
            if due >= end {
                break;
            }
            if due > Instant::now() {
                tokio::time::sleep_until(due.into()).await;
            }
            // Long after the end nobody waits for what is still to come.
            let outcome = if Instant::now() > end + Duration::from_secs(1) {
                Err(std::io::ErrorKind::TimedOut.into())
            } else {
                ask(&mut stream, &request, &mut buffer).await
            };
            let latency = due.elapsed();
            note(&plan, &shared, group, due - begin, latency, &outcome);
            if outcome.is_err() {
                match TcpStream::connect(plan.address).await {
                    Ok(fresh) => stream = fresh,
                    Err(_) => return,
                }
            }
        }
        phase_begin = end;
    }
}

fn note(
    plan: &Plan,
    shared: &Mutex<Shared>,
    group: usize,
    due: Duration,
    latency: Duration,
    outcome: &std::io::Result<u16>,
) {
    let mut shared = shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let refused = matches!(outcome, Ok(status) if *status != 200);
    if refused {
        shared.last_refusal = shared.last_refusal.max(due);
    }
    if matches!(outcome, Ok(200)) && latency <= plan.objective {
        let half = (due.as_millis() / 500) as usize;
        if shared.halves.len() <= half {
            shared.halves.resize(half + 1, 0);
        }
        shared.halves[half] += 1;
    }
    if due < plan.warmup {
        return;
    }
    let group = &mut shared.groups[group];
    group.due += 1;
    match outcome {
        Err(_) => group.failed += 1,
        Ok(_) if refused => group.refused += 1,
        Ok(_) => {
            group.answered += 1;
            group.in_time += u64::from(latency <= plan.objective);
            group.latency.saturating_record(latency.as_micros() as u64);
        }
    }
}

/// Asks once; returns the status of the whole answer.
async fn ask(stream: &mut TcpStream, request: &[u8], buffer: &mut [u8]) -> std::io::Result<u16> {
    stream.write_all(request).await?;
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        filled += read;
        if let Some(status) = whole(&buffer[..filled])? {
            return Ok(status);
        }
    }
}

/// The status, once the answer is whole.
fn whole(bytes: &[u8]) -> std::io::Result<Option<u16>> {
    let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..head]).map_err(|_| std::io::ErrorKind::InvalidData)?;
    let status = text.get(9..12).and_then(|digits| digits.parse().ok()).ok_or(std::io::ErrorKind::InvalidData)?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    Ok((bytes.len() >= head + 4 + length.unwrap_or(0)).then_some(status))
}

/// A seeded stream of numbers (xorshift64*).
struct Draw(u64);

impl Draw {
    /// From 0 to 1.
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_last_byte() {
        let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno";
        for cut in 0..answer.len() {
            assert_eq!(whole(&answer[..cut]).unwrap(), None, "{cut}");
        }
        assert_eq!(whole(answer).unwrap(), Some(503));
        assert!(whole(b"gibberish\r\n\r\n").is_err());
    }
}
