//! The loads over datagrams: one socket per client, each with one request in flight.
//!
//! `closed` and `round_trip` do the same over streams.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use leeward_core::units::Time;
use leeward_rpc::client::{DatagramSize, DatagramStream};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;

use super::closed::{Closed, Plan};
use super::speak::Protocol;
use super::{PhaseHook, Times};

const EVENTS_MAX: usize = 256;
/// Time without a response after which the server counts as defective.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval between checks for time-outs.
const TIMERS: Duration = Duration::from_millis(1);
/// Size of the receive buffer in bytes, longer than any datagram.
const BUFFER: usize = 2048;

/// A client's socket.
pub(crate) enum Wire {
    /// Plain datagrams.
    Bare(UdpSocket),
    /// A session of Leeward's datagram transport.
    Leeward(Box<DatagramStream>),
}

/// The clock that all sessions share.
#[derive(Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Clock(Instant::now())
    }

    fn now(self) -> Time {
        Time(1 + self.0.elapsed().as_nanos() as u64)
    }
}

impl Wire {
    pub(crate) fn bare(address: SocketAddr) -> Result<Self> {
        let socket = UdpSocket::bind(super::super::servers::ANY).context("binding")?;
        socket.connect(address).context("connecting")?;
        socket.set_nonblocking(true)?;
        Ok(Wire::Bare(socket))
    }

    pub(crate) fn leeward(address: SocketAddr, number: u64, clock: Clock) -> Result<Self> {
        // On the loopback interface no attacker could guess the nonce.
        let nonce = (number + 1) << 20 | u64::from(std::process::id());
        Ok(Wire::Leeward(Box::new(DatagramStream::connect(address, nonce, DatagramSize::DEFAULT, clock.now())?)))
    }

    fn read(&mut self, clock: Clock, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Bare(socket) => socket.recv(buffer),
            Wire::Leeward(stream) => stream.read(|| clock.now(), buffer),
        }
    }

    fn write(&mut self, clock: Clock, bytes: &[u8]) -> io::Result<()> {
        match self {
            Wire::Bare(socket) => socket.send(bytes).map(|_| ()),
            Wire::Leeward(stream) => {
                let mut rest = bytes;
                while !rest.is_empty() {
                    rest = &rest[stream.write(clock.now(), rest)?..];
                }
                Ok(())
            }
        }
    }

    fn on_timer(&mut self, clock: Clock) {
        if let Wire::Leeward(stream) = self
            && stream.next_timeout() <= clock.now()
        {
            stream.on_timer(clock.now());
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Wire::Bare(socket) => socket.as_fd(),
            Wire::Leeward(stream) => stream.as_fd(),
        }
    }
}

struct Link<S> {
    wire: Wire,
    protocol: S,
}

impl<S: Protocol> Link<S> {
    fn open(mut wire: Wire, mut protocol: S, clock: Clock) -> Result<Self> {
        let (mut out, mut buffer, start) = (Vec::new(), [0; BUFFER], Instant::now());
        protocol.append_opening(&mut out);
        // A bare socket needs no greeting: it would send an empty datagram, which would be echoed.
        if !out.is_empty() {
            wire.write(clock, &out).context("greeting")?;
        }
        while !protocol.is_open() {
            ensure!(start.elapsed() < PATIENCE, "no welcome");
            wire.on_timer(clock);
            match wire.read(clock, &mut buffer) {
                Ok(count) => _ = protocol.parse(&buffer[..count], &mut out)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("no welcome"),
            }
        }
        Ok(Link { wire, protocol })
    }

    fn send_request(&mut self, clock: Clock, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        self.protocol.append_request(out);
        self.wire.write(clock, out).context("sending")
    }

    /// Reads once; returns the number of responses.
    fn ready(&mut self, clock: Clock, buffer: &mut [u8], out: &mut Vec<u8>) -> Result<u32> {
        let count = match self.wire.read(clock, buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error).context("receiving"),
        };
        ensure!(count > 0, "the server ended a session");
        Ok(self.protocol.parse(&buffer[..count], out)?.answers)
    }
}

/// Like [`super::closed::run`], with one request in flight per client.
///
/// # Errors
/// A session can't be opened, ends, or carries an invalid response.
pub(crate) fn closed<S: Protocol>(
    mut protocol: impl FnMut() -> S,
    mut wire: impl FnMut(u64, Clock) -> Result<Wire>,
    plan: &Plan,
    hook: PhaseHook<'_>,
) -> Result<Closed> {
    let clock = Clock::start();
    let epoll = epoll::create(CreateFlags::CLOEXEC).context("epoll")?;
    let (mut links, mut out) = (Vec::new(), Vec::new());
    for number in 0..u64::from(plan.connections) {
        let link = Link::open(wire(number, clock)?, protocol(), clock)?;
        epoll::add(&epoll, &link.wire, EventData::new_u64(number), EventFlags::IN)?;
        links.push(link);
    }
    for link in &mut links {
        link.send_request(clock, &mut out)?;
    }
    let mut run_for = |time: Duration| -> Result<Closed> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_MAX);
        let mut buffer = [0; BUFFER];
        let start = Instant::now();
        let (mut before, mut last_progress, mut timers) = (start, start, start);
        let (mut idle, mut answers) = (Duration::ZERO, 0_u64);
        loop {
            events.clear();
            match epoll::wait(&epoll, spare_capacity(&mut events), Some(&now)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("waiting for sockets"),
            }
            for event in &events {
                let link = &mut links[event.data.u64() as usize];
                let came = link.ready(clock, &mut buffer, &mut out)?;
                for _ in 0..came {
                    link.send_request(clock, &mut out)?;
                }
                answers += u64::from(came);
            }
            let after = Instant::now();
            if events.is_empty() {
                idle += after - before;
                ensure!(after - last_progress < PATIENCE, "no answers");
            } else {
                last_progress = after;
            }
            before = after;
            if after - timers >= TIMERS {
                timers = after;
                links.iter_mut().for_each(|link| link.wire.on_timer(clock));
            }
            let span = after - start;
            if span >= time {
                let seconds = span.as_secs_f64();
                return Ok(Closed { rate_per_s: answers as f64 / seconds, idle: idle.as_secs_f64() / seconds });
            }
        }
    };
    run_for(plan.times.warmup)?;
    hook()?;
    let measured = run_for(plan.times.measured)?;
    hook()?;
    Ok(measured)
}

/// Like [`super::round_trip::run`].
///
/// # Errors
/// The server does not follow its protocol.
pub(crate) fn round_trips<S: Protocol>(
    protocol: S,
    wire: impl FnOnce(u64, Clock) -> Result<Wire>,
    times: Times,
    hook: PhaseHook<'_>,
) -> Result<Histogram<u64>> {
    let clock = Clock::start();
    let mut link = Link::open(wire(0, clock)?, protocol, clock)?;
    let (mut out, mut buffer) = (Vec::new(), [0; BUFFER]);
    super::round_trip::trips(times, hook, |sent_at| {
        link.send_request(clock, &mut out)?;
        while link.ready(clock, &mut buffer, &mut out)? == 0 {
            link.wire.on_timer(clock);
            ensure!(sent_at.elapsed() < PATIENCE, "no answer");
        }
        Ok(())
    })
}
