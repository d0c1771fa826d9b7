//! A scripted backend and a client over plain sockets, and a proxy between them. Does not contain
//! tests.

use leeward_observe::{Snapshot, Source};
use leeward_proxy::settings::file::FileSettings;
use leeward_proxy::{Admission, Proxy, Settings};
use leeward_testkit::wait::{LIVENESS, until};
use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// A head: its first line, and headers in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Head {
    /// The value of a header, several joined by `|`.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let values: Vec<&str> =
            self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect();
        (!values.is_empty()).then(|| values.join("|"))
    }

    pub(crate) fn status(&self) -> u16 {
        self.line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn target(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }
}

/// A message as it arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// Whether it ended before its last byte.
    pub(crate) is_cut: bool,
}

impl Message {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One side of a connection.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Wire {
    fn new(stream: TcpStream) -> Self {
        let _ = stream.set_read_timeout(Some(LIVENESS));
        let _ = stream.set_write_timeout(Some(LIVENESS));
        let _ = stream.set_nodelay(true);
        let reader = BufReader::new(stream.try_clone().expect("a second handle"));
        Wire { stream, reader }
    }

    /// Connects to an address.
    pub(crate) fn to(address: SocketAddr) -> Self {
        Wire::new(TcpStream::connect(address).expect("a connection"))
    }

    /// Sends bytes; the other side may have gone.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        match self.reader.read_until(b'\n', &mut line) {
            Ok(count) if count > 0 && line.ends_with(b"\n") => {}
            Ok(_) => return None,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("nothing came"),
            Err(_) => return None,
        }
        Some(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned())
    }

    fn fields(&mut self) -> Option<Vec<(String, String)>> {
        let mut fields = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Some(fields);
            }
            let (name, value) = line.split_once(':')?;
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// Reads a head; none once the other side has gone.
    pub(crate) fn head(&mut self) -> Option<Head> {
        let line = self.line()?;
        Some(Head { line, headers: self.fields()? })
    }

    /// Reads exactly so many bytes.
    pub(crate) fn exactly(&mut self, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.reader.read_exact(&mut bytes).ok().map(|()| bytes)
    }

    /// Sends no more.
    pub(crate) fn close_write(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// Reads until the other side has closed.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let _ = self.reader.read_to_end(&mut bytes);
        bytes
    }

    /// Waits until the other side has closed; fails if it sends something.
    pub(crate) fn closed(&mut self) {
        assert_eq!(String::from_utf8_lossy(&self.rest()), "");
    }

    /// Reads the rest of a message.
    pub(crate) fn body(&mut self, head: Head, until_close: bool) -> Message {
        let mut message = Message { head, ..Message::default() };
        if message.head.get("transfer-encoding").is_some() {
            loop {
                let size = self.line().and_then(|line| usize::from_str_radix(line.split(';').next()?.trim(), 16).ok());
                let Some(size) = size else {
                    message.is_cut = true;
                    return message;
                };
                if size == 0 {
                    match self.fields() {
                        Some(trailers) => message.trailers = trailers,
                        None => message.is_cut = true,
                    }
                    return message;
                }
                match self.exactly(size + 2) {
                    Some(piece) => message.body.extend_from_slice(&piece[..size]),
                    None => {
                        message.is_cut = true;
                        return message;
                    }
                }
            }
        }
        match message.head.get("content-length").and_then(|length| length.parse::<usize>().ok()) {
            Some(length) => {
                let mut body = Vec::new();
                let _ = (&mut self.reader).take(length as u64).read_to_end(&mut body);
                message.is_cut = body.len() < length;
                message.body = body;
            }
            None if until_close => message.body = self.rest(),
            None => {}
        }
        message
    }

    /// Reads an answer; `method`: that of its request. Interim answers other than 101 are skipped.
    pub(crate) fn answer_to(&mut self, method: &str) -> Message {
        let head = loop {
            let head = self.head().expect("an answer");
            if !(100..200).contains(&head.status()) || head.status() == 101 {
                break head;
            }
        };
        let has_body = method != "HEAD" && !matches!(head.status(), 101 | 204 | 304);
        if has_body { self.body(head, true) } else { Message { head, ..Message::default() } }
    }

    /// Reads the answer to a GET.
    pub(crate) fn answer(&mut self) -> Message {
        self.answer_to("GET")
    }

    /// Asks for a path and reads the answer.
    pub(crate) fn get(&mut self, path: &str) -> Message {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n"));
        self.answer()
    }
}

