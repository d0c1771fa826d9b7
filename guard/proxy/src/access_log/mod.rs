//! The access log: a line per request at its end, written by a thread of its own. Requests put
//! their entries into a bounded queue and never wait: what does not fit is counted as dropped.
//!
//! - [`entry`]: what a line says. `format`: its text. `writer`: the thread and its file.
//!
//! Does not contain settings, or the way of a request.

pub(crate) mod entry;
mod format;
mod writer;

use crate::error::ProxyError;
use crate::settings::access_log::{AccessLogSettings, LogFormat, LogTarget};
use crate::transport::socket_file::check_folder;
use entry::Entry;
use leeward_host::sync::{Mutex, lock};
use std::fmt::Write;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use writer::Writer;

/// Entries that wait for the thread, at most. Each has some KB at most ([`entry`]).
const QUEUED_MAX: usize = 8_192;
/// Longest time for the last entries when the proxy ends.
const LAST: Duration = Duration::from_secs(1);

/// Lines by their fate.
#[derive(Debug, Default)]
struct LineCounts {
    written: AtomicU64,
    /// The queue was full.
    dropped: AtomicU64,
    /// The file could not be written.
    failed: AtomicU64,
}

enum Message {
    Entry(Box<(Entry, LogFormat)>),
    /// There is another file.
    Reopen,
    Stop,
}

/// The log as requests see it.
#[derive(Clone, Debug)]
pub(crate) struct LogSender {
    format: LogFormat,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: SyncSender<Message>,
    counts: LineCounts,
    /// Whether the proxy cuts what is in progress, because it ends.
    has_ended: AtomicBool,
    /// The next file, until the thread takes it.
    next: Mutex<Option<Output>>,
}

/// Where lines go.
#[derive(Debug)]
enum Output {
    Stdout,
    File(File),
}

/// The log of a proxy. Its thread starts with the first settings that want it.
pub(crate) struct AccessLog {
    shared: Arc<Shared>,
    receiver: Mutex<Option<Receiver<Message>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A log that is open, and not yet in use.
pub(crate) struct OpenedLog(Option<(LogFormat, Output)>);

impl OpenedLog {
    /// Opens the file.
    ///
    /// # Errors
    /// It can't be opened for writing.
    pub(crate) fn open(settings: &AccessLogSettings) -> Result<Self, ProxyError> {
        let Some(format) = settings.format else { return Ok(OpenedLog(None)) };
        let output = match &settings.target {
            LogTarget::Stdout => Output::Stdout,
            LogTarget::File(path) => {
                let mut options = OpenOptions::new();
                // A pipe without a reader is an error, and no reason to wait.
                let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
                let opened = options.append(true).create(true).mode(0o640).custom_flags(flags).open(path);
                let failed = |source| ProxyError::AccessLog { path: path.clone(), source };
                Output::File(opened.map_err(failed)?)
            }
        };
        Ok(OpenedLog(Some((format, output))))
    }

    /// Checks that the file could be opened, and does not create it: it would be the caller's.
    ///
    /// # Errors
    /// As for [`OpenedLog::open`].
    pub(crate) fn check(settings: &AccessLogSettings) -> Result<(), ProxyError> {
        let (Some(_), LogTarget::File(path)) = (settings.format, &settings.target) else { return Ok(()) };
        if path.exists() {
            return OpenedLog::open(settings).map(drop);
        }
        check_folder(path).map_err(|source| ProxyError::AccessLog { path: path.clone(), source })
    }
}

impl AccessLog {
    pub(crate) fn new() -> Self {
        let (queue, receiver) = sync_channel(QUEUED_MAX);
        let has_ended = AtomicBool::new(false);
        let shared = Shared { queue, counts: LineCounts::default(), has_ended, next: Mutex::default() };
        AccessLog { shared: Arc::new(shared), receiver: Mutex::new(Some(receiver)), thread: Mutex::default() }
    }

    /// Writes to this file from now on; returns what requests need, if they are to be logged.
    ///
    /// # Errors
    /// The system can start no thread.
    pub(crate) fn switch(&self, opened: OpenedLog) -> std::io::Result<Option<LogSender>> {
        let Some((format, output)) = opened.0 else { return Ok(None) };
        *lock(&self.shared.next) = Some(output);
        if let Some(receiver) = lock(&self.receiver).take() {
            let writer = Writer::new(Arc::clone(&self.shared), receiver);
            let thread = std::thread::Builder::new().name("lw-proxy-log".into()).spawn(move || writer.run())?;
            *lock(&self.thread) = Some(thread);
        }
        // If the queue is full, the thread looks soon.
        let _ = self.shared.queue.try_send(Message::Reopen);
        Ok(Some(LogSender { format, shared: Arc::clone(&self.shared) }))
    }

    /// Writes what is in the queue, and ends the thread; a file that blocks is left.
    pub(crate) fn stop(&self) {
        let Some(thread) = lock(&self.thread).take() else { return };
        let end = Instant::now() + LAST;
        let mut has_told = false;
        while !thread.is_finished() && Instant::now() < end {
            has_told = has_told || self.shared.queue.try_send(Message::Stop).is_ok();
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Metrics as Prometheus text.
    pub(crate) fn metrics(&self) -> impl Fn() -> String + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.counts.metrics()
    }
}

impl LineCounts {
    fn metrics(&self) -> String {
        let counts = self;
        let mut text = String::from(
            "# HELP leeward_proxy_access_log_lines_total Lines of the access log: written, dropped because the queue \
             was full, failed to be written.\n# TYPE leeward_proxy_access_log_lines_total counter\n",
        );
        let lines = [("written", &counts.written), ("dropped", &counts.dropped), ("failed", &counts.failed)];
        for (result, count) in lines {
            let count = count.load(Ordering::Relaxed);
            let _ = writeln!(text, "leeward_proxy_access_log_lines_total{{result=\"{result}\"}} {count}");
        }
        text
    }
}

impl LogSender {
    /// Records that requests in progress are cut from now on.
    pub(crate) fn record_end(&self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.shared.has_ended.load(Ordering::Relaxed)
    }

    fn send(&self, entry: Entry) {
        if self.shared.queue.try_send(Message::Entry(Box::new((entry, self.format)))).is_err() {
            self.shared.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
