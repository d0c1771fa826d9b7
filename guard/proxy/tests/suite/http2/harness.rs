//! A client and a scripted backend of HTTP/2, and a client that writes frames by hand. Does not
//! contain tests.

use crate::harness::Wire;
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use leeward_proxy::Proxy;
use leeward_testkit::wait::LIVENESS;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Runs a test; it fails if it hangs.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { timeout(LIVENESS, test).await.expect("the test hangs") })
}

/// An answer as it arrived.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A header, several joined by `|`.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        get(&self.headers, name)
    }

    pub(crate) fn trailer(&self, name: &str) -> Option<String> {
        get(self.trailers.as_ref()?, name)
    }
}

/// A header, several joined by `|`.
pub(crate) fn get(headers: &HeaderMap, name: &str) -> Option<String> {
    let values: Vec<_> = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    (!values.is_empty()).then(|| values.join("|"))
}

/// Reads a body and its trailers.
pub(crate) async fn read(body: &mut RecvStream) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        let _ = body.flow_control().release_capacity(piece.len());
        bytes.extend_from_slice(&piece);
    }
    Ok((bytes, body.trailers().await?))
}

/// Sends a body as the windows allow.
pub(crate) async fn write(stream: &mut SendStream<Bytes>, mut bytes: Bytes, is_end: bool) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let Some(room) = poll_fn(|context| stream.poll_capacity(context)).await else { return Ok(()) };
        let room = room?;
        if room > 0 {
            let piece = bytes.split_to(room.min(bytes.len()));
            stream.send_data(piece, is_end && bytes.is_empty())?;
        }
    }
    Ok(())
}

/// A GET of `http://h`.
pub(crate) fn request(path: &str) -> Request<()> {
    Request::get(format!("http://h{path}")).body(()).expect("a request")
}

/// A POST of `http://h`.
pub(crate) fn post(path: &str) -> Request<()> {
    Request::post(format!("http://h{path}")).body(()).expect("a request")
}

/// A client's connection.
pub(crate) struct Client {
    pub(crate) sender: SendRequest<Bytes>,
    pub(crate) connection: JoinHandle<Result<(), h2::Error>>,
}

impl Client {
    pub(crate) async fn to(proxy: &Proxy) -> Client {
        Client::with(proxy, &h2::client::Builder::new()).await
    }

    pub(crate) async fn with(proxy: &Proxy, builder: &h2::client::Builder) -> Client {
        let stream = TcpStream::connect(crate::harness::address(proxy)).await.expect("a connection");
        stream.set_nodelay(true).expect("an option");
        let (sender, connection) = builder.handshake(stream).await.expect("a handshake");
        Client { sender, connection: tokio::spawn(connection) }
    }

    /// Over a stream, such as one behind TLS.
    pub(crate) async fn over(stream: std::net::TcpStream) -> Client {
        stream.set_nonblocking(true).expect("an option");
        let stream = TcpStream::from_std(stream).expect("a stream");
        let (sender, connection) = h2::client::handshake(stream).await.expect("a handshake");
        Client { sender, connection: tokio::spawn(connection) }
    }

    /// Begins a request.
    pub(crate) async fn send(&mut self, request: Request<()>, is_end: bool) -> (ResponseFuture, SendStream<Bytes>) {
        poll_fn(|context| self.sender.poll_ready(context)).await.expect("a connection that is ready");
        self.sender.send_request(request, is_end).expect("a request that is sent")
    }

    /// Sends a request with a body, if there is one, and reads the answer.
    pub(crate) async fn try_ask(&mut self, request: Request<()>, body: Option<&[u8]>) -> Result<Answer, h2::Error> {
        let (response, mut stream) = self.send(request, body.is_none()).await;
        if let Some(body) = body {
            let body = Bytes::copy_from_slice(body);
            match body.is_empty() {
                true => stream.send_data(body, true)?,
                // The answer may come before the last byte.
                false => drop(tokio::spawn(async move { write(&mut stream, body, true).await })),
            }
        }
        answer(response).await
    }

    /// The same; the answer must come.
    pub(crate) async fn ask(&mut self, request: Request<()>, body: Option<&[u8]>) -> Answer {
        self.try_ask(request, body).await.expect("an answer")
    }

    /// Asks for a path.
    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.ask(request(path), None).await
    }
}

/// Reads an answer.
pub(crate) async fn answer(response: ResponseFuture) -> Result<Answer, h2::Error> {
    let (parts, mut body) = response.await?.into_parts();
    let (body, trailers) = read(&mut body).await?;
    Ok(Answer { status: parts.status, headers: parts.headers, body, trailers })
}

/// A request as it arrived at a backend.
pub(crate) struct Arrived {
    pub(crate) head: Parts,
    pub(crate) body: RecvStream,
    pub(crate) respond: SendResponse<Bytes>,
    /// Number of its connection, from 0.
    pub(crate) connection: usize,
}

impl Arrived {
    pub(crate) fn path(&self) -> &str {
        self.head.uri.path()
    }

    /// Answers by a status and a body.
    pub(crate) async fn answer(mut self, status: u16, text: &str) {
        let response = Response::builder().status(status).body(()).expect("a response");
        if let Ok(mut stream) = self.respond.send_response(response, text.is_empty()) {
            let _ = write(&mut stream, Bytes::copy_from_slice(text.as_bytes()), true).await;
        }
    }

