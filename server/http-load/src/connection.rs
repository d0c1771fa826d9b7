//! One connection of a run: opens it, lets the protocol serve requests, and opens it again.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use leeward_core::units::{Nanos, Time};
use leeward_tls::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio_rustls::TlsConnector;

use crate::config::{HttpLoadConfig, HttpLoadError, HttpVersion};
use crate::request::RequestBuilder;
use crate::state::{Place, State};
use crate::target::Endpoint;
use crate::{http1, http2};

/// Connections that may be opened at once before the run.
const OPENING_MAX: usize = 64;
/// Delay before a connection is opened again that was closed without any response; doubles with
/// each such connection.
const RETRY_DELAY: Duration = Duration::from_millis(10);
/// The longest such delay.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(1);

/// An endpoint with its address, and the name that the server must prove.
pub(crate) struct Server {
    pub(crate) endpoint: Endpoint,
    pub(crate) address: SocketAddr,
    pub(crate) name: Option<ServerName>,
}

/// Everything that the tasks of a run share.
pub(crate) struct Shared {
    pub(crate) config: HttpLoadConfig,
    pub(crate) servers: Vec<Server>,
    pub(crate) requests: RequestBuilder,
    pub(crate) state: RefCell<State>,
    /// Requests that a closed loop keeps in flight on each connection; `None` in an open loop.
    pub(crate) outstanding: Option<usize>,
    /// Number of connections.
    pub(crate) count: usize,
    /// Tells the driver that a connection is open, or cannot be opened.
    pub(crate) opened: Notify,
    /// Error of a connection that could not be opened before the run.
    pub(crate) open_error: RefCell<Option<HttpLoadError>>,
    opening: Semaphore,
    origin: Instant,
    /// Start of the run, from the origin.
    start: Cell<Nanos>,
}

impl Shared {
    pub(crate) fn new(
        config: &HttpLoadConfig,
        servers: Vec<Server>,
        requests: RequestBuilder,
        state: State,
        (count, outstanding): (usize, Option<usize>),
    ) -> Self {
        Shared {
            config: config.clone(),
            servers,
            requests,
            state: RefCell::new(state),
            outstanding,
            count,
            opened: Notify::new(),
            open_error: RefCell::new(None),
            opening: Semaphore::new(OPENING_MAX),
            origin: Instant::now(),
            start: Cell::new(Nanos::ZERO),
        }
    }

    /// Time since the start of the run.
    pub(crate) fn now(&self) -> Time {
        Time((self.origin.elapsed().as_nanos() as u64).saturating_sub(self.start.get().0))
    }

    /// Lets the run start at `delay` from now.
    pub(crate) fn start_after(&self, delay: Nanos) {
        self.start.set(Nanos(self.origin.elapsed().as_nanos() as u64) + delay);
    }
}

/// End of a connection.
pub(crate) struct ConnectionEnd {
    /// Responses that it has delivered.
    pub(crate) answered: u64,
    /// Why it was lost. `None`: the server closed it in good order, or this end closed it.
    pub(crate) loss: Option<String>,
}

/// Reports of a connection to its run, in the order of its life.
pub(crate) struct Lifecycle<'a> {
    shared: &'a Shared,
    place: Place,
    /// Whether the connection has been open before.
    is_first: bool,
    is_open: bool,
    is_failing: bool,
}

impl Lifecycle<'_> {
    /// Reports the connection as open.
    pub(crate) fn set_open(&mut self) {
        self.is_open = true;
        let mut state = self.shared.state.borrow_mut();
        if std::mem::take(&mut self.is_first) {
            state.connections.opened += 1;
            state.recorder().record_open();
            self.shared.opened.notify_one();
        } else {
            state.recorder().record_reopening();
        }
        if std::mem::take(&mut self.is_failing) {
            state.connections.failing -= 1;
        }
    }

    /// Reports the connection's end. Returns whether to open it again.
    fn set_closed(&mut self, end: &ConnectionEnd) -> bool {
        let mut state = self.shared.state.borrow_mut();
        state.leave(self.place);
        if self.is_first {
            let (endpoint, of) = (self.shared.servers[self.place.endpoint].endpoint.to_string(), self.shared.count);
            let reason = end.loss.clone().unwrap_or_else(|| "the server closed it".into());
            let error = HttpLoadError::Connect { endpoint, number: self.place.slot + 1, of, reason };
            self.shared.open_error.borrow_mut().get_or_insert(error);
            self.shared.opened.notify_one();
            return false;
        }
        let was_open = std::mem::take(&mut self.is_open);
        match &end.loss {
            Some(reason) if was_open => state.recorder().record_loss(reason),
            None if was_open && end.answered == 0 => {
                // After a response it is a server that closes idle connections.
                let totals = *state.recorder().totals();
                if totals.completed + totals.dropped + totals.failed == 0 {
                    state.recorder().record_loss("the server closed it without a response");
                }
            }
            _ => {}
        }
        if !was_open && !std::mem::replace(&mut self.is_failing, true) {
            state.connections.failing += 1;
            state.connections.last_error.clone_from(&end.loss);
        }
        true
    }
}

/// Runs a connection until the run is dropped, or until it cannot be opened the first time.
pub(crate) async fn run(shared: Rc<Shared>, place: Place) {
    let mut lifecycle = Lifecycle { shared: &shared, place, is_first: true, is_open: false, is_failing: false };
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

/// The error and its causes in one line.
pub(crate) fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !line.ends_with(&text) {
            line += &format!(": {text}");
        }
        next = cause.source();
    }
    line
}
