//! Load over HTTP/1 from one thread.
//!
//! Each connection sends requests at even intervals from a random phase, or as soon as the previous
//! one was answered. Together, many such connections approximate a Poisson process, and few
//! requests wait for the previous response on their connection. Latency counts from the time at
//! which a request was due, so it includes waiting for the connection.
//!
//! The loop uses no executor: the timers of one have a resolution of a millisecond, and its tasks
//! cost as much as a rejection. This loop sends due requests, reads responses, and polls without
//! sleeping if the next request is near.

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The loop sleeps only if the next request is due later than this.
const NEAR: Duration = Duration::from_micros(60);
/// Longest wait for a response after the end of a phase.
const PATIENCE: Duration = Duration::from_secs(1);

/// Demand of a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Demand {
    /// Requests per second, over all connections.
    Rate(f64),
    /// Each connection sends the next request as soon as it gets a response.
    Closed,
}

/// Settings of a load.
pub(crate) struct Plan {
    pub(crate) address: SocketAddr,
    pub(crate) connections: usize,
    /// Consecutive demands and their durations.
    pub(crate) phases: Vec<(Demand, Duration)>,
    /// Time from the beginning that is not measured.
    pub(crate) warmup: Duration,
    pub(crate) objective: Duration,
    pub(crate) seed: u64,
    /// Header lines of a connection's requests, and the index of its group.
    pub(crate) kind: fn(usize) -> (String, usize),
}

/// One group for all connections, without header lines.
pub(crate) fn alike(_: usize) -> (String, usize) {
    (String::new(), 0)
}

/// Outcomes of a group's requests that were due in the measured time.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) due: u64,
    pub(crate) answered: u64,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
    pub(crate) in_time: u64,
    /// Latency of the answered requests in microseconds, from the time at which each was due.
    pub(crate) latency: Histogram<u64>,
}

impl Default for Group {
    fn default() -> Self {
        let latency = Histogram::new_with_bounds(1, 600_000_000, 3).expect("sound bounds");
        Group { due: 0, answered: 0, refused: 0, failed: 0, in_time: 0, latency }
    }
}

/// Result of a load.
pub(crate) struct LoadResult {
    pub(crate) groups: Vec<Group>,
    /// Measured time.
    pub(crate) span: Duration,
    /// Share of its CPU that the generator used.
    pub(crate) busy: f64,
    /// Time from the beginning at which the last rejected request was due.
    pub(crate) last_refusal: Duration,
    /// Requests answered in time, per half second in which they were due.
    pub(crate) halves: Vec<u64>,
}

impl LoadResult {
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

/// Runs a plan on the calling thread.
pub(crate) fn run(plan: &Plan) -> Result<LoadResult> {
    let mut generator = Generator::new(plan)?;
    generator.run()?;
    let span = plan.phases.iter().map(|(_, span)| *span).sum::<Duration>().saturating_sub(plan.warmup);
    Ok(LoadResult {
        busy: 1.0 - generator.idle.as_secs_f64() / generator.begin.elapsed().as_secs_f64().max(1e-9),
        groups: generator.groups,
        span,
        last_refusal: generator.last_refusal,
        halves: generator.halves,
    })
}

struct Generator<'a> {
    plan: &'a Plan,
    connections: Vec<Connection>,
    /// Connections whose next request is not due yet.
    waiting: BinaryHeap<Reverse<(Instant, usize)>>,
    poll: OwnedFd,
    begin: Instant,
    /// End of each phase.
    ends: Vec<Instant>,
    groups: Vec<Group>,
    last_refusal: Duration,
    halves: Vec<u64>,
    /// Time spent sleeping or in polls that found nothing.
    idle: Duration,
}

struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    group: usize,
    random: Random,
    /// Phase of the current request; equal to the number of phases after the last one.
    phase: usize,
    /// Time at which the current request is or was due.
    due: Instant,
    /// True if the current request has been sent.
    in_flight: bool,
    answer: Vec<u8>,
}

