//! TLS around any dialect: what a connection says and hears is encrypted, whatever moves its bytes. Also handshakes alone. Never here: a
//! socket that others move.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leeward_rpc::tls::{ClientFiles, ClientTls, Session};

use super::speak::{Speak, Taken};
use super::{Closed, Edge, Times};
use crate::certificate;

/// A server that says nothing for so long has a defect.
const PATIENCE: Duration = Duration::from_secs(10);
/// Handshakes that are under way at once.
const AT_ONCE: usize = 16;

/// Sessions of clients with a server that speaks this protocol within TLS.
///
/// # Errors
/// The certificates that the servers show are not there.
pub(crate) fn client(folder: &Path, protocol: &'static [u8]) -> Result<ClientTls> {
    let files = ClientFiles { ca: folder.join(certificate::CA), identity: None, name: Some("localhost".into()) };
    ClientTls::open_with_alpn(files, protocol).context("the authority of the servers' certificates")
}

fn session(tls: &ClientTls) -> Result<Session> {
    Ok(tls.connect(&tls.name_for("localhost:1")?)?)
}

/// A dialect within TLS.
pub(crate) struct Sealed<S> {
    session: Session,
    inner: S,
    is_greeted: bool,
    /// Decrypted, and not taken by the dialect.
    plain: Vec<u8>,
    /// Said by the dialect, and not encrypted.
    words: Vec<u8>,
}

impl<S: Speak> Sealed<S> {
    /// The dialect within a new session.
    ///
    /// # Panics
    /// There is no session to be had, which a client that was opened excludes.
    pub(crate) fn new(tls: &ClientTls, inner: S) -> Self {
        let session = session(tls).expect("a session for a client that is open");
        Sealed { session, inner, is_greeted: false, plain: Vec::new(), words: Vec::new() }
    }

    /// Encrypts what the dialect has said, and appends it.
    fn seal(&mut self, out: &mut Vec<u8>) {
        let mut sealed = 0;
        while sealed < self.words.len() {
            sealed += self.session.seal(&self.words[sealed..]);
            // Memory takes everything.
            let _ = self.session.send(out);
        }
        self.words.clear();
        let _ = self.session.send(out);
    }
}

impl<S: Speak> Speak for Sealed<S> {
    fn greet(&mut self, out: &mut Vec<u8>) {
        let _ = self.session.send(out);
    }

    fn is_open(&self) -> bool {
        self.is_greeted && self.inner.is_open()
    }

    fn ask(&mut self, out: &mut Vec<u8>) {
        self.inner.ask(&mut self.words);
        self.seal(out);
    }

    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Taken> {
        let mut piece = [0; 16 * 1024];
        let mut left = bytes;
        while !left.is_empty() {
            // A session takes some kilobytes at a time, and gives up what they held before it takes more.
            let some = left.len().min(4_096);
            let mut filled = self.session.absorb(&left[..some], &mut piece)?;
            left = &left[some..];
            while filled > 0 {
                self.plain.extend_from_slice(&piece[..filled]);
                filled = self.session.take(&mut piece);
            }
        }
        if !self.is_greeted && !self.session.is_handshaking() {
            self.inner.greet(&mut self.words);
            self.is_greeted = true;
        }
        let taken = self.inner.take(&self.plain, &mut self.words)?;
        self.plain.drain(..taken.bytes);
        self.seal(out);
        Ok(Taken { bytes: bytes.len(), answers: taken.answers })
    }
}

/// A handshake that is under way.
struct Shaking {
    stream: TcpStream,
    session: Session,
}

/// Full handshakes, one after the other on each of some connections, per second. The client computes its part, too: where it is
/// never idle it was the limit, and the server's CPU time tells what a handshake costs it.
///
/// # Errors
/// The server does not answer as TLS says.
pub(crate) fn handshakes(tls: &ClientTls, address: SocketAddr, times: Times, edge: Edge<'_>) -> Result<Closed> {
    let begin = || -> Result<Shaking> {
        let stream = TcpStream::connect(address).context("connecting")?;
        stream.set_nodelay(true)?;
        let mut shaking = Shaking { stream, session: session(tls)? };
        shaking.session.send(&mut shaking.stream)?;
        shaking.stream.set_nonblocking(true)?;
        Ok(shaking)
    };
    let mut all = (0..AT_ONCE).map(|_| begin()).collect::<Result<Vec<_>>>()?;
    let mut turns = |span: Duration| -> Result<Closed> {
        let began = Instant::now();
        let (mut heard, mut before) = (began, began);
        let (mut done, mut idle) = (0_u64, Duration::ZERO);
        loop {
            let mut has_moved = false;
            for shaking in &mut all {
                if shaking.turn()? {
                    has_moved = true;
                }
                if !shaking.session.is_handshaking() {
                    done += 1;
                    *shaking = begin()?;
                }
            }
            let now = Instant::now();
            if has_moved {
                heard = now;
            } else {
                idle += now - before;
                ensure!(now - heard < PATIENCE, "no answer");
            }
            before = now;
            if now - began >= span {
                let seconds = (now - began).as_secs_f64();
                return Ok(Closed { rate_per_s: done as f64 / seconds, idle: idle.as_secs_f64() / seconds });
            }
        }
    };
    turns(times.warmup)?;
    edge()?;
    let measured = turns(times.measured)?;
    edge()?;
    Ok(measured)
}

impl Shaking {
    /// Reads what has come, and says what follows from it. Whether anything had come.
    fn turn(&mut self) -> Result<bool> {
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
