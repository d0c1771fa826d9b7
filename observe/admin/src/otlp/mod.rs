//! Pushes metrics by OTLP over HTTP, in JSON: the families of `/metrics`, from a thread of its own.
//!
//! - `endpoint`: address of the receiver. `exchange`: one request and its response. `counters`:
//!   exports by result.
//!
//! A slow, missing or full receiver delays only this thread. Counts are cumulative: the next export
//! makes up for a lost one, so no export is repeated or stored.
//!
//! Does not contain the list of metrics.

mod counters;
mod endpoint;
mod exchange;

pub(crate) use counters::ExportCounters;
pub use endpoint::{OtlpEndpoint, ParseEndpointError};

use crate::server::AdminError;
use crate::sources::Sources;
use exchange::{ExportError, ExportReply};
use leeward_observe::exposition::{StartTimes, render_otlp};
use leeward_observe::unix_ns;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time limit of an export, from resolving the host to the end of the response. Name resolution
/// itself cannot be interrupted.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of the last export, when the exporter stops.
const FINAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest delay that a receiver may ask for before the next export.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// Maximum of messages that are kept until they are taken.
const MESSAGES_MAX: usize = 16;

/// A running exporter. Dropping it stops it, after a last export.
#[derive(Debug)]
pub struct Exporter {
    /// Dropping this sender stops the thread.
    stop_sender: Option<mpsc::Sender<()>>,
    /// Receives nothing; disconnects when the thread ends.
    done: mpsc::Receiver<()>,
    messages: Arc<Mutex<Vec<String>>>,
}

impl Exporter {
    /// Exports the metrics of `sources` to `receiver` once per `every`. `resource` has the resource
    /// attributes, such as `service.name`.
    ///
    /// # Errors
    /// Fails if the system cannot start a thread.
    pub fn start(
        receiver: OtlpEndpoint,
        every: Duration,
        sources: Sources,
        resource: Vec<(&'static str, String)>,
    ) -> Result<Exporter, AdminError> {
        let (stop_sender, stop_receiver) = mpsc::channel();
        let (done_sender, done_receiver) = mpsc::channel();
        let message_list = Arc::new(Mutex::new(Vec::new()));
        let export_counters = sources.export_counters();
        let beginnings = StartTimes::default();
        let mut work = ExportWorker {
            endpoint: receiver,
            sources,
            resource,
            counters: export_counters,
            start_times: beginnings,
            messages: Arc::clone(&message_list),
            last_failure: None,
        };
        std::thread::Builder::new().name("otlp".into()).spawn(move || {
            work.run(&stop_receiver, every);
            drop(done_sender);
        })?;
        Ok(Exporter { stop_sender: Some(stop_sender), done: done_receiver, messages: message_list })
    }

    /// Takes the messages since the last call: exports that fail, and exports that succeed again.
    pub fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        drop(self.stop_sender.take());
        // A thread that is still resolving a name is left to run: nothing else depends on it.
        let _ = self.done.recv_timeout(FINAL_TIMEOUT + FINAL_TIMEOUT / 2);
    }
}

/// State of the exporter's thread.
struct ExportWorker {
    endpoint: OtlpEndpoint,
    sources: Sources,
    resource: Vec<(&'static str, String)>,
    counters: Arc<ExportCounters>,
    start_times: StartTimes,
    messages: Arc<Mutex<Vec<String>>>,
    /// Kind of the failure that was reported last, while exports fail.
    last_failure: Option<String>,
}

impl ExportWorker {
    fn run(&mut self, stop: &mpsc::Receiver<()>, every: Duration) {
        let mut delay = every;
        while let Err(RecvTimeoutError::Timeout) = stop.recv_timeout(delay) {
            let began = Instant::now();
            // Waiting longer than `every` for a response would only delay the next export.
            let asked = self.export(EXPORT_TIMEOUT.min(every)).map_or(Duration::ZERO, |rest| rest.min(RETRY_AFTER_MAX));
            delay = every.saturating_sub(began.elapsed()).max(asked);
        }
        self.export(FINAL_TIMEOUT);
    }

    /// Exports once; returns the delay that the receiver asks for.
    fn export(&mut self, limit: Duration) -> Option<Duration> {
        let (snapshots, process) = (self.sources.snapshots(), self.sources.process());
        let body = render_otlp(&snapshots, &process, &self.resource, unix_ns(), &mut self.start_times);
        match exchange::post(&self.endpoint, &body, Instant::now() + limit) {
            Ok(taken) => {
                self.counters.accept(taken.rejected);
                self.report_success(&taken);
                None
            }
            Err(failed) => {
                self.counters.fail(&failed);
                self.report_failure(&failed);
                failed.retry_after()
            }
        }
    }

    fn report_success(&mut self, taken: &ExportReply) {
        if taken.rejected > 0 {
            let kind = "partial".to_string();
            if self.last_failure.as_ref() != Some(&kind) {
                self.report(format!("{} of the points were rejected: {}", taken.rejected, taken.message));
            }
            self.last_failure = Some(kind);
        } else if self.last_failure.take().is_some() {
            self.report("metrics are accepted again".into());
        }
    }

    /// Reports each kind of failure once, so that a receiver that stays away is not reported again.
    fn report_failure(&mut self, failed: &ExportError) {
        let kind = failed.kind();
        if self.last_failure.as_ref() != Some(&kind) {
            self.report(format!("{failed}; the next export follows as scheduled"));
        }
        self.last_failure = Some(kind);
    }

    fn report(&self, message: String) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() < MESSAGES_MAX {
            messages.push(format!("{}: {message}", self.endpoint));
        }
    }
}
