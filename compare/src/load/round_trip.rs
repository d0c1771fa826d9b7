//! Round trips over a single connection, one request at a time, reading again and again: the round trip's time when
//! both ends spin.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;

use super::speak::Speak;
use super::{Edge, Times};

/// A server that says nothing for so long has a defect.
const PATIENCE: Duration = Duration::from_secs(10);

/// Measures for as long as `times` say.
///
/// # Errors
/// The server does not answer as it should.
pub(crate) fn run(
    mut speaker: impl Speak,
    address: SocketAddr,
    times: Times,
    edge: Edge<'_>,
) -> Result<Histogram<u64>> {
    let stream = TcpStream::connect(address).context("connecting")?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut wire = Wire { stream, buffer: vec![0; 64 * 1024], end: 0, out: Vec::new() };
    speaker.greet(&mut wire.out);
    wire.send()?;
    while !speaker.is_open() {
        wire.receive(&mut speaker)?;
    }
    trips(times, edge, |_| {
        speaker.ask(&mut wire.out);
        wire.send()?;
        while wire.receive(&mut speaker)? == 0 {}
        Ok(())
    })
}

/// Times of one round trip after the other. `trip` makes one that began at the given instant.
///
/// # Errors
/// Those of `trip` and `edge`.
pub(super) fn trips(
    times: Times,
    edge: Edge<'_>,
    mut trip: impl FnMut(Instant) -> Result<()>,
) -> Result<Histogram<u64>> {
    // Three digits, up to a minute.
    let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).context("a histogram")?;
    let begun = Instant::now();
    let mut measuring = false;
    loop {
        let asked = Instant::now();
        if !measuring && asked - begun >= times.warmup {
            measuring = true;
            edge()?;
            continue;
        }
        if asked - begun >= times.warmup + times.measured {
            edge()?;
            return Ok(histogram);
        }
        trip(asked)?;
        if measuring {
            histogram.saturating_record(asked.elapsed().as_nanos() as u64);
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
    /// Sends all of `out`: some hundred bytes, which a socket always takes unless the server reads nothing.
    fn send(&mut self) -> Result<()> {
        self.stream.write_all(&self.out).context("sending")?;
        self.out.clear();
        Ok(())
    }

    /// Waits for bytes, and says how many answers are among them.
    fn receive(&mut self, speaker: &mut impl Speak) -> Result<u32> {
        let mut tries = 0u32;
        let mut since = None;
        loop {
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => bail!("the server closed the connection"),
                Ok(count) => self.end += count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    tries += 1;
                    // The clock only now and then: it would slow down the looking.
                    if tries.is_multiple_of(1 << 16) {
                        ensure!(since.get_or_insert_with(Instant::now).elapsed() < PATIENCE, "no answer");
                    }
                    continue;
                }
                Err(error) => return Err(error).context("receiving"),
            }
            let taken = speaker.take(&self.buffer[..self.end], &mut self.out)?;
            self.buffer.copy_within(taken.bytes..self.end, 0);
            self.end -= taken.bytes;
            if !self.out.is_empty() {
                self.send()?;
            }
            return Ok(taken.answers);
        }
    }
}