impl<'a> Generator<'a> {
    fn new(plan: &'a Plan) -> Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::new();
        for index in 0..plan.connections {
            let (header, group) = (plan.kind)(index);
            let stream = connect(plan.address, &poll, index, PATIENCE * 10).context("connecting")?;
            connections.push(Connection {
                stream,
                request: format!("GET / HTTP/1.1\r\nhost: leeward\r\n{header}\r\n").into_bytes(),
                group,
                random: Random(plan.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (index as u64 + 1) << 17 | 1),
                phase: 0,
                due: Instant::now(),
                in_flight: false,
                answer: Vec::with_capacity(4_096),
            });
        }
        let groups = connections.iter().map(|connection| connection.group + 1).max().unwrap_or(1);
        // The load begins after all connections are open.
        let begin = Instant::now() + Duration::from_millis(5);
        let ends = plan.phases.iter().scan(begin, |end, (_, span)| {
            *end += *span;
            Some(*end)
        });
        Ok(Generator {
            plan,
            connections,
            waiting: BinaryHeap::new(),
            poll,
            begin,
            ends: ends.collect(),
            groups: vec![Group::default(); groups],
            last_refusal: Duration::ZERO,
            halves: Vec::new(),
            idle: Duration::ZERO,
        })
    }

    fn run(&mut self) -> Result<()> {
        for index in 0..self.connections.len() {
            self.connections[index].due = self.begin;
            self.schedule(index, true);
        }
        let last = self.ends.last().copied().unwrap_or(self.begin) + PATIENCE;
        let mut events = Vec::with_capacity(256);
        let mut in_flight_count = 0;
        loop {
            let now = Instant::now();
            while self.waiting.peek().is_some_and(|Reverse((due, _))| *due <= now) {
                let Some(Reverse((_, index))) = self.waiting.pop() else { break };
                if now > self.ends[self.connections[index].phase] + PATIENCE {
                    // The phase of this request has ended too long ago to send it.
                    self.finish(index, Err(ErrorKind::TimedOut.into()));
                    continue;
                }
                match self.connections[index].send() {
                    Ok(()) => in_flight_count += 1,
                    Err(error) => self.finish(index, Err(error)),
                }
            }
            if self.waiting.is_empty() && in_flight_count == 0 {
                return Ok(());
            }
            self.poll_events(self.waiting.peek().map_or(last, |Reverse((due, _))| (*due).min(last)), &mut events)?;
            for event in events.drain(..) {
                let index = event.data.u64() as usize;
                let in_flight = self.connections[index].in_flight;
                match self.connections[index].receive() {
                    Ok(None) => continue,
                    Ok(Some(status)) => self.finish(index, Ok(status)),
                    Err(error) => self.finish(index, Err(error)),
                }
                in_flight_count -= usize::from(in_flight);
            }
            if Instant::now() >= last {
                for index in 0..self.connections.len() {
                    if self.connections[index].in_flight {
                        in_flight_count -= 1;
                        self.finish(index, Err(ErrorKind::TimedOut.into()));
                    }
                }
            }
        }
    }

