//! One connection of a run: opens it, lets the protocol serve requests, and opens it again.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::config::HttpVersion;
use crate::lifecycle::{ConnectionEnd, Lifecycle};
use crate::shared::Shared;
use crate::state::Place;
use crate::{http1, http2};

/// Delay before a connection is opened again that was closed without any response; doubles with
/// each such connection.
const RETRY_DELAY: Duration = Duration::from_millis(10);
/// The longest such delay.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(1);

/// Runs a connection until the run is dropped, or until it cannot be opened the first time.
pub(crate) async fn run(shared: Rc<Shared>, place: Place) {
    let mut lifecycle = Lifecycle::new(&shared, place);
    let mut delay = RETRY_DELAY;
    loop {
        let end = open(&shared, place, &mut lifecycle).await;
        if !lifecycle.set_closed(&end) {
            return;
        }
        // The responses bound the rate of connections that delivered some.
        if end.answered == 0 {
            tokio::time::sleep(delay).await;
            delay = (2 * delay).min(RETRY_DELAY_MAX);
        } else {
            delay = RETRY_DELAY;
        }
    }
}

/// Opens the connection and serves requests until it ends.
async fn open(shared: &Rc<Shared>, place: Place, lifecycle: &mut Lifecycle<'_>) -> ConnectionEnd {
    let lost = |reason: String| ConnectionEnd { answered: 0, loss: Some(reason) };
    let server = &shared.servers[place.endpoint];
    // Never closed, so that it always gives a permit.
    let permit = shared.opening.acquire().await.ok();
    let limit = Duration::from_nanos(shared.config.connect_timeout.0);
    let opened = tokio::time::timeout(limit, TcpStream::connect(server.address)).await;
    let stream = match opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => stream,
        Err(error) => return lost(error.to_string()),
    };
    if let Err(error) = stream.set_nodelay(true) {
        return lost(error.to_string());
    }
    let (Some(tls), Some(name)) = (&shared.config.tls, &server.name) else {
        return serve(shared, place, stream, permit, lifecycle).await;
    };
    let connector = TlsConnector::from(tls.rustls_config());
    let handshake = tokio::time::timeout(limit, connector.connect(name.clone(), stream)).await;
    match handshake.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => {
            if shared.config.version == HttpVersion::Http2 && stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                return lost("the server did not choose HTTP/2 in the TLS handshake".into());
            }
            serve(shared, place, stream, permit, lifecycle).await
        }
        Err(error) => lost(format!("TLS: {error}")),
    }
}

async fn serve<S>(
    shared: &Rc<Shared>,
    place: Place,
    stream: S,
    permit: Option<tokio::sync::SemaphorePermit<'_>>,
    lifecycle: &mut Lifecycle<'_>,
) -> ConnectionEnd
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match shared.config.version {
        HttpVersion::Http1 => {
            drop(permit);
            http1::serve(shared, place, stream, lifecycle).await
        }
        HttpVersion::Http2 => http2::serve(shared, place, stream, permit, lifecycle).await,
    }
}
