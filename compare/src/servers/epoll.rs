//! A bare epoll echo: a server without protocol, queues, timestamps and control.
//!
//! Per ready socket it makes one read, checks the lengths, and writes all whole messages at once.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;

use super::{Idling, bare};

/// Events per poll.
const EVENTS_MAX: usize = 256;
/// Epoll data of the listener; sockets have their index.
const LISTENER: u64 = u64::MAX;

/// A socket with its unfinished input and output, both almost always empty.
struct Connection {
    stream: TcpStream,
    /// Received bytes of an incomplete message.
    partial: Vec<u8>,
    /// Whole messages that the socket did not accept. While there are any, the connection is not
    /// read.
    unsent: Vec<u8>,
}

/// Serves until the process ends.
///
/// # Errors
/// epoll can't be used.
pub(crate) fn serve(listener: TcpListener, idle: Idling, work: Duration) -> Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC).context("epoll")?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let timeout = (idle == Idling::Spin).then_some(&now);
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_MAX);
    loop {
        events.clear();
        match epoll::wait(&epoll, spare_capacity(&mut events), timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for sockets"),
        }
        for event in &events {
            let mark = event.data.u64();
            if mark == LISTENER {
                accept(&epoll, &listener, &mut connections);
                continue;
            }
            let slot = &mut connections[mark as usize];
            if slot.as_mut().is_some_and(|connection| !connection.ready(&epoll, mark, &mut buffer, work)) {
                // Closing the socket removes it from the epoll set.
                *slot = None;
            }
        }
    }
}

fn accept(epoll: &OwnedFd, listener: &TcpListener, connections: &mut Vec<Option<Connection>>) {
    while let Ok((stream, _)) = listener.accept() {
        let prepared = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true));
        let number = connections.iter().position(Option::is_none).unwrap_or(connections.len());
        let mark = EventData::new_u64(number as u64);
        if prepared.is_err() || epoll::add(epoll, &stream, mark, EventFlags::IN).is_err() {
            continue;
        }
        let connection = Some(Connection { stream, partial: Vec::new(), unsent: Vec::new() });
        match connections.get_mut(number) {
            Some(free) => *free = connection,
            None => connections.push(connection),
        }
    }
}

impl Connection {
    /// Handles a ready socket; returns false if the connection has ended.
    fn ready(&mut self, epoll: &OwnedFd, mark: u64, buffer: &mut [u8], work: Duration) -> bool {
        if !self.unsent.is_empty() {
            let unsent = std::mem::take(&mut self.unsent);
            return self.send(&unsent, epoll, mark, Watching::Room);
        }
        let count = match self.stream.read(buffer) {
            Ok(0) => return false,
            Ok(count) => count,
            Err(error) => return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        };
        if self.partial.is_empty() {
            let Some(whole) = bare::whole(&buffer[..count]) else { return false };
            self.partial.extend_from_slice(&buffer[whole..count]);
            bare::work_on(&buffer[..whole], work);
            self.send(&buffer[..whole], epoll, mark, Watching::Input)
        } else {
            self.partial.extend_from_slice(&buffer[..count]);
            let Some(whole) = bare::whole(&self.partial) else { return false };
            let rest = self.partial.split_off(whole);
            let messages = std::mem::replace(&mut self.partial, rest);
            bare::work_on(&messages, work);
            self.send(&messages, epoll, mark, Watching::Input)
        }
    }

    /// Sends as much as the socket accepts, keeps the rest and updates the awaited readiness.
    fn send(&mut self, messages: &[u8], epoll: &OwnedFd, mark: u64, watching: Watching) -> bool {
        let mut sent = 0;
        while sent < messages.len() {
            match self.stream.write(&messages[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        self.unsent.extend_from_slice(&messages[sent..]);
        let (needed, flags) = match self.unsent.is_empty() {
            true => (Watching::Input, EventFlags::IN),
            false => (Watching::Room, EventFlags::OUT),
        };
        needed == watching || epoll::modify(epoll, &self.stream, EventData::new_u64(mark), flags).is_ok()
    }
}

/// Readiness that a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watching {
    Input,
    Room,
}
