//! A closed loop over many connections on one thread.
//!
//! Per ready socket it makes one read, parses the responses, and writes as many new requests at
//! once. It never sleeps: the share of polls that find nothing shows whether the server or the load
//! is the limit.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;

use super::speak::Protocol;
use super::{PhaseHook, Times};

/// Events per poll.
const EVENTS_MAX: usize = 256;
/// Time without a response after which the server counts as defective.
const PATIENCE: Duration = Duration::from_secs(10);

/// Settings of a closed loop.
pub(crate) struct Plan {
    pub(crate) address: SocketAddr,
    pub(crate) connections: u32,
    pub(crate) outstanding: u32,
    pub(crate) times: Times,
}

/// Result of the measured phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    /// Responses per second.
    pub(crate) rate_per_s: f64,
    /// Share of the time in which polls found nothing; near 0, the load may be the limit.
    pub(crate) idle: f64,
}

/// Runs `plan` with one client protocol instance per connection.
///
/// # Errors
/// A connection can't be made, ends, or carries an invalid response.
pub(crate) fn run<S: Protocol>(protocol: impl FnMut() -> S, plan: &Plan, hook: PhaseHook<'_>) -> Result<Closed> {
    let mut client = Client::connect(protocol, plan)?;
    client.warm_up(plan)?;
    hook()?;
    let measured = client.run_for(plan.times.measured)?;
    hook()?;
    Ok(measured)
}

struct Link<S> {
    socket: TcpStream,
    protocol: S,
    /// Received bytes of an incomplete message.
    partial: Vec<u8>,
    /// Bytes that the socket did not accept; almost always empty.
    unsent: Vec<u8>,
}

struct Client<S> {
    epoll: OwnedFd,
    links: Vec<Link<S>>,
    events: Vec<epoll::Event>,
    buffer: Vec<u8>,
    out: Vec<u8>,
}

impl<S: Protocol> Client<S> {
    /// Opens all connections, each handshake before the next, so that no server must accept 1,000
    /// at once.
    fn connect(mut protocol: impl FnMut() -> S, plan: &Plan) -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).context("epoll")?;
        let mut links = Vec::new();
        let mut out = Vec::new();
        let mut buffer = vec![0; 256 * 1024];
        for number in 0..plan.connections {
            let mut socket = TcpStream::connect(plan.address).with_context(|| format!("connection {number}"))?;
            socket.set_nodelay(true)?;
            let mut protocol = protocol();
            let mut partial = Vec::new();
            out.clear();
            protocol.append_opening(&mut out);
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.write_all(&out).context("greeting")?;
            while !protocol.is_open() {
                let count = socket.read(&mut buffer).context("no welcome")?;
                ensure!(count > 0, "the server closed the connection");
                partial.extend_from_slice(&buffer[..count]);
                out.clear();
                let parsed = protocol.parse(&partial, &mut out)?;
                partial.drain(..parsed.bytes);
                socket.write_all(&out).context("greeting")?;
            }
            socket.set_nonblocking(true)?;
            epoll::add(&epoll, &socket, EventData::new_u64(number.into()), EventFlags::IN)?;
            links.push(Link { socket, protocol, partial, unsent: Vec::new() });
        }
        Ok(Client { epoll, links, events: Vec::with_capacity(EVENTS_MAX), buffer, out })
    }

    /// Sends the first requests of all connections and runs the loop for the warm-up.
    fn warm_up(&mut self, plan: &Plan) -> Result<()> {
        for (number, link) in self.links.iter_mut().enumerate() {
            self.out.clear();
            (0..plan.outstanding).for_each(|_| link.protocol.append_request(&mut self.out));
            link.send(&self.out, &self.epoll, number as u64)?;
        }
        self.run_for(plan.times.warmup).map(|_| ())
    }

    /// Runs the loop for `time`.
    fn run_for(&mut self, time: Duration) -> Result<Closed> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let start = Instant::now();
        let (mut before, mut last_progress) = (start, start);
        let (mut idle, mut answers) = (Duration::ZERO, 0u64);
        loop {
            self.events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&now)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("waiting for sockets"),
            }
            let is_idle = self.events.is_empty();
            for event in &self.events {
                let number = event.data.u64();
                let link = &mut self.links[number as usize];
                answers += u64::from(link.ready(&self.epoll, number, &mut self.buffer, &mut self.out)?);
            }
            let after = Instant::now();
            if is_idle {
                idle += after - before;
                ensure!(after - last_progress < PATIENCE, "no answers");
            } else {
                last_progress = after;
            }
            before = after;
            let span = after - start;
            if span >= time {
                let seconds = span.as_secs_f64();
                return Ok(Closed { rate_per_s: answers as f64 / seconds, idle: idle.as_secs_f64() / seconds });
            }
        }
    }
}

impl<S: Protocol> Link<S> {
    /// Reads once and sends a new request for each response; returns the number of responses.
    fn ready(&mut self, epoll: &OwnedFd, number: u64, buffer: &mut [u8], out: &mut Vec<u8>) -> Result<u32> {
        if !self.unsent.is_empty() {
            let unsent = std::mem::take(&mut self.unsent);
            self.send(&unsent, epoll, number)?;
            if self.unsent.is_empty() {
                epoll::modify(epoll, &self.socket, EventData::new_u64(number), EventFlags::IN)?;
            }
        }
        let count = match self.socket.read(buffer) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(0),
            Err(error) => return Err(error).context("receiving"),
        };
        out.clear();
        let answers = if self.partial.is_empty() {
            let parsed = self.protocol.parse(&buffer[..count], out)?;
            self.partial.extend_from_slice(&buffer[parsed.bytes..count]);
            parsed.answers
        } else {
            self.partial.extend_from_slice(&buffer[..count]);
            let parsed = self.protocol.parse(&self.partial, out)?;
            self.partial.drain(..parsed.bytes);
            parsed.answers
        };
        (0..answers).for_each(|_| self.protocol.append_request(out));
        self.send(out, epoll, number)?;
        Ok(answers)
    }

    /// Sends as much as the socket accepts and keeps the rest.
    ///
    /// The rest is bounded, because each new request needs a response.
    fn send(&mut self, bytes: &[u8], epoll: &OwnedFd, number: u64) -> Result<()> {
        let mut sent = 0;
        while self.unsent.is_empty() && sent < bytes.len() {
            match self.socket.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("sending"),
            }
        }
        if sent < bytes.len() {
            self.unsent.extend_from_slice(&bytes[sent..]);
            epoll::modify(epoll, &self.socket, EventData::new_u64(number), EventFlags::IN | EventFlags::OUT)?;
        }
        Ok(())
    }
}
