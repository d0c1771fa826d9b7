//! Metrics pushed by OTLP over HTTP, in JSON: the families of `/metrics`, from a thread of its own.
//!
//! - `receiver`: where they go. `exchange`: one request and its answer. `tally`: what became of them.
//!
//! A receiver that is slow, gone or full costs this thread its time and nobody else anything. Counts are cumulative: an export that
//! is lost is made up for by the next one, so that none is repeated and none is kept.
//!
//! Never here: which metrics there are.

mod exchange;
mod receiver;
mod tally;

pub use receiver::{NoReceiver, Receiver};
pub(crate) use tally::Tally;

use crate::server::AdminError;
use crate::sources::Sources;
use exchange::{Failed, Taken};
use leeward_observe::exposition::{Beginnings, render_otlp};
use leeward_observe::unix_ns;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an export may take, from looking up the host to the end of the answer, as far as this thread has a say.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same for the last one, when the exporter ends.
const FAREWELL: Duration = Duration::from_secs(1);
/// A receiver may ask for as much time before the next export.
const LONGEST_REST: Duration = Duration::from_secs(300);
/// News that nobody asks for are kept up to so many.
const NEWS: usize = 16;

/// A running export. It ends, with a last export, when it is dropped.
#[derive(Debug)]
pub struct Exporter {
    /// Its end tells the thread to end.
    bell: Option<mpsc::Sender<()>>,
    /// Hears nothing but the thread's end.
    over: mpsc::Receiver<()>,
    news: Arc<Mutex<Vec<String>>>,
}

impl Exporter {
    /// Exports the metrics of `sources` to `receiver` `every` so often; `resource` says whose they are, such as `service.name`.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start(
        receiver: Receiver,
        every: Duration,
        sources: Sources,
        resource: Vec<(&'static str, String)>,
    ) -> Result<Exporter, AdminError> {
        let (bell, heard) = mpsc::channel();
        let (ended, over) = mpsc::channel();
        let news = Arc::new(Mutex::new(Vec::new()));
        let tally = sources.exports();
        let beginnings = Beginnings::default();
        let mut work = Work { receiver, sources, resource, tally, beginnings, news: Arc::clone(&news), trouble: None };
        std::thread::Builder::new().name("otlp".into()).spawn(move || {
            work.run(&heard, every);
            drop(ended);
        })?;
        Ok(Exporter { bell: Some(bell), over, news })
    }

    /// Words about exports that fail, or are taken again, since this was asked last.
    pub fn news(&self) -> Vec<String> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        drop(self.bell.take());
        // A thread that waits for a name server is left behind: it has nothing that others need.
        let _ = self.over.recv_timeout(FAREWELL + FAREWELL / 2);
    }
}

/// All that the thread has.
struct Work {
    receiver: Receiver,
    sources: Sources,
    resource: Vec<(&'static str, String)>,
    tally: Arc<Tally>,
    beginnings: Beginnings,
    news: Arc<Mutex<Vec<String>>>,
    /// Kind of the failure that was told last, while there is one.
    trouble: Option<String>,
}

impl Work {
    fn run(&mut self, bell: &mpsc::Receiver<()>, every: Duration) {
        let mut rest = every;
        while let Err(RecvTimeoutError::Timeout) = bell.recv_timeout(rest) {
            let began = Instant::now();
            // An answer later than the next export is due would only push that one back.
            let asked = self.export(PATIENCE.min(every)).map_or(Duration::ZERO, |rest| rest.min(LONGEST_REST));
            rest = every.saturating_sub(began.elapsed()).max(asked);
        }
        self.export(FAREWELL);
    }

    /// Exports once; the rest that the receiver asks for, if it does.
    fn export(&mut self, limit: Duration) -> Option<Duration> {
        let (snapshots, process) = (self.sources.snapshots(), self.sources.process());
        let body = render_otlp(&snapshots, &process, &self.resource, unix_ns(), &mut self.beginnings);
        match exchange::post(&self.receiver, &body, Instant::now() + limit) {
            Ok(taken) => {
                self.tally.accept(taken.rejected);
                self.tell_of_success(&taken);
                None
            }
            Err(failed) => {
                self.tally.fail(&failed);
                self.tell_of_failure(&failed);
                failed.rest()
            }
        }
    }

    fn tell_of_success(&mut self, taken: &Taken) {
        if taken.rejected > 0 {
            let kind = "partial".to_string();
            if self.trouble.as_ref() != Some(&kind) {
                self.tell(format!("{} of the points are not taken: {}", taken.rejected, taken.words));
            }
            self.trouble = Some(kind);
        } else if self.trouble.take().is_some() {
            self.tell("metrics are taken again".into());
        }
    }

    /// Each kind of failure once: a receiver that stays away is no news.
    fn tell_of_failure(&mut self, failed: &Failed) {
        let kind = failed.kind();
        if self.trouble.as_ref() != Some(&kind) {
            self.tell(format!("{failed}; the next export comes in its time"));
        }
        self.trouble = Some(kind);
    }

    fn tell(&self, words: String) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        if news.len() < NEWS {
            news.push(format!("{}: {words}", self.receiver));
        }
    }
}
