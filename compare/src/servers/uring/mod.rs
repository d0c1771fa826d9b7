//! A bare echo on io_uring: what `epoll` does, with as few calls to the kernel as io_uring allows. One receive per
//! connection that stays armed and takes buffers from a ring, sends straight from these buffers, as many as there are in one
//! call; completions run when this thread asks for them. While there is nothing to do it looks at shared memory only.
//!
//! The only unsafe code of this program: the kernel reads and writes memory behind the compiler's back.

mod buffers;
mod connection;

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result};
use io_uring::cqueue::{self, buffer_select, more};
use io_uring::types::{Fd, Fixed, RecvMsgOut};
use io_uring::{IoUring, opcode, squeue};
use nix::libc;
use rustix::net::{Shutdown, shutdown};

use self::buffers::{Buffers, GROUP};
use self::connection::{Connection, Source};
use super::stamps::{self, CONTROL};
use super::{Extras, Idling, bare};

/// Requests to the kernel per call, at most.
const SUBMISSIONS: u32 = 1 << 10;
/// Completions that fit; the kernel keeps more than that elsewhere.
const COMPLETIONS: u32 = 1 << 13;
/// Sockets, at most.
const CONNECTIONS: u32 = 1 << 12;

/// Meaning of a completion: `kind`, buffer and connection in one word.
const RECEIVED: u64 = 0;
const SENT: u64 = 1;
const LISTENING: u64 = 2;

/// Why there can be no such server here: the kernel is too old (before 6.1) or forbids io_uring.
///
/// # Errors
/// The reason.
pub(crate) fn probe() -> Result<(), String> {
    let tried = ring().and_then(|ring| {
        ring.submitter().register_files_sparse(1)?;
        Buffers::register(&ring.submitter()).map(drop)
    });
    tried.map_err(|error| format!("no io_uring as needed: {error}"))
}

fn ring() -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_cqsize(COMPLETIONS)
        .build(SUBMISSIONS)
}

/// Serves for ever.
///
/// # Errors
/// The kernel has no io_uring as needed, or stops serving.
pub(crate) fn serve(listener: &TcpListener, idle: Idling, extras: Extras) -> Result<()> {
    listener.set_nonblocking(true)?;
    let ring = ring().context("io_uring")?;
    ring.submitter().register_files_sparse(CONNECTIONS).context("a table of sockets")?;
    let buffers = Buffers::register(&ring.submitter()).context("a ring of buffers")?;
    // SAFETY: all zeros is an empty message header.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_controllen = CONTROL;
    let mut server = Server { ring, buffers, header: Box::leak(Box::new(header)), connections: Vec::new(), extras };
    server.watch(listener)?;
    let mut completions: Vec<cqueue::Entry> = Vec::with_capacity(COMPLETIONS as usize);
    loop {
        server.enter(idle)?;
        completions.extend(server.ring.completion());
        for completion in completions.drain(..) {
            let (kind, buffer, number) = parts(completion.user_data());
            match kind {
                RECEIVED => server.received(number, completion.result(), completion.flags())?,
                SENT => server.sent(number, buffer, completion.result())?,
                _ => {
                    server.accept(listener)?;
                    if !more(completion.flags()) {
                        server.watch(listener)?;
                    }
                }
            }
        }
    }
}

struct Server {
    ring: IoUring,
    buffers: Buffers,
    /// How much room for control messages each receive shall leave; for ever, as the kernel reads it.
    header: &'static libc::msghdr,
    connections: Vec<Option<Connection>>,
    extras: Extras,
}

fn mark(kind: u64, buffer: u16, number: u32) -> u64 {
    kind << 48 | u64::from(buffer) << 32 | u64::from(number)
}

fn parts(mark: u64) -> (u64, u16, u32) {
    (mark >> 48, (mark >> 32) as u16, mark as u32)
}

