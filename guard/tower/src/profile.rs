//! Requests for `leeward profile` (feature `profile`): the polls of a request's future and of its
//! body are its work. Without the feature all of this is empty.
//!
//! Does not contain how requests are reported, which is in `leeward-trace`.

use std::task::{Context, Poll};

#[cfg(feature = "profile")]
use leeward_trace::RequestPolls;

/// A request that is reported from its start until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct ProfiledRequest {
    #[cfg(feature = "profile")]
    polls: RequestPolls,
}

impl ProfiledRequest {
    /// Starts a request, if something records. This thread works on it until [`pause`].
    ///
    /// [`pause`]: ProfiledRequest::pause
    #[inline(always)]
    pub(crate) fn start() -> ProfiledRequest {
        #[cfg(feature = "profile")]
        {
            let mut polls = RequestPolls::new();
            polls.start();
            ProfiledRequest { polls }
        }
        #[cfg(not(feature = "profile"))]
        ProfiledRequest {}
    }

    /// Whether something records the request.
    #[inline(always)]
    pub(crate) fn is_reported(&self) -> bool {
        #[cfg(feature = "profile")]
        return self.polls.is_reported();
        #[cfg(not(feature = "profile"))]
        false
    }

    /// Names the kind of the request.
    #[inline(always)]
    pub(crate) fn label<'a>(&self, label: impl FnOnce() -> &'a str) {
        #[cfg(feature = "profile")]
        if self.is_reported() {
            self.polls.label(label());
        }
        #[cfg(not(feature = "profile"))]
        let _ = label;
    }

    /// This thread leaves the request until its future is polled.
    #[inline(always)]
    pub(crate) fn pause(&mut self) {
        #[cfg(feature = "profile")]
        self.polls.pause();
    }

    /// Runs a poll of the request.
    #[inline(always)]
    pub(crate) fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        #[cfg(feature = "profile")]
        return self.polls.poll(context, poll);
        #[cfg(not(feature = "profile"))]
        poll(context)
    }
}