/// A request at the backend.
pub(crate) struct Exchange<'a> {
    pub(crate) head: Head,
    pub(crate) wire: &'a mut Wire,
    body: Option<Message>,
    record: &'a Mutex<Vec<Message>>,
    pub(crate) closes: bool,
}

impl Exchange<'_> {
    /// Reads the request's body and records the request, once.
    pub(crate) fn message(&mut self) -> Message {
        if self.body.is_none() {
            let message = self.wire.body(self.head.clone(), false);
            self.record.lock().unwrap().push(message.clone());
            self.body = Some(message);
        }
        self.body.clone().unwrap_or_default()
    }

    /// Answers by 200 and a body.
    pub(crate) fn ok(&mut self, body: &str) {
        self.message();
        self.wire.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
    }

    /// Sends bytes.
    pub(crate) fn raw(&mut self, bytes: impl AsRef<[u8]>) {
        self.wire.send(bytes);
    }

    /// Closes the connection when the script ends.
    pub(crate) fn close(&mut self) {
        self.closes = true;
    }
}

/// A backend that answers by a script.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Message>>>,
    pub(crate) connections: Arc<AtomicUsize>,
    stops: Arc<AtomicBool>,
}

impl Backend {
    /// Starts a backend; the script is called with each head.
    pub(crate) fn start(script: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static) -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        Backend::on(listener, script)
    }

    /// Starts a backend on a port of the test's choice.
    pub(crate) fn on(listener: TcpListener, script: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static) -> Backend {
        let requests: Arc<Mutex<Vec<Message>>> = Arc::default();
        let record = Arc::clone(&requests);
        Backend::raw(listener, requests, move |mut wire| {
            while let Some(head) = wire.head() {
                let mut exchange = Exchange { head, wire: &mut wire, body: None, record: &record, closes: false };
                script(&mut exchange);
                exchange.message();
                let closes = exchange.closes;
                if closes {
                    break;
                }
            }
        })
    }

    fn raw(
        listener: TcpListener,
        requests: Arc<Mutex<Vec<Message>>>,
        serve: impl Fn(Wire) + Send + Sync + 'static,
    ) -> Backend {
        let address = listener.local_addr().expect("an address");
        let (connections, stops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, serve, stopped) = (Arc::clone(&connections), Arc::new(serve), Arc::clone(&stops));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                count.fetch_add(1, Ordering::SeqCst);
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(Wire::new(stream)));
            }
        });
        Backend { address, requests, connections, stops }
    }

    /// A backend that says `ok` and the target.
    pub(crate) fn echo() -> Backend {
        Backend::start(|exchange| {
            let target = exchange.head.target().to_owned();
            exchange.ok(&target);
        })
    }

    /// The requests that were read to their ends, and those whose scripts have ended.
    pub(crate) fn requests(&self) -> Vec<Message> {
        self.requests.lock().unwrap().clone()
    }

    /// The last request, once there are so many.
    pub(crate) fn request(&self, count: usize) -> Message {
        until("the backend has the request", || self.requests.lock().unwrap().len() >= count);
        self.requests()[count - 1].clone()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::SeqCst);
        // Wakes the listener, which then closes.
        let _ = TcpStream::connect(self.address);
    }
}

/// Holds requests at the backend until the test lets them go.
#[derive(Clone, Default)]
pub(crate) struct Hold(Arc<(Mutex<HoldState>, Condvar)>);

#[derive(Default)]
struct HoldState {
    arrived: Vec<String>,
    may_go: usize,
}

impl Hold {
    /// Waits for leave to go.
    pub(crate) fn pass(&self, name: &str) {
        let mut state = self.0.0.lock().unwrap();
        state.arrived.push(name.into());
        while state.may_go == 0 {
            let (next, timeout) = self.0.1.wait_timeout(state, LIVENESS).unwrap();
            state = next;
            assert!(!timeout.timed_out(), "{name} was never let go");
        }
        state.may_go -= 1;
    }

    /// Lets so many go.
    pub(crate) fn release(&self, count: usize) {
        let mut state = self.0.0.lock().unwrap();
        state.may_go = state.may_go.saturating_add(count);
        self.0.1.notify_all();
    }

