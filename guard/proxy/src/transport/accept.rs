//! The beginning of a client's connection, before HTTP: the handshake of TLS. Does not contain
//! certificates (`leeward-tls`).

use super::counts::{Counts, OK};
use super::handshakes::Handshakes;
use super::socket::Socket;
use super::stream::{Protocol, Transport};
use crate::settings::tls::TlsSettings;
use leeward_tls::{ClientAuthentication, LoadError, ServerSetup, ServerTls, is_tls_record};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::rustls;
use tokio_rustls::{TlsAcceptor, TlsStream};

/// Most handshakes in progress. Each takes some 20 KB.
const HANDSHAKES_MAX: usize = 1_024;
/// Most bytes that are read of a request without TLS, so that its client sees the answer.
const PLAIN_MAX: u64 = 64 << 10;
/// Longest time for that.
const PLAIN_TIME: Duration = Duration::from_secs(1);
/// Answer to a request without TLS.
const PLAIN_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
    leeward-reason: bad-request\r\ncontent-length: 39\r\nconnection: close\r\n\r\n\
    This port speaks TLS: ask it by https.\n";

/// Accepts TLS, or passes connections on as they are.
#[derive(Debug)]
pub(crate) struct Acceptor {
    tls: Option<ServerTls>,
    handshakes: Arc<Handshakes>,
    counts: Arc<Counts>,
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
    pub(crate) fn new(tls: Option<ServerTls>, counts: Arc<Counts>) -> Self {
        Acceptor { tls, handshakes: Handshakes::new(HANDSHAKES_MAX), counts }
    }

    /// Handshakes in progress.
    pub(crate) fn handshakes(&self) -> usize {
        self.handshakes.in_progress()
    }

    /// Whether the first bytes are not yet those of HTTP.
    pub(crate) fn has_preface(&self) -> bool {
        self.tls.is_some()
    }

    /// Completes what comes before HTTP, each step within `longest`; `None`: the connection ends.
    pub(crate) async fn accept(&self, socket: Socket, longest: Duration) -> Option<Transport> {
        let Some(tls) = &self.tls else { return Some(Transport::Plain(socket)) };
        let mut first = [0];
        match timeout(longest, socket.peek(&mut first)).await {
            Ok(Ok(1)) if is_tls_record(first[0]) => {}
            Ok(Ok(1)) => {
                self.counts.record_client("plaintext");
                let _ = timeout(PLAIN_TIME, answer_plain(socket, first[0])).await;
                return None;
            }
            Ok(_) => return None,
            Err(_) => {
                self.counts.record_client("timeout");
                return None;
            }
        }
        let handshake = self.handshakes.begin();
        let accept = TlsAcceptor::from(tls.rustls_config()).accept(socket);
        let result = tokio::select! {
            result = timeout(longest, accept) => result,
            () = handshake.must_end() => {
                self.counts.record_client("crowded");
                return None;
            }
        };
        let (stream, result) = match result {
            Ok(Ok(stream)) => (Some(Transport::Tls(Box::new(TlsStream::Server(stream)))), OK),
            Ok(Err(error)) => (None, reason(&error)),
            Err(_) => (None, "timeout"),
        };
        self.counts.record_client(result);
        stream
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
