//! Requests that hang at their backends: when to look at one, and how it gives its place up. Does
//! not contain the judgement ([`leeward_concurrency::dispatch`]).

use super::{Admission, Dispatcher, Stream, Token};
use leeward_core::units::Nanos;
use leeward_host::sync::lock;
use std::time::Duration;

/// Watches a request while it waits for its backend.
#[derive(Debug, Default)]
pub(crate) struct HangWatch {
    /// Wait after which the request is looked at; `None`: it is not, any more.
    next: Option<Duration>,
    /// Answers of the backend from which others have overtaken it.
    overtaken_at: u64,
}

impl HangWatch {
    /// Watches a request that begins to wait.
    pub(crate) fn new(admission: &Admission, stream: &Stream) -> HangWatch {
        let Some(backend) = stream.backend() else { return HangWatch::default() };
        let state = lock(&admission.0.state);
        let (after, overtaken_at) = (state.dispatcher.hang_after(backend), state.dispatcher.overtaken_at(backend));
        HangWatch { next: Some(Duration::from_nanos(after.0)), overtaken_at }
    }

    /// Wait after which [`HangWatch::look`] has something to do.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.next
    }

    /// Looks at the request, which has waited for so long, and frees its place if it hangs.
    pub(crate) fn look(&mut self, admission: &Admission, stream: &Stream, waited: Duration) {
        let Some(next) = self.next else { return };
        self.next = stream.backend().and_then(|backend| {
            let mut state = lock(&admission.0.state);
            if waited < next {
                // The backend has got a piece of the request meanwhile, or the timer was early.
                if waited < next / 2 {
                    self.overtaken_at = state.dispatcher.overtaken_at(backend);
                }
                return Some(next);
            }
            let now = admission.now();
            let so_long = Nanos::from(waited);
            let hangs = state.dispatcher.gives_up_place(now, backend, so_long, self.overtaken_at);
            drop(state);
            if hangs {
                stream.record_hang();
                admission.free_place(stream);
            }
            (!hangs).then(|| Duration::from_nanos(Dispatcher::<Token>::next_look(so_long).0))
        });
    }
}
