//! Round trips over a single connection, one request at a time.
//!
//! The client polls the socket without sleeping, so this is the round-trip time when both ends
//! spin.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;

use super::speak::Protocol;
use super::{PhaseHook, Times};

/// Time without a response after which the server counts as defective.
const PATIENCE: Duration = Duration::from_secs(10);

/// Measures for the time in `times`.
///
/// # Errors
/// The server does not follow its protocol.
pub(crate) fn run(
    mut protocol: impl Protocol,
    address: SocketAddr,
    times: Times,
    hook: PhaseHook<'_>,
) -> Result<Histogram<u64>> {
    let stream = TcpStream::connect(address).context("connecting")?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut wire = Wire { stream, buffer: vec![0; 64 * 1024], end: 0, out: Vec::new() };
    protocol.append_opening(&mut wire.out);
    wire.send()?;
    while !protocol.is_open() {
        wire.receive(&mut protocol)?;
    }
    trips(times, hook, |_| {
        protocol.append_request(&mut wire.out);
        wire.send()?;
        while wire.receive(&mut protocol)? == 0 {}
        Ok(())
    })
}

/// Measures consecutive round trips; `trip` makes one that begins at the given instant.
///
/// # Errors
/// Those of `trip` and `hook`.
pub(super) fn trips(
    times: Times,
    hook: PhaseHook<'_>,
    mut trip: impl FnMut(Instant) -> Result<()>,
) -> Result<Histogram<u64>> {
    // Three significant digits, up to one minute.
    let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).context("a histogram")?;
    let start = Instant::now();
    let mut measuring = false;
    loop {
        let sent_at = Instant::now();
        if !measuring && sent_at - start >= times.warmup {
            measuring = true;
            hook()?;
            continue;
        }
        if sent_at - start >= times.warmup + times.measured {
            hook()?;
            return Ok(histogram);
        }
        trip(sent_at)?;
        if measuring {
            histogram.saturating_record(sent_at.elapsed().as_nanos() as u64);
        }
    }
}

struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    end: usize,
    out: Vec<u8>,
}

impl Wire {
    /// Sends all of `out`: a few hundred bytes, which a socket accepts unless the server reads
    /// nothing.
    fn send(&mut self) -> Result<()> {
        self.stream.write_all(&self.out).context("sending")?;
        self.out.clear();
        Ok(())
    }

    /// Waits for bytes; returns the number of responses among them.
    fn receive(&mut self, protocol: &mut impl Protocol) -> Result<u32> {
        let mut tries = 0u32;
        let mut since = None;
        loop {
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => bail!("the server closed the connection"),
                Ok(count) => self.end += count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    tries += 1;
                    // Read the clock rarely: it would slow down the polling.
                    if tries.is_multiple_of(1 << 16) {
                        ensure!(since.get_or_insert_with(Instant::now).elapsed() < PATIENCE, "no answer");
                    }
                    continue;
                }
                Err(error) => return Err(error).context("receiving"),
            }
            let parsed = protocol.parse(&self.buffer[..self.end], &mut self.out)?;
            self.buffer.copy_within(parsed.bytes..self.end, 0);
            self.end -= parsed.bytes;
            if !self.out.is_empty() {
                self.send()?;
            }
            return Ok(parsed.answers);
        }
    }
}
