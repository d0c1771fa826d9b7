//! One connection of the load: opens without blocking, and carries one request at a time.

use crate::answer::{Answer, parse};
use anyhow::Result;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

/// A request that waits for its response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Time at which it was due.
    pub(crate) due: Instant,
    /// Index of its kind in the plan.
    pub(crate) kind: usize,
}

pub(crate) struct Connection {
    stream: TcpStream,
    /// Set until the connection is open; its request is sent then.
    is_opening: bool,
    pub(crate) request: Option<Request>,
    /// Responses so far: where it was not the first, a server may have closed it meanwhile.
    pub(crate) answered: u64,
    /// Time of the response's first byte.
    pub(crate) first: Option<Instant>,
    bytes: Vec<u8>,
}

impl Connection {
    /// Begins to open a connection whose events have the data `token`.
    pub(crate) fn open(address: SocketAddr, poll: &OwnedFd, token: u64) -> Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        epoll::add(poll, &socket, EventData::new_u64(token), EventFlags::OUT)?;
        let stream = TcpStream::from(socket);
        Ok(Connection {
            stream,
            is_opening: true,
            request: None,
            answered: 0,
            first: None,
            bytes: Vec::with_capacity(1_024),
        })
    }

    /// Sends a request, or keeps it until the connection is open.
    pub(crate) fn send(&mut self, request: Request, text: &[u8]) -> std::io::Result<()> {
        self.request = Some(request);
        self.first = None;
        if self.is_opening { Ok(()) } else { self.stream.write_all(text) }
    }

    /// Takes up an event: sends what has waited for the connection, or reads. Returns a response
    /// once it is complete.
    pub(crate) fn ready(
        &mut self,
        poll: &OwnedFd,
        token: u64,
        text: impl Fn(usize) -> Vec<u8>,
    ) -> std::io::Result<Option<Answer>> {
        if self.is_opening {
            sockopt::socket_error(self.stream.as_fd())??;
            self.is_opening = false;
            epoll::modify(poll, &self.stream, EventData::new_u64(token), EventFlags::IN)?;
            if let Some(request) = self.request {
                self.stream.write_all(&text(request.kind))?;
            }
            return Ok(None);
        }
        let mut bytes = [0; 4_096];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) if self.request.is_some() => {
                self.first = self.first.or_else(|| Some(Instant::now()));
                self.bytes.extend_from_slice(&bytes[..read]);
                let answer = parse(&self.bytes).map_err(|()| ErrorKind::InvalidData)?;
                if answer.is_some() {
                    self.bytes.clear();
                    self.answered += 1;
                }
                Ok(answer)
            }
            Ok(_) => Err(ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the request can go out again: an old connection has ended without a byte of a
    /// response, as it does where a server closes what has been idle.
    pub(crate) fn can_repeat(&self) -> bool {
        self.answered > 0 && self.bytes.is_empty()
    }
}