    /// Polls for responses; sleeps if nothing is due before `until`.
    fn poll_events(&mut self, until: Instant, events: &mut Vec<epoll::Event>) -> Result<()> {
        let start = Instant::now();
        let sleep = until.saturating_duration_since(start).saturating_sub(NEAR);
        match epoll::wait(&self.poll, spare_capacity(events), Some(&sleep.try_into()?)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // A poll that found nothing counts as idle time.
        if !sleep.is_zero() || events.is_empty() {
            self.idle += start.elapsed();
        }
        Ok(())
    }

    /// Records the end of a request and schedules the next one.
    fn finish(&mut self, index: usize, outcome: std::io::Result<u16>) {
        let connection = &mut self.connections[index];
        connection.in_flight = false;
        connection.answer.clear();
        let (group, due, failed) = (connection.group, connection.due, outcome.is_err());
        self.record(group, due, &outcome);
        if failed {
            match connect(self.plan.address, &self.poll, index, PATIENCE / 10) {
                Ok(fresh) => self.connections[index].stream = fresh,
                Err(_) => return,
            }
        }
        self.schedule(index, false);
    }

    /// Schedules the connection's next request, possibly at once.
    fn schedule(&mut self, index: usize, first: bool) {
        let count = self.plan.connections as f64;
        let connection = &mut self.connections[index];
        let mut phase_begins = first;
        while let Some((demand, _)) = self.plan.phases.get(connection.phase) {
            match demand {
                Demand::Rate(rate) => {
                    let gap = count / rate;
                    let gap = if phase_begins { gap * connection.random.unit() } else { gap };
                    connection.due += Duration::from_secs_f64(gap);
                }
                Demand::Closed => connection.due = connection.due.max(Instant::now()),
            }
            if connection.due < self.ends[connection.phase] {
                self.waiting.push(Reverse((connection.due, index)));
                return;
            }
            connection.due = self.ends[connection.phase];
            connection.phase += 1;
            phase_begins = true;
        }
    }

    fn record(&mut self, group: usize, due: Instant, outcome: &std::io::Result<u16>) {
        let (latency, due) = (due.elapsed(), due - self.begin);
        let refused = matches!(outcome, Ok(status) if *status != 200);
        if refused {
            self.last_refusal = self.last_refusal.max(due);
        }
        if matches!(outcome, Ok(200)) && latency <= self.plan.objective {
            let half = (due.as_millis() / 500) as usize;
            if self.halves.len() <= half {
                self.halves.resize(half + 1, 0);
            }
            self.halves[half] += 1;
        }
        if due < self.plan.warmup {
            return;
        }
        let group = &mut self.groups[group];
        group.due += 1;
        match outcome {
            Err(_) => group.failed += 1,
            Ok(_) if refused => group.refused += 1,
            Ok(_) => {
                group.answered += 1;
                group.in_time += u64::from(latency <= self.plan.objective);
                group.latency.saturating_record(latency.as_micros() as u64);
            }
        }
    }
}

/// Opens a connection whose events have the data `index`.
fn connect(address: SocketAddr, poll: &OwnedFd, index: usize, patience: Duration) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    epoll::add(poll, &stream, EventData::new_u64(index as u64), EventFlags::IN)?;
    Ok(stream)
}

impl Connection {
    /// Sends the whole request: it is far smaller than the socket's empty buffer.
    fn send(&mut self) -> std::io::Result<()> {
        self.stream.write_all(&self.request)?;
        self.in_flight = true;
        Ok(())
    }

    /// Reads available bytes; returns the status once the response is complete.
    fn receive(&mut self) -> std::io::Result<Option<u16>> {
        let mut bytes = [0; 4_096];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) if self.in_flight => {
                self.answer.extend_from_slice(&bytes[..read]);
                parse_status(&self.answer)
            }
            Ok(_) => Err(ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns the status once the response is complete.
fn parse_status(bytes: &[u8]) -> std::io::Result<Option<u16>> {
    let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..head]).map_err(|_| std::io::ErrorKind::InvalidData)?;
    let status = text.get(9..12).and_then(|digits| digits.parse().ok()).ok_or(std::io::ErrorKind::InvalidData)?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    Ok((bytes.len() >= head + 4 + length.unwrap_or(0)).then_some(status))
}

/// A seeded random generator (xorshift64*).
struct Random(u64);

impl Random {
    /// Returns a number from 0 to 1.
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
    fn a_response_is_complete_with_its_last_byte() {
        let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno";
        for cut in 0..answer.len() {
            assert_eq!(parse_status(&answer[..cut]).unwrap(), None, "{cut}");
        }
        assert_eq!(parse_status(answer).unwrap(), Some(503));
        assert!(parse_status(b"gibberish\r\n\r\n").is_err());
    }
}