    /// Reads the body, and says its length and what was in it.
    pub(crate) async fn echo(mut self) {
        let Ok((body, _)) = read(&mut self.body).await else { return };
        let text = format!("{} {}", self.head.uri.path(), String::from_utf8_lossy(&body));
        self.answer(200, &text).await;
    }
}

/// A backend of HTTP/2 on a thread of its own.
pub(crate) struct Http2Backend {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    /// Heads of the requests.
    pub(crate) heads: Arc<Mutex<Vec<Parts>>>,
    _stop: oneshot::Sender<()>,
}

impl Http2Backend {
    /// Starts a backend; the script is called with each connection and its number.
    pub(crate) fn raw<F: Future<Output = ()> + 'static>(
        script: impl Fn(TcpStream, usize) -> F + Send + 'static,
    ) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("an option");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(AtomicUsize::new(0));
        let (stop, stopped) = oneshot::channel::<()>();
        let count = Arc::clone(&connections);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let tasks = tokio::task::LocalSet::new();
            tasks.block_on(&runtime, async move {
                let listener = TcpListener::from_std(listener).expect("a listener");
                let accept = async {
                    while let Ok((stream, _)) = listener.accept().await {
                        let _ = stream.set_nodelay(true);
                        let number = count.fetch_add(1, Ordering::SeqCst);
                        tokio::task::spawn_local(script(stream, number));
                    }
                };
                tokio::select! {
                    () = accept => {}
                    _ = stopped => {}
                }
            });
        });
        Http2Backend { address, connections, heads: Arc::default(), _stop: stop }
    }

    /// Starts a backend; the script is called with each request.
    pub(crate) fn with<F: Future<Output = ()> + 'static>(
        builder: h2::server::Builder,
        script: impl Fn(Arrived) -> F + Send + 'static,
    ) -> Self {
        let heads: Arc<Mutex<Vec<Parts>>> = Arc::default();
        let record = Arc::clone(&heads);
        let script = Arc::new(Mutex::new(script));
        let raw = move |stream, connection| {
            let (builder, record, script) = (builder.clone(), Arc::clone(&record), Arc::clone(&script));
            async move {
                let Ok(mut server) = builder.handshake::<_, Bytes>(stream).await else { return };
                while let Some(Ok((request, respond))) = server.accept().await {
                    let (head, body) = request.into_parts();
                    let mut copy = Request::new(()).into_parts().0;
                    (copy.method, copy.uri, copy.headers) =
                        (head.method.clone(), head.uri.clone(), head.headers.clone());
                    record.lock().unwrap().push(copy);
                    let arrived = Arrived { head, body, respond, connection };
                    let answered = (script.lock().unwrap())(arrived);
                    tokio::task::spawn_local(answered);
                }
            }
        };
        Http2Backend { heads, ..Http2Backend::raw(raw) }
    }

    /// A backend with the settings of the library.
    pub(crate) fn start<F: Future<Output = ()> + 'static>(script: impl Fn(Arrived) -> F + Send + 'static) -> Self {
        Http2Backend::with(h2::server::Builder::new(), script)
    }

    /// A backend that says path and body.
    pub(crate) fn echo() -> Self {
        Http2Backend::start(Arrived::echo)
    }

    /// Its address in settings.
    pub(crate) fn to(&self) -> String {
        format!("h2c://{}", self.address)
    }
}

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// A client that writes frames by hand.
pub(crate) struct Frames {
    pub(crate) wire: Wire,
}

/// A frame as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The error of RST_STREAM or GOAWAY.
    pub(crate) fn error(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        self.payload.get(at..at + 4).map_or(0, |bytes| u32::from_be_bytes(bytes.try_into().unwrap()))
    }
}

impl Frames {
    /// Connects, and sends the preface and empty settings.
    pub(crate) fn to(proxy: &Proxy) -> Frames {
        let mut frames = Frames { wire: crate::harness::connect(proxy) };
        frames.wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        frames.send(SETTINGS, 0, 0, b"");
        frames
    }

    pub(crate) fn bytes(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.wire.send(Frames::bytes(kind, flags, stream, payload));
    }

    /// A GET without a body.
    pub(crate) fn get(&mut self, stream: u32, path: &str) {
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, &head("GET", path, &[]));
    }

    /// The next frame; none once the proxy has closed.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let head = self.wire.exactly(9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
        Some(Frame { kind: head[3], flags: head[4], stream, payload: self.wire.exactly(length)? })
    }

    /// Skips frames until one is of this kind; none if the proxy closes first.
    pub(crate) fn until(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.next()?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    /// The error of the GOAWAY that must come before the end; `None`: it just closes.
    pub(crate) fn end(&mut self) -> Option<u32> {
        let mut error = None;
        while let Some(frame) = self.next() {
            if frame.kind == GOAWAY {
                error = Some(frame.error());
            }
        }
        error
    }
}

/// Header fields in literal form (RFC 7541 §6.2.2).
pub(crate) fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            // A length above 126 has more bytes (§5.1).
            if text.len() < 127 {
                bytes.push(text.len() as u8);
            } else {
                bytes.push(127);
                let mut rest = text.len() - 127;
                while rest >= 128 {
                    bytes.push((rest % 128 + 128) as u8);
                    rest /= 128;
                }
                bytes.push(rest as u8);
            }
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

/// The head of a request to `http://h`.
pub(crate) fn head(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut all = fields(&[(":method", method), (":scheme", "http"), (":authority", "h"), (":path", path)]);
    all.extend(fields(more));
    all
}
