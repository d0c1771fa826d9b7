//! Metrics pushed by OTLP over HTTP, in JSON: the families of `/metrics`, from a thread of its own.
//!
//! - `receiver`: where they go. `exchange`: one request and its answer. `tally`: what became of them.
//!
//! A receiver that is slow, gone or full costs this thread its time and nobody else anything. Counts are cumulative: an export that
//! is lost is made up for by the next one, so that none is repeated and none is kept.
//!
//! Never here: which metrics there are.

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

/// How long an export may take, from looking up the host to the end of the answer, as far as this thread has a say.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// The same for the last one, when the exporter ends.
const FINAL_TIMEOUT: Duration = Duration::from_secs(1);
/// A receiver may ask for as much time before the next export.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// News that nobody asks for are kept up to so many.
const MESSAGES_MAX: usize = 16;

/// A running export. It ends, with a last export, when it is dropped.
#[derive(Debug)]
pub struct Exporter {
    /// Its end tells the thread to end.
    stop_sender: Option<mpsc::Sender<()>>,
    /// Hears nothing but the thread's end.
    done: mpsc::Receiver<()>,
    messages: Arc<Mutex<Vec<String>>>,
}

impl Exporter {
    /// Exports the metrics of `sources` to `receiver` `every` so often; `resource` says whose they are, such as `service.name`.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start(
        receiver: OtlpEndpoint,
        every: Duration,
        sources: Sources,
        resource: Vec<(&'static str, String)>,
    ) -> Result<Exporter, AdminError> {
        let (bell, heard) = mpsc::channel();
        let (ended, over) = mpsc::channel();
        let news = Arc::new(Mutex::new(Vec::new()));
        let tally = sources.export_counters();
        let beginnings = StartTimes::default();
        let mut work = ExportWorker {
            endpoint: receiver,
            sources,
            resource,
            counters: tally,
            start_times: beginnings,
            messages: Arc::clone(&news),
            last_failure: None,
        };
        std::thread::Builder::new().name("otlp".into()).spawn(move || {
            work.run(&heard, every);
            drop(ended);
        })?;
        Ok(Exporter { stop_sender: Some(bell), done: over, messages: news })
    }

    /// Words about exports that fail, or are taken again, since this was asked last.
    pub fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        drop(self.stop_sender.take());
        // A thread that waits for a name server is left behind: it has nothing that others need.
        let _ = self.done.recv_timeout(FINAL_TIMEOUT + FINAL_TIMEOUT / 2);
    }
}

/// All that the thread has.
struct ExportWorker {
    endpoint: OtlpEndpoint,
    sources: Sources,
    resource: Vec<(&'static str, String)>,
    counters: Arc<ExportCounters>,
    start_times: StartTimes,
    messages: Arc<Mutex<Vec<String>>>,
    /// Kind of the failure that was told last, while there is one.
    last_failure: Option<String>,
}

impl ExportWorker {
    fn run(&mut self, bell: &mpsc::Receiver<()>, every: Duration) {
        let mut rest = every;
        while let Err(RecvTimeoutError::Timeout) = bell.recv_timeout(rest) {
            let began = Instant::now();
            // An answer later than the next export is due would only push that one back.
            let asked = self.export(EXPORT_TIMEOUT.min(every)).map_or(Duration::ZERO, |rest| rest.min(RETRY_AFTER_MAX));
            rest = every.saturating_sub(began.elapsed()).max(asked);
        }
        self.export(FINAL_TIMEOUT);
    }

    /// Exports once; the rest that the receiver asks for, if it does.
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
                self.report(format!("{} of the points are not taken: {}", taken.rejected, taken.message));
            }
            self.last_failure = Some(kind);
        } else if self.last_failure.take().is_some() {
            self.report("metrics are taken again".into());
        }
    }

    /// Each kind of failure once: a receiver that stays away is no news.
    fn report_failure(&mut self, failed: &ExportError) {
        let kind = failed.kind();
        if self.last_failure.as_ref() != Some(&kind) {
            self.report(format!("{failed}; the next export comes in its time"));
        }
        self.last_failure = Some(kind);
    }

    fn report(&self, words: String) {
        let mut news = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if news.len() < MESSAGES_MAX {
            news.push(format!("{}: {words}", self.endpoint));
        }
    }
}