impl Server {
    /// Hands over what there is to do and lets completions run; no call where there is neither.
    fn enter(&mut self, idle: Idling) -> Result<()> {
        let submission = self.ring.submission();
        let is_due = !submission.is_empty() || submission.taskrun() || submission.cq_overflow();
        drop(submission);
        let has_completions = !self.ring.completion().is_empty();
        let outcome = match (is_due, idle) {
            (true, _) => self.ring.submit_and_wait(0),
            (false, Idling::Block) if !has_completions => self.ring.submit_and_wait(1),
            (false, _) => {
                std::hint::spin_loop();
                return Ok(());
            }
        };
        match outcome {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ResourceBusy) => Ok(()),
            Err(error) => Err(error).context("io_uring_enter"),
        }
    }

    fn push(&mut self, entry: &squeue::Entry) -> Result<()> {
        // SAFETY: whoever calls this keeps alive and unchanged what the entry points to until it completes.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.ring.submit().context("io_uring_enter")?;
        }
        Ok(())
    }

    fn watch(&mut self, listener: &TcpListener) -> Result<()> {
        let poll = opcode::PollAdd::new(Fd(listener.as_raw_fd()), libc::POLLIN as u32).multi(true).build();
        self.push(&poll.user_data(mark(LISTENING, 0, 0)))
    }

    fn accept(&mut self, listener: &TcpListener) -> Result<()> {
        while let Ok((stream, _)) = listener.accept() {
            let number = self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len());
            let number = number as u32;
            if number >= CONNECTIONS || stream.set_nodelay(true).is_err() {
                continue;
            }
            if self.extras.stamps {
                stamps::ask_for(&stream);
            }
            if self.ring.submitter().register_files_update(number, &[stream.as_raw_fd()]).is_err() {
                continue;
            }
            let connection = Some(Connection::new(stream));
            match self.connections.get_mut(number as usize) {
                Some(free) => *free = connection,
                None => self.connections.push(connection),
            }
            self.receive(number)?;
        }
        Ok(())
    }

    /// Arms the receive, which stays armed as long as there are buffers.
    fn receive(&mut self, number: u32) -> Result<()> {
        let socket = Fixed(number);
        let entry = match self.extras.stamps {
            true => opcode::RecvMsgMulti::new(socket, self.header, GROUP).build(),
            false => opcode::RecvMulti::new(socket, GROUP).build(),
        };
        self.push(&entry.user_data(mark(RECEIVED, 0, number)))
    }

    fn received(&mut self, number: u32, result: i32, flags: u32) -> Result<()> {
        let Some(connection) = self.connections.get_mut(number as usize).and_then(Option::as_mut) else {
            return Ok(());
        };
        connection.is_receiving = more(flags);
        let buffer = buffer_select(flags);
        let mut begin = None;
        match (usize::try_from(result), buffer) {
            (Ok(count), Some(buffer)) if count > 0 && !connection.is_over => {
                let bytes = &self.buffers.bytes(buffer)[..count];
                let payload = if self.extras.stamps { without_header(bytes, self.header) } else { Some(bytes) };
                match payload {
                    // With room for control messages the end of the stream is a message without bytes.
                    Some(payload) if !payload.is_empty() => begin = connection.take(payload, self.extras.work),
                    _ => connection.is_over = true,
                }
            }
            // No buffer was free: all of them are being sent. It tries again.
            _ if result == -libc::ENOBUFS => {}
            _ => connection.is_over = true,
        }
        // What is sent from a buffer keeps it.
        if let Some(buffer) = buffer.filter(|_| !matches!(begin, Some(Source::Received(_)))) {
            self.buffers.give_back(buffer);
        }
        if let Some(source) = begin {
            self.send(number, source, buffer.unwrap_or_default())?;
        }
        self.go_on(number)
    }

    /// Sends `source`, which does not change until it is sent: a buffer of the kernel's or a vector of the connection's.
    fn send(&mut self, number: u32, source: Source, buffer: u16) -> Result<()> {
        let Some(connection) = self.connections.get_mut(number as usize).and_then(Option::as_mut) else {
            return Ok(());
        };
        let (bytes, kept) = match source {
            Source::Received(range) => {
                (&self.buffers.bytes(buffer)[header_of(self.extras.stamps)..][range], mark(SENT, buffer, number))
            }
            Source::Own => (connection.sending(), mark(SENT, Connection::OWN, number)),
        };
        // All of it, or an error: the kernel goes on when there is room.
        let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        let length = bytes.len();
        let entry = opcode::Send::new(Fixed(number), bytes.as_ptr(), length as u32).flags(flags).build();
        connection.under_way = Some(length);
        self.push(&entry.user_data(kept))
    }

    fn sent(&mut self, number: u32, buffer: u16, result: i32) -> Result<()> {
        if buffer != Connection::OWN {
            self.buffers.give_back(buffer);
        }
        let Some(connection) = self.connections.get_mut(number as usize).and_then(Option::as_mut) else {
            return Ok(());
        };
        let expected = connection.under_way.take();
        connection.is_over |= usize::try_from(result).ok() != expected;
        if !connection.is_over && connection.next() {
            self.send(number, Source::Own, Connection::OWN)?;
        }
        self.go_on(number)
    }

    /// Receives again where the kernel has stopped; ends a connection when the kernel is through with it.
    fn go_on(&mut self, number: u32) -> Result<()> {
        let Some(slot) = self.connections.get_mut(number as usize) else { return Ok(()) };
        let Some(connection) = slot else { return Ok(()) };
        match (connection.is_over, connection.is_receiving) {
            (false, true) => {}
            (false, false) => {
                connection.is_receiving = true;
                self.receive(number)?;
            }
            (true, false) if connection.under_way.is_none() => {
                *slot = None;
                let _ = self.ring.submitter().register_files_update(number, &[-1]);
            }
            // Ends what is under way.
            (true, _) => drop(shutdown(&connection.stream, Shutdown::Both)),
        }
        Ok(())
    }
}

