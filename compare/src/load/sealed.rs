//! TLS around any protocol of the load, over any transport, and handshakes alone.
//!
//! Does not contain sockets, except those of the handshakes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leeward_rpc::tls::{ClientFiles, ClientTls, Session};

use super::speak::{Parsed, Protocol};
use super::{Closed, PhaseHook, Times};
use crate::certificate;

/// Time without a response after which the server counts as defective.
const PATIENCE: Duration = Duration::from_secs(10);
/// Handshakes in flight at a time.
const AT_ONCE: usize = 16;

/// TLS settings for clients of a server that speaks this protocol within TLS.
///
/// # Errors
/// The authority's certificate is missing.
pub(crate) fn client(folder: &Path, protocol: &'static [u8]) -> Result<ClientTls> {
    let files = ClientFiles { ca: folder.join(certificate::CA), identity: None, name: Some("localhost".into()) };
    ClientTls::open_with_alpn(files, protocol).context("the authority of the servers' certificates")
}

fn session(tls: &ClientTls) -> Result<Session> {
    Ok(tls.connect(&tls.name_for("localhost:1")?)?)
}

/// A protocol within TLS.
pub(crate) struct Sealed<S> {
    session: Session,
    inner: S,
    is_greeted: bool,
    /// Decrypted bytes that the protocol has not parsed.
    plain: Vec<u8>,
    /// Bytes of the protocol that are not encrypted yet.
    outgoing: Vec<u8>,
}

impl<S: Protocol> Sealed<S> {
    /// The protocol within a new TLS session.
    ///
    /// # Panics
    /// No session can be made, which is impossible with a client that was opened.
    pub(crate) fn new(tls: &ClientTls, inner: S) -> Self {
        let session = session(tls).expect("a session for a client that is open");
        Sealed { session, inner, is_greeted: false, plain: Vec::new(), outgoing: Vec::new() }
    }

    /// Encrypts the protocol's bytes and appends the result to `out`.
    fn seal(&mut self, out: &mut Vec<u8>) {
        let mut sealed = 0;
        while sealed < self.outgoing.len() {
            sealed += self.session.seal(&self.outgoing[sealed..]);
            // Writing to memory can't fail.
            let _ = self.session.send(out);
        }
        self.outgoing.clear();
        let _ = self.session.send(out);
    }
}

impl<S: Protocol> Protocol for Sealed<S> {
    fn append_opening(&mut self, out: &mut Vec<u8>) {
        let _ = self.session.send(out);
    }

    fn is_open(&self) -> bool {
        self.is_greeted && self.inner.is_open()
    }

    fn append_request(&mut self, out: &mut Vec<u8>) {
        self.inner.append_request(&mut self.outgoing);
        self.seal(out);
    }

    fn parse(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Parsed> {
        let mut piece = [0; 16 * 1024];
        let mut left = bytes;
        while !left.is_empty() {
            // A session accepts a few kilobytes at a time, and must be emptied before it accepts
            // more.
            let some = left.len().min(4_096);
            let mut filled = self.session.absorb(&left[..some], &mut piece)?;
            left = &left[some..];
            while filled > 0 {
                self.plain.extend_from_slice(&piece[..filled]);
                filled = self.session.take(&mut piece);
            }
        }
        if !self.is_greeted && !self.session.is_handshaking() {
            self.inner.append_opening(&mut self.outgoing);
            self.is_greeted = true;
        }
        let parsed = self.inner.parse(&self.plain, &mut self.outgoing)?;
        self.plain.drain(..parsed.bytes);
        self.seal(out);
        Ok(Parsed { bytes: bytes.len(), answers: parsed.answers })
    }
}

/// A handshake in flight.
struct Handshake {
    stream: TcpStream,
    session: Session,
}

/// Measures full handshakes per second, consecutive ones on each of some connections.
///
/// The client computes its part, too. If the client is never idle it is the limit; then the
/// server's CPU time shows the cost of a handshake.
///
/// # Errors
/// The server does not follow the TLS protocol.
pub(crate) fn handshakes(tls: &ClientTls, address: SocketAddr, times: Times, hook: PhaseHook<'_>) -> Result<Closed> {
    let begin = || -> Result<Handshake> {
        let stream = TcpStream::connect(address).context("connecting")?;
        stream.set_nodelay(true)?;
        let mut handshake = Handshake { stream, session: session(tls)? };
        handshake.session.send(&mut handshake.stream)?;
        handshake.stream.set_nonblocking(true)?;
        Ok(handshake)
    };
    let mut all = (0..AT_ONCE).map(|_| begin()).collect::<Result<Vec<_>>>()?;
    let mut run_for = |span: Duration| -> Result<Closed> {
        let start = Instant::now();
        let (mut last_progress, mut before) = (start, start);
        let (mut done, mut idle) = (0_u64, Duration::ZERO);
        loop {
            let mut has_moved = false;
            for handshake in &mut all {
                if handshake.poll()? {
                    has_moved = true;
                }
                if !handshake.session.is_handshaking() {
                    done += 1;
                    *handshake = begin()?;
                }
            }
            let now = Instant::now();
            if has_moved {
                last_progress = now;
            } else {
                idle += now - before;
                ensure!(now - last_progress < PATIENCE, "no answer");
            }
            before = now;
            if now - start >= span {
                let seconds = (now - start).as_secs_f64();
                return Ok(Closed { rate_per_s: done as f64 / seconds, idle: idle.as_secs_f64() / seconds });
            }
        }
    };
    run_for(times.warmup)?;
    hook()?;
    let measured = run_for(times.measured)?;
    hook()?;
    Ok(measured)
}

impl Handshake {
    /// Reads available bytes and sends the response to them; returns true if there were any.
    fn poll(&mut self) -> Result<bool> {
        let mut bytes = [0; 4_096];
        match self.stream.read(&mut bytes) {
            Ok(0) => anyhow::bail!("the server ended a handshake"),
            Ok(count) => {
                self.session.absorb(&bytes[..count], &mut [0; 1_024])?;
                self.session.send(&mut self.stream)?;
                self.stream.flush()?;
                Ok(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error).context("receiving"),
        }
    }
}
