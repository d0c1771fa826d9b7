//! Where `leeward top` has a server's statistics from: Leeward's own protocol, or memcached's.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as PollContext, Poll, Wake};
use std::thread::Thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use leeward_core::units::Nanos;
use leeward_rpc::address;
use leeward_rpc::client::Client;
use leeward_rpc::statistics::{self, Statistics};
use leeward_rpc::tls::ClientTls;
use leeward_rpc::wire::ServerProtocol;

use super::peer;
use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// While a question is out, whether to stop is looked at so often.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A server that has not said after this long what it speaks is asked in Leeward's protocol.
const DETECT_TIMEOUT: Duration = Duration::from_millis(500);
/// The longest answer of a memcached port, bytes.
const RESPONSE_MAX: usize = 1 << 20;
/// The question in memcached's protocol.
const QUERY: &[u8] = b"stats leeward\r\n";

/// A server that is asked for its statistics again and again.
pub(super) enum StatisticsSource {
    /// A port of Leeward's protocol, and the address at which it accepted, with what is spoken there.
    Rpc(Box<Client>, SocketAddr, ServerProtocol),
    /// A memcached port, by its addresses; it is connected to anew for each question.
    Memcached(Vec<SocketAddr>),
}

impl StatisticsSource {
    /// Finds out what the server at `address` speaks. A question in memcached's protocol is answered by either: in lines, or by
    /// a frame that says that this was none. With TLS it is Leeward's own.
    pub(super) fn open(address: &str, tls: Option<ClientTls>, interrupt: &Interrupt) -> Result<Self, Failure> {
        let addresses = peer::resolve(address)?;
        // Also where the question is another: a client would try a closed port for seconds.
        let (stream, found) = peer::connect(address, &addresses, TIMEOUT)?;
        if tls.is_none() {
            let mut heard = Vec::new();
            // Whatever has come by the end of it.
            let _ = exchange(&stream, &mut heard, DETECT_TIMEOUT, interrupt, || {});
            match ServerProtocol::detect(&heard) {
                Some(ServerProtocol::Memcached) if heard.starts_with(b"STAT leeward ") => {
                    return Ok(StatisticsSource::Memcached(addresses));
                }
                None | Some(ServerProtocol::Leeward) => {}
                Some(other) => {
                    let words = format!("no statistics of Leeward's: the server there speaks {other}");
                    return Err(Failure::Runtime(anyhow!("{address}: {words}")));
                }
            }
        }
        let expected = if tls.is_some() { ServerProtocol::Tls } else { ServerProtocol::Leeward };
        drop(stream);
        let client = Client::builder().replica(address).retries(0, 0).timeout(Nanos::from_secs(5));
        let client = match tls {
            Some(tls) => client.tls(tls),
            None => client,
        };
        let client = client.build();
        let client = client.map_err(|error| Failure::Input(anyhow!("{address}: {error}")))?;
        Ok(StatisticsSource::Rpc(Box::new(client), found, expected))
    }

    /// Failure of a question, with what is spoken there instead.
    pub(super) fn failure(&self, error: anyhow::Error) -> Failure {
        match self {
            StatisticsSource::Rpc(_, found, expected) => peer::failure(error, *found, *expected),
            StatisticsSource::Memcached(_) => Failure::Runtime(error),
        }
    }

    /// Asks, and waits for the answer or until somebody wants to stop. `listen` looks for whether somebody does, where signals
    /// don't tell.
    pub(super) fn query(&self, interrupt: &Interrupt, listen: impl FnMut()) -> anyhow::Result<Statistics> {
        match self {
            StatisticsSource::Rpc(client, ..) => call(client, interrupt, listen),
            StatisticsSource::Memcached(addresses) => {
                let stream = address::connect(addresses, TIMEOUT).context("can't connect")?;
                let mut heard = Vec::new();
                exchange(&stream, &mut heard, TIMEOUT, interrupt, listen)?;
                let told = heard.strip_prefix(b"STAT leeward ").and_then(|rest| rest.strip_suffix(b"\r\nEND\r\n"));
                Statistics::parse(told.context("statistics that are none")?).context("statistics that are none")
            }
        }
    }
}

/// Asks in memcached's protocol, and hears into `heard` up to the last line, the connection's end, or for as long as `patience` lasts.
fn exchange(
    mut stream: &TcpStream,
    heard: &mut Vec<u8>,
    patience: Duration,
    interrupt: &Interrupt,
    mut listen: impl FnMut(),
) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(POLL_INTERVAL))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(QUERY)?;
    let (began, mut piece) = (Instant::now(), [0; 4096]);
    while !heard.ends_with(b"\r\nEND\r\n") && !heard.ends_with(b"ERROR\r\n") {
        listen();
        if interrupt.is_requested() {
            return Err(anyhow!("asked to stop"));
        }
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => heard.extend_from_slice(&piece[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        if began.elapsed() > patience || heard.len() > RESPONSE_MAX {
            return Err(anyhow!("no answer within {patience:?}"));
        }
    }
    Ok(())
}

/// Asks in Leeward's protocol; giving up ends the call.
pub(super) fn call(client: &Client, interrupt: &Interrupt, mut listen: impl FnMut()) -> anyhow::Result<Statistics> {
    let mut call = pin!(client.call(statistics::METHOD, ""));
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = PollContext::from_waker(&waker);
    loop {
        if let Poll::Ready(answer) = call.as_mut().poll(&mut context) {
            return Statistics::parse(&answer?.payload).context("statistics that are none");
        }
        listen();
        if interrupt.is_requested() {
            return Err(anyhow!("asked to stop"));
        }
        std::thread::park_timeout(POLL_INTERVAL);
    }
}

/// Wakes the thread that waits for the answer.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