    /// Lets all go, now and later.
    pub(crate) fn open(&self) {
        self.release(usize::MAX / 2);
    }

    /// Waits until so many have arrived; returns their names in order.
    pub(crate) fn arrived(&self, count: usize) -> Vec<String> {
        until("requests reach the backend", || self.0.0.lock().unwrap().arrived.len() >= count);
        self.0.0.lock().unwrap().arrived.clone()
    }

    /// A backend that holds each request, then says its target.
    pub(crate) fn backend(&self) -> Backend {
        let hold = self.clone();
        Backend::start(move |exchange| {
            let target = exchange.head.target().to_owned();
            hold.pass(&target);
            exchange.ok(&target);
        })
    }
}

/// Starts a proxy in front of backends; `extra`: more lines of its settings. The objective is long,
/// so that nothing depends on the machine's speed.
pub(crate) fn start(backends: &[impl Display], extra: &str) -> Proxy {
    start_with(&text(backends, extra)).expect("a proxy")
}

/// The file of [`start`].
pub(crate) fn text(backends: &[impl Display], extra: &str) -> String {
    let to: Vec<String> = backends.iter().map(|address| format!("\"{address}\"")).collect();
    format!("listen = \"127.0.0.1:0\"\nto = [{}]\n{extra}", to.join(", "))
}

/// Starts a proxy by a whole file; without an objective and threads, it has those of [`start`].
pub(crate) fn start_with(text: &str) -> Result<Proxy, String> {
    Proxy::start(settings(text)?).map_err(|error| error.to_string())
}

/// The settings of [`start_with`].
pub(crate) fn settings(text: &str) -> Result<Settings, String> {
    let has = |key: &str| text.lines().any(|line| line.starts_with(key));
    let slo = if has("slo") { "" } else { "slo = \"30s\"\n" };
    let threads = if has("threads") { "" } else { "threads = 2\n" };
    let file = FileSettings::parse(&format!("{slo}{threads}{text}"));
    file.and_then(|settings| settings.settings()).map_err(|error| error.to_string())
}

/// The port of a proxy.
pub(crate) fn address(proxy: &Proxy) -> SocketAddr {
    proxy.address().tcp().expect("a port")
}

/// Connects to a proxy.
pub(crate) fn connect(proxy: &Proxy) -> Wire {
    Wire::to(address(proxy))
}

/// The number of rejections, in shadow mode with those that are not enforced.
pub(crate) fn rejected(snapshot: &Snapshot) -> u64 {
    snapshot.refused.iter().map(|of| of.count).sum()
}

/// The number of rejections that are not enforced: their requests are admitted, too.
pub(crate) fn shadowed(proxy: &Proxy) -> u64 {
    metric(proxy.admission(), "leeward_proxy_shadowed_total") as u64
}

/// A value of the proxy's own metrics.
pub(crate) fn metric(admission: &Admission, name: &str) -> f64 {
    let text = admission.backend_metrics();
    let line =
        text.lines().find(|line| line.starts_with(&format!("{name} ")) || line.starts_with(&format!("{name}{{")));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Waits until nothing is at a backend or in the queue; then each request has had one outcome.
pub(crate) fn settle(proxy: &Proxy) -> Snapshot {
    let admission = proxy.admission();
    until("all requests end", || {
        let snapshot = admission.snapshot();
        snapshot.in_flight == 0 && snapshot.arrived + shadowed(proxy) == snapshot.admitted + rejected(&snapshot)
    });
    until("all places are free", || {
        metric(admission, "leeward_proxy_queued") == 0.0
            && admission
                .backend_metrics()
                .lines()
                .filter(|line| line.starts_with("leeward_proxy_backend_in_flight{"))
                .all(|line| line.ends_with(" 0"))
    });
    let snapshot = admission.snapshot();
    assert_eq!(snapshot.admitted, snapshot.completed + snapshot.abandoned, "one outcome each");
    assert!(snapshot.failed <= snapshot.completed);
    snapshot
}

/// Waits until so many requests wait in the queue.
pub(crate) fn queued(proxy: &Proxy, count: usize) {
    until("requests wait", || metric(proxy.admission(), "leeward_proxy_queued") == count as f64);
}
