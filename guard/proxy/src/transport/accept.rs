//! The beginning of a client's connection, before HTTP: a header of the PROXY protocol, and the
//! handshake of TLS. Does not contain certificates (`leeward-tls`).

use super::counts::{Counts, OK};
use super::handshakes::Handshakes;
use super::proxy_protocol::Route;
use super::proxy_protocol::decode::{Decoded, decode};
use super::socket::Socket;
use super::stream::{Protocol, Transport};
use crate::settings::tls::TlsSettings;
use leeward_host::sync::{Mutex, lock};
use leeward_tls::{ClientAuthentication, LoadError, ServerSetup, ServerTls, is_tls_record};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::rustls;
use tokio_rustls::{TlsAcceptor, TlsStream};

/// Most handshakes in progress. Each takes some 10 KB.
const HANDSHAKES_MAX: usize = 1_024;
/// Most bytes that are read of a request without TLS, so that its client sees the answer.
const PLAIN_MAX: u64 = 64 << 10;
/// Longest time for that.
const PLAIN_TIME: Duration = Duration::from_secs(1);
/// Answer to a request without TLS.
const PLAIN_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
    leeward-reason: bad-request\r\ncontent-length: 39\r\nconnection: close\r\n\r\n\
    This port speaks TLS: ask it by https.\n";

/// Accepts TLS and the PROXY protocol, or passes connections on as they are.
#[derive(Debug)]
pub(crate) struct Acceptor {
    tls: Mutex<Option<ServerTls>>,
    accepts_proxy_protocol: AtomicBool,
    handshakes: Arc<Handshakes>,
    counts: Arc<Counts>,
}

/// A connection that is ready for HTTP.
pub(crate) struct Accepted {
    pub(crate) transport: Transport,
    /// Addresses that a proxy has stated; `None`: those of the connection count.
    pub(crate) route: Option<Route>,
}

/// Opens the certificates of the settings.
///
/// # Errors
/// Unusable files.
pub(crate) fn open_certificates(settings: &TlsSettings) -> Result<ServerTls, LoadError> {
    let clients = match &settings.client_ca {
        None => ClientAuthentication::None,
        Some(ca) if settings.is_client_optional => ClientAuthentication::Optional(ca.clone()),
        Some(ca) => ClientAuthentication::Required(ca.clone()),
    };
    let protocols = Protocol::OFFERED_TO_CLIENTS.iter().map(|protocol| protocol.name().to_vec()).collect();
    ServerTls::open_setup(ServerSetup { certificates: settings.certificates.clone(), clients, protocols })
}

impl Acceptor {
    pub(crate) fn new(tls: Option<ServerTls>, accepts_proxy_protocol: bool, counts: Arc<Counts>) -> Self {
        let (tls, accepts_proxy_protocol) = (Mutex::new(tls), AtomicBool::new(accepts_proxy_protocol));
        Acceptor { tls, accepts_proxy_protocol, handshakes: Handshakes::new(HANDSHAKES_MAX), counts }
    }

    /// Handshakes in progress.
    pub(crate) fn handshakes(&self) -> usize {
        self.handshakes.in_progress()
    }

    /// Whether headers of the PROXY protocol are expected.
    pub(crate) fn accepts_proxy_protocol(&self) -> bool {
        self.accepts_proxy_protocol.load(Ordering::Relaxed)
    }

    /// Whether the first bytes are not yet those of HTTP.
    pub(crate) fn has_preface(&self) -> bool {
        lock(&self.tls).is_some() || self.accepts_proxy_protocol()
    }

    /// Replaces the certificates, for connections that begin from now on.
    pub(crate) fn set_certificates(&self, tls: Option<ServerTls>) {
        *lock(&self.tls) = tls;
    }

    /// Changes whether connections that begin from now on have a header of the PROXY protocol.
    pub(crate) fn set_proxy_protocol(&self, accepts: bool) {
        self.accepts_proxy_protocol.store(accepts, Ordering::Relaxed);
    }

    /// Completes what comes before HTTP, each step within `longest`; `None`: the connection ends.
    pub(crate) async fn accept(&self, mut socket: Socket, is_trusted: bool, longest: Duration) -> Option<Accepted> {
        let mut route = None;
        if self.accepts_proxy_protocol() {
            let result = if is_trusted {
                timeout(longest, read_header(&mut socket)).await.unwrap_or(Err("timeout"))
            } else {
                // Whoever it is could be anybody by a header.
                Err("untrusted")
            };
            self.counts.proxy_protocol.record(match result {
                Ok(Some(_)) => OK,
                Ok(None) => "local",
                Err(reason) => reason,
            });
            route = result.ok()?;
        }
        let tls = lock(&self.tls).clone();
        let transport = match tls {
            None => Transport::Plain(socket),
            Some(tls) => self.shake_hands(&tls, socket, longest).await?,
        };
        Some(Accepted { transport, route })
    }

    /// The handshake of TLS; `None`: it has failed.
    async fn shake_hands(&self, tls: &ServerTls, socket: Socket, longest: Duration) -> Option<Transport> {
        let counts = &self.counts.clients;
        let mut first = [0];
        match timeout(longest, socket.peek(&mut first)).await {
            Ok(Ok(1)) if is_tls_record(first[0]) => {}
            Ok(Ok(1)) => {
                counts.record("plaintext");
                let _ = timeout(PLAIN_TIME, answer_plain(socket, first[0])).await;
                return None;
            }
            Ok(_) => return None,
            Err(_) => {
                counts.record("timeout");
                return None;
            }
        }
        let handshake = self.handshakes.begin();
        let accept = TlsAcceptor::from(tls.rustls_config()).accept(socket);
        let result = tokio::select! {
            result = timeout(longest, accept) => result,
            () = handshake.must_end() => {
                counts.record("crowded");
                return None;
            }
        };
        let (stream, result) = match result {
            Ok(Ok(stream)) => (Some(Transport::Tls(Box::new(TlsStream::Server(stream)))), OK),
            Ok(Err(error)) => (None, reason(&error)),
            Err(_) => (None, "timeout"),
        };
        counts.record(result);
        stream
    }
}

/// Reads a header of the PROXY protocol, and no byte behind it.
async fn read_header(socket: &mut Socket) -> Result<Option<Route>, &'static str> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 512]);
    loop {
        let count = match socket.peek(&mut piece).await {
            Ok(count @ 1..) => count,
            _ => return Err("closed"),
        };
        let read = bytes.len();
        bytes.extend_from_slice(&piece[..count]);
        // As long as the header is incomplete, all bytes are part of it.
        let (end, route) = match decode(&bytes) {
            Decoded::Malformed => return Err("malformed"),
            Decoded::Incomplete => (bytes.len(), None),
            Decoded::Header { length, route } => (length, Some(route)),
        };
        socket.read_exact(&mut piece[..end - read]).await.map_err(|_| "closed")?;
        if let Some(route) = route {
            return Ok(route);
        }
    }
}

/// Reason for the end of a handshake.
fn reason(error: &io::Error) -> &'static str {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => ServerTls::explain(error).reason.name(),
        None => "closed",
    }
}

/// Tells a client that asks without TLS, and waits until it has read that.
async fn answer_plain(mut socket: Socket, first: u8) {
    // The first letter of a method.
    if !first.is_ascii_uppercase() {
        return;
    }
    if socket.write_all(PLAIN_ANSWER).await.is_ok() && socket.shutdown().await.is_ok() {
        // A socket that closes with bytes unread takes back the answer.
        let _ = tokio::io::copy(&mut socket.take(PLAIN_MAX), &mut tokio::io::sink()).await;
    }
}