/// Bytes of a buffer before the message's, with or without timestamps.
fn header_of(stamps: bool) -> usize {
    /// The kernel's `io_uring_recvmsg_out`: four words of 32 bits.
    const OUT: usize = 16;
    if stamps { OUT + CONTROL } else { 0 }
}

/// The message's bytes, and a look at its age.
fn without_header<'a>(bytes: &'a [u8], header: &libc::msghdr) -> Option<&'a [u8]> {
    let message = RecvMsgOut::parse(bytes, header).ok()?;
    std::hint::black_box(stamps::age_in(message.control_data()));
    bytes.get(header_of(true)..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    fn message(length: u32) -> Vec<u8> {
        let body = (4..length).map(|place| (place % 251) as u8);
        length.to_le_bytes().into_iter().chain(body).collect()
    }

    fn echoes(stamps: bool) {
        if let Err(reason) = probe() {
            eprintln!("skipped: {reason}");
            return;
        }
        let listener = TcpListener::bind(super::super::ANY).unwrap();
        let address = listener.local_addr().unwrap();
        // For as long as the tests run.
        std::thread::spawn(move || {
            serve(&listener, Idling::Block, Extras { stamps, batches: false, work: Duration::ZERO })
        });
        // One after the other: the second gets the first one's place.
        for _ in 0..2 {
            let mut peer = TcpStream::connect(address).unwrap();
            peer.set_nodelay(true).unwrap();
            peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            // Short ones, one that needs many buffers, and pieces that end in the middle of a length.
            for lengths in [&[72, 72][..], &[100_000], &[5, 3_000, 72]] {
                let sent: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
                let (first, second) = sent.split_at(74);
                peer.write_all(first).unwrap();
                peer.write_all(second).unwrap();
                let mut got = vec![0; sent.len()];
                peer.read_exact(&mut got).unwrap();
                assert!(got == sent, "{lengths:?}");
            }
            peer.write_all(&[3, 0, 0, 0]).unwrap();
            assert_eq!(peer.read(&mut [0]).unwrap(), 0, "what is no message ends the connection");
        }
    }

    #[test]
    fn what_is_sent_comes_back() {
        echoes(false);
    }

    #[test]
    fn what_is_sent_comes_back_with_timestamps_too() {
        echoes(true);
    }
}
