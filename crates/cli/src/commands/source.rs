//! Where `leeward top` has a server's statistics from: Leeward's own protocol, or memcached's.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as PollContext, Poll, Wake};
use std::thread::Thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use leeward_control::units::Nanos;
use leeward_rpc::client::Client;
use leeward_rpc::statistics::{self, Statistics};
use leeward_rpc::tls::ClientTls;

use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// While a question is out, whether to stop is looked at so often.
const LOOK: Duration = Duration::from_millis(20);
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A server that has not said after this long what it speaks is asked in Leeward's protocol.
const RECOGNISE: Duration = Duration::from_millis(500);
/// The longest answer of a memcached port, bytes.
const LONGEST: usize = 1 << 20;
/// The question in memcached's protocol.
const QUESTION: &[u8] = b"stats leeward\r\n";

/// A server that is asked for its statistics again and again.
pub(super) enum Source {
    /// A port of Leeward's protocol.
    Rpc(Box<Client>),
    /// A memcached port, by its address; it is connected to anew for each question.
    Memcached(String),
}

impl Source {
    /// Finds out what the server at `address` speaks. A question in memcached's protocol is answered by either: in lines, or by
    /// a frame that says that this was none. With TLS it is Leeward's own.
    pub(super) fn open(address: &str, tls: Option<ClientTls>, interrupt: &Interrupt) -> Result<Self, Failure> {
        if tls.is_none()
            && let Ok(stream) = connect(address)
            && exchange(&stream, RECOGNISE, interrupt, || {}).is_ok_and(|heard| heard.starts_with(b"STAT "))
        {
            return Ok(Source::Memcached(address.into()));
        }
        let client = Client::builder().replica(address).retries(0, 0).timeout(Nanos::from_secs(5));
        let client = match tls {
            Some(tls) => client.tls(tls),
            None => client,
        };
        let client = client.build();
        let client = client.map_err(|error| Failure::Input(anyhow!("{address}: {error}")))?;
        Ok(Source::Rpc(Box::new(client)))
    }

    /// Asks, and waits for the answer or until somebody wants to stop. `listen` looks for whether somebody does, where signals
    /// don't tell.
    pub(super) fn ask(&self, interrupt: &Interrupt, listen: impl FnMut()) -> anyhow::Result<Statistics> {
        match self {
            Source::Rpc(client) => call(client, interrupt, listen),
            Source::Memcached(address) => {
                let stream = connect(address).context("can't connect")?;
                let heard = exchange(&stream, TIMEOUT, interrupt, listen)?;
                let told = heard.strip_prefix(b"STAT leeward ").and_then(|rest| rest.strip_suffix(b"\r\nEND\r\n"));
                Statistics::parse(told.context("statistics that are none")?).context("statistics that are none")
            }
        }
    }
}

fn connect(address: &str) -> std::io::Result<TcpStream> {
    let mut last = ErrorKind::NotFound.into();
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(LOOK))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Asks in memcached's protocol, and hears up to the last line, the connection's end, or for as long as `patience` lasts.
fn exchange(
    mut stream: &TcpStream,
    patience: Duration,
    interrupt: &Interrupt,
    mut listen: impl FnMut(),
) -> anyhow::Result<Vec<u8>> {
    stream.write_all(QUESTION)?;
    let (began, mut heard, mut piece) = (Instant::now(), Vec::new(), [0; 4096]);
    while !heard.ends_with(b"\r\nEND\r\n") && !heard.ends_with(b"ERROR\r\n") {
        listen();
        if interrupt.asked() {
            return Err(anyhow!("asked to stop"));
        }
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => heard.extend_from_slice(&piece[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        if began.elapsed() > patience || heard.len() > LONGEST {
            return Err(anyhow!("no answer within {patience:?}"));
        }
    }
    Ok(heard)
}

/// Asks in Leeward's protocol; giving up ends the call.
fn call(client: &Client, interrupt: &Interrupt, mut listen: impl FnMut()) -> anyhow::Result<Statistics> {
    let mut call = pin!(client.call(statistics::METHOD, ""));
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = PollContext::from_waker(&waker);
    loop {
        if let Poll::Ready(answer) = call.as_mut().poll(&mut context) {
            return Statistics::parse(&answer?.payload).context("statistics that are none");
        }
        listen();
        if interrupt.asked() {
            return Err(anyhow!("asked to stop"));
        }
        std::thread::park_timeout(LOOK);
    }
}

/// Wakes the thread that waits for the answer.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
