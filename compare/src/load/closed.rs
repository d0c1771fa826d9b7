//! A closed loop over many connections on one thread: per ready socket one read, a look at what came, one write of as many
//! new requests. Never sleeps; how often it finds nothing to do tells whether the server or the load is the limit.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;

use super::speak::Speak;
use super::{Edge, Times};

/// Sockets per call to the kernel.
const EVENTS_MAX: usize = 256;
/// A server that says nothing for so long has a defect.
const PATIENCE: Duration = Duration::from_secs(10);

/// Plan of a closed loop.
pub(crate) struct Plan {
    pub(crate) address: SocketAddr,
    pub(crate) connections: u32,
    pub(crate) outstanding: u32,
    pub(crate) times: Times,
}

/// Result of the measured time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    /// Answers per second.
    pub(crate) rate_per_s: f64,
    /// Share of the time in which the load had nothing to do but look: 0 means that it may be the limit.
    pub(crate) idle: f64,
}

/// Runs `plan` with a speaker for each connection.
///
/// # Errors
/// A connection can't be made, ends, or carries what is no answer.
pub(crate) fn run<S: Speak>(speaker: impl FnMut() -> S, plan: &Plan, edge: Edge<'_>) -> Result<Closed> {
    let mut client = Client::connect(speaker, plan)?;
    client.warm_up(plan)?;
    edge()?;
    let measured = client.turns(plan.times.measured)?;
    edge()?;
    Ok(measured)
}

struct Link<S> {
    socket: TcpStream,
    speaker: S,
    /// The beginning of a message.
    begun: Vec<u8>,
    /// Bytes that the server has no room for; empty nearly always.
    unsent: Vec<u8>,
}

struct Client<S> {
    epoll: OwnedFd,
    links: Vec<Link<S>>,
    events: Vec<epoll::Event>,
    buffer: Vec<u8>,
    out: Vec<u8>,
}

impl<S: Speak> Client<S> {
    /// Opens all connections; each is greeted before the next, so that no server has to take a thousand at once.
    fn connect(mut speaker: impl FnMut() -> S, plan: &Plan) -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).context("epoll")?;
        let mut links = Vec::new();
        let mut out = Vec::new();
        let mut buffer = vec![0; 256 * 1024];
        for number in 0..plan.connections {
            let mut socket = TcpStream::connect(plan.address).with_context(|| format!("connection {number}"))?;
            socket.set_nodelay(true)?;
            let mut speaker = speaker();
            let mut begun = Vec::new();
            out.clear();
            speaker.greet(&mut out);
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.write_all(&out).context("greeting")?;
            while !speaker.is_open() {
                let count = socket.read(&mut buffer).context("no welcome")?;
                ensure!(count > 0, "the server closed the connection");
                begun.extend_from_slice(&buffer[..count]);
                out.clear();
                let taken = speaker.take(&begun, &mut out)?;
                begun.drain(..taken.bytes);
                socket.write_all(&out).context("greeting")?;
            }
            socket.set_nonblocking(true)?;
            epoll::add(&epoll, &socket, EventData::new_u64(number.into()), EventFlags::IN)?;
            links.push(Link { socket, speaker, begun, unsent: Vec::new() });
        }
        Ok(Client { epoll, links, events: Vec::with_capacity(EVENTS_MAX), buffer, out })
    }

    /// Sends everybody's first requests and lets the loop turn for a while.
    fn warm_up(&mut self, plan: &Plan) -> Result<()> {
        for (number, link) in self.links.iter_mut().enumerate() {
            self.out.clear();
            (0..plan.outstanding).for_each(|_| link.speaker.ask(&mut self.out));
            link.send(&self.out, &self.epoll, number as u64)?;
        }
        self.turns(plan.times.warmup).map(|_| ())
    }

    /// Turns for `time`.
    fn turns(&mut self, time: Duration) -> Result<Closed> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let begun = Instant::now();
        let (mut before, mut heard) = (begun, begun);
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
                ensure!(after - heard < PATIENCE, "no answers");
            } else {
                heard = after;
            }
            before = after;
            let span = after - begun;
            if span >= time {
                let seconds = span.as_secs_f64();
                return Ok(Closed { rate_per_s: answers as f64 / seconds, idle: idle.as_secs_f64() / seconds });
            }
        }
    }
}

impl<S: Speak> Link<S> {
    /// Reads once, asks again for each answer; says how many answers there were.
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
        let answers = if self.begun.is_empty() {
            let taken = self.speaker.take(&buffer[..count], out)?;
            self.begun.extend_from_slice(&buffer[taken.bytes..count]);
            taken.answers
        } else {
            self.begun.extend_from_slice(&buffer[..count]);
            let taken = self.speaker.take(&self.begun, out)?;
            self.begun.drain(..taken.bytes);
            taken.answers
        };
        (0..answers).for_each(|_| self.speaker.ask(out));
        self.send(out, epoll, number)?;
        Ok(answers)
    }

    /// Sends what the socket takes and keeps the rest: bounded, because nothing is asked without an answer.
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
