//! The loads over datagrams: a socket for each client, a request under way on each, as `closed` and `round_trip` do it over
//! streams.

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
use super::speak::Speak;
use super::{Edge, Times};

const EVENTS_MAX: usize = 256;
/// A server that says nothing for so long has a defect.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often time-outs are looked for.
const TIMERS: Duration = Duration::from_millis(1);
/// Longer than any datagram.
const BUFFER: usize = 2048;

/// A client's socket.
pub(crate) enum Wire {
    /// Datagrams as they are.
    Bare(UdpSocket),
    /// A session.
    Leeward(Box<DatagramStream>),
}

/// The clock of all sessions.
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
        // No stranger is near who could guess it.
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
    speaker: S,
}

impl<S: Speak> Link<S> {
    fn open(mut wire: Wire, mut speaker: S, clock: Clock) -> Result<Self> {
        let (mut out, mut buffer, begun) = (Vec::new(), [0; BUFFER], Instant::now());
        speaker.greet(&mut out);
        // Without a greeting there is nothing to send: over a bare socket it would be an empty datagram, and echoed.
        if !out.is_empty() {
            wire.write(clock, &out).context("greeting")?;
        }
        while !speaker.is_open() {
            ensure!(begun.elapsed() < PATIENCE, "no welcome");
            wire.on_timer(clock);
            match wire.read(clock, &mut buffer) {
                Ok(count) => _ = speaker.take(&buffer[..count], &mut out)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("no welcome"),
            }
        }
        Ok(Link { wire, speaker })
    }

    fn ask(&mut self, clock: Clock, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        self.speaker.ask(out);
        self.wire.write(clock, out).context("sending")
    }

    /// Reads once; how many answers there were.
    fn ready(&mut self, clock: Clock, buffer: &mut [u8], out: &mut Vec<u8>) -> Result<u32> {
        let count = match self.wire.read(clock, buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error).context("receiving"),
        };
        ensure!(count > 0, "the server ended a session");
        Ok(self.speaker.take(&buffer[..count], out)?.answers)
    }
}

/// As [`super::closed::run`], with one request under way for each client.
///
/// # Errors
/// A session can't be opened, ends, or carries what is no answer.
pub(crate) fn closed<S: Speak>(
    mut speaker: impl FnMut() -> S,
    mut wire: impl FnMut(u64, Clock) -> Result<Wire>,
    plan: &Plan,
    edge: Edge<'_>,
) -> Result<Closed> {
    let clock = Clock::start();
    let epoll = epoll::create(CreateFlags::CLOEXEC).context("epoll")?;
    let (mut links, mut out) = (Vec::new(), Vec::new());
    for number in 0..u64::from(plan.connections) {
        let link = Link::open(wire(number, clock)?, speaker(), clock)?;
        epoll::add(&epoll, &link.wire, EventData::new_u64(number), EventFlags::IN)?;
        links.push(link);
    }
    for link in &mut links {
        link.ask(clock, &mut out)?;
    }
    let mut turns = |time: Duration| -> Result<Closed> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_MAX);
        let mut buffer = [0; BUFFER];
        let begun = Instant::now();
        let (mut before, mut heard, mut timers) = (begun, begun, begun);
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
                    link.ask(clock, &mut out)?;
                }
                answers += u64::from(came);
            }
            let after = Instant::now();
            if events.is_empty() {
                idle += after - before;
                ensure!(after - heard < PATIENCE, "no answers");
            } else {
                heard = after;
            }
            before = after;
            if after - timers >= TIMERS {
                timers = after;
                links.iter_mut().for_each(|link| link.wire.on_timer(clock));
            }
            let span = after - begun;
            if span >= time {
                let seconds = span.as_secs_f64();
                return Ok(Closed { rate_per_s: answers as f64 / seconds, idle: idle.as_secs_f64() / seconds });
            }
        }
    };
    turns(plan.times.warmup)?;
    edge()?;
    let measured = turns(plan.times.measured)?;
    edge()?;
    Ok(measured)
}

/// As [`super::round_trip::run`].
///
/// # Errors
/// The server does not answer as it should.
pub(crate) fn round_trips<S: Speak>(
    speaker: S,
    wire: impl FnOnce(u64, Clock) -> Result<Wire>,
    times: Times,
    edge: Edge<'_>,
) -> Result<Histogram<u64>> {
    let clock = Clock::start();
    let mut link = Link::open(wire(0, clock)?, speaker, clock)?;
    let (mut out, mut buffer) = (Vec::new(), [0; BUFFER]);
    super::round_trip::trips(times, edge, |asked| {
        link.ask(clock, &mut out)?;
        while link.ready(clock, &mut buffer, &mut out)? == 0 {
            link.wire.on_timer(clock);
            ensure!(asked.elapsed() < PATIENCE, "no answer");
        }
        Ok(())
    })
}
