//! Statistics of a server for `leeward top`, over Leeward's own protocol or memcached's.

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

/// Interval at which a waiting query checks for interrupts.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time limit for a response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for protocol detection; then Leeward's own protocol is assumed.
const DETECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Longest response of a memcached port, in bytes.
const RESPONSE_MAX: usize = 1 << 20;
/// Query in memcached's protocol.
const QUERY: &[u8] = b"stats leeward\r\n";

/// Server that is queried repeatedly for its statistics.
pub(super) enum StatisticsSource {
    /// A port of Leeward's protocol: its client, the address that accepted, and the expected
    /// protocol.
    Rpc(Box<Client>, SocketAddr, ServerProtocol),
    /// A memcached port and its addresses; each query connects anew.
    Memcached(Vec<SocketAddr>),
}

impl StatisticsSource {
    /// Detects the protocol of the server at `address`.
    ///
    /// Both protocols answer a memcached query: with lines, or with a frame that rejects it. With
    /// TLS the protocol is Leeward's own.
    pub(super) fn open(address: &str, tls: Option<ClientTls>, interrupt: &Interrupt) -> Result<Self, Failure> {
        let addresses = peer::resolve(address)?;
        // Connect first in any case: a client would retry a closed port for seconds.
        let (stream, found) = peer::connect(address, &addresses, TIMEOUT)?;
        if tls.is_none() {
            let mut received = Vec::new();
            // Use the bytes that have arrived at the end, even after an error.
            let _ = exchange(&stream, &mut received, DETECT_TIMEOUT, interrupt, || {});
            match ServerProtocol::detect(&received) {
                Some(ServerProtocol::Memcached) if received.starts_with(b"STAT leeward ") => {
                    return Ok(StatisticsSource::Memcached(addresses));
                }
                None | Some(ServerProtocol::Leeward) => {}
                Some(other) => {
                    let message = format!("no Leeward statistics: the server speaks {other}");
                    return Err(Failure::Runtime(anyhow!("{address}: {message}")));
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

    /// Failure of a query; names the protocol that the server speaks instead.
    pub(super) fn failure(&self, error: &anyhow::Error) -> Failure {
        let error = anyhow!(describe(error));
        match self {
            StatisticsSource::Rpc(_, found, expected) => peer::failure(error, *found, *expected),
            StatisticsSource::Memcached(_) => Failure::Runtime(error),
        }
    }

    /// Queries the server, and waits for the response or an interrupt. `listen` checks for stop
    /// keys, which send no signal.
    pub(super) fn query(&self, interrupt: &Interrupt, listen: impl FnMut()) -> anyhow::Result<Statistics> {
        match self {
            StatisticsSource::Rpc(client, ..) => call(client, interrupt, listen),
            StatisticsSource::Memcached(addresses) => {
                let stream = address::connect(addresses, TIMEOUT).context("can't connect")?;
                let mut received = Vec::new();
                exchange(&stream, &mut received, TIMEOUT, interrupt, listen)?;
                let text = received.strip_prefix(b"STAT leeward ").and_then(|rest| rest.strip_suffix(b"\r\nEND\r\n"));
                Statistics::parse(text.context("invalid statistics")?).context("invalid statistics")
            }
        }
    }
}

/// Describes the failure of a query. It has no effect, so whether it was executed is no matter.
pub(super) fn describe(error: &anyhow::Error) -> String {
    format!("{error:#}").replace(" (the call may have been executed)", "")
}

/// Sends the memcached query and reads into `received` until the last line, the connection's end,
/// or `timeout`.
fn exchange(
    mut stream: &TcpStream,
    received: &mut Vec<u8>,
    timeout: Duration,
    interrupt: &Interrupt,
    mut listen: impl FnMut(),
) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(POLL_INTERVAL))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(QUERY)?;
    let (began, mut piece) = (Instant::now(), [0; 4096]);
    while !received.ends_with(b"\r\nEND\r\n") && !received.ends_with(b"ERROR\r\n") {
        listen();
        if interrupt.is_requested() {
            return Err(anyhow!("interrupted"));
        }
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => received.extend_from_slice(&piece[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        if began.elapsed() > timeout || received.len() > RESPONSE_MAX {
            return Err(anyhow!("no answer within {timeout:?}"));
        }
    }
    Ok(())
}

/// Queries in Leeward's protocol; dropping the call cancels it.
pub(super) fn call(client: &Client, interrupt: &Interrupt, mut listen: impl FnMut()) -> anyhow::Result<Statistics> {
    let mut call = pin!(client.call(statistics::METHOD, ""));
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = PollContext::from_waker(&waker);
    loop {
        if let Poll::Ready(answer) = call.as_mut().poll(&mut context) {
            return Statistics::parse(&answer?.payload).context("invalid statistics");
        }
        listen();
        if interrupt.is_requested() {
            return Err(anyhow!("interrupted"));
        }
        std::thread::park_timeout(POLL_INTERVAL);
    }
}

/// Wakes the thread that waits for the response.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
