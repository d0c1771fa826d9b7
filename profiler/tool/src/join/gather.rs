//! Requests with a trace context, read from one trace in bounded memory.
//!
//! Does not link the requests of different processes.

use crate::analysis::requests::{CALLS_MAX, Request};
use crate::analysis::select::{Selection, Selector};
use crate::format::context::RemoteCall;
use crate::trace::{ProgressCallback, Trace, TraceError};

/// A request that carries a trace id. Times in nanoseconds of its own process's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TracedRequest {
    pub(super) trace: u128,
    pub(super) span: u64,
    pub(super) parent: u64,
    /// The request's id in its process.
    pub(super) id: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) idle: u64,
    pub(super) label: u32,
    /// Index of its first call, and their number.
    first_call: u32,
    call_count: u32,
}

impl TracedRequest {
    pub(super) fn latency(&self) -> u64 {
        self.end.saturating_sub(self.start).saturating_sub(self.idle)
    }

    /// Returns whether this is the request.
    pub(super) fn is(&self, request: &Request) -> bool {
        (self.id, self.start, self.end) == (request.id, request.start, request.end)
    }

    /// Returns the indices of its calls in [`ProcessRequests::calls`].
    pub(super) fn calls(&self) -> std::ops::Range<usize> {
        self.first_call as usize..(self.first_call + self.call_count) as usize
    }
}

/// The traced requests of a process, and their calls to other processes.
#[derive(Clone, Debug)]
pub(super) struct ProcessRequests {
    pub(super) requests: Vec<TracedRequest>,
    pub(super) calls: Vec<RemoteCall>,
    /// Requests without a trace id.
    pub(super) untraced: u64,
    /// Requests with a trace id, kept or not.
    pub(super) traced: u64,
    /// Requests with more calls than are remembered.
    pub(super) truncated: u64,
    /// Traces are kept whose hash is no greater.
    pub(super) cutoff: u64,
}

/// Returns a hash by which all processes keep the same traces when there are too many.
fn hash(trace: u128) -> u64 {
    let mixed = ((trace >> 64) as u64 ^ trace as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    // Never 0, so that a cutoff of 0 keeps nothing.
    (mixed ^ mixed >> 32).wrapping_mul(0xBF58_476D_1CE4_E5B9) | 1
}

impl ProcessRequests {
    /// Reads the requests of a trace. If there are more than `most` requests or calls, those of a
    /// random part of the traces are kept.
    pub(super) fn read(
        trace: &Trace,
        most: usize,
        watch: &mut ProgressCallback<'_>,
    ) -> Result<ProcessRequests, TraceError> {
        let mut own = ProcessRequests::new();
        Selector::all(trace, &Selection::Marked, watch, |request| own.add(&request, most))?;
        Ok(own)
    }

    fn new() -> ProcessRequests {
        let (requests, calls) = (Vec::new(), Vec::new());
        ProcessRequests { requests, calls, untraced: 0, traced: 0, truncated: 0, cutoff: u64::MAX }
    }

    fn add(&mut self, request: &Request, most: usize) {
        let Some(context) = request.context.as_deref().filter(|context| context.trace != 0) else {
            self.untraced += 1;
            return;
        };
        self.traced += 1;
        self.truncated += u64::from(request.truncated && context.calls.len() >= CALLS_MAX);
        if hash(context.trace) > self.cutoff {
            return;
        }
        self.requests.push(TracedRequest {
            trace: context.trace,
            span: context.span,
            parent: context.parent,
            id: request.id,
            start: request.start,
            end: request.end,
            idle: request.idle,
            label: request.label,
            first_call: self.calls.len() as u32,
            call_count: context.calls.len() as u32,
        });
        self.calls.extend(&context.calls);
        while self.requests.len() > most || self.calls.len() > most.saturating_mul(2) {
            self.keep(self.cutoff / 2);
        }
    }

    /// Keeps the traces whose hash is at most `cutoff`.
    pub(super) fn keep(&mut self, cutoff: u64) {
        if cutoff >= self.cutoff {
            return;
        }
        self.cutoff = cutoff;
        let calls = std::mem::take(&mut self.calls);
        let mut kept = Vec::with_capacity(calls.len() / 2);
        self.requests.retain_mut(|request| {
            if hash(request.trace) > cutoff {
                return false;
            }
            let own = &calls[request.calls()];
            request.first_call = kept.len() as u32;
            kept.extend(own);
            true
        });
        self.calls = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::context::RequestContext;

    fn request(trace: u128, calls: usize) -> Request {
        let call = |span| RemoteCall { span, peer: 0, sent: 1, answered: Some(2) };
        let calls = (0..calls as u64).map(|call_number| call(trace as u64 * 100 + call_number)).collect();
        Request {
            id: trace as u64,
            start: 0,
            end: 9,
            work: Vec::new(),
            queued: Vec::new(),
            truncated: false,
            label: 0,
            idle: 0,
            context: Some(Box::new(RequestContext { trace, span: 1, parent: 0, calls })),
        }
    }

    #[test]
    fn too_many_requests_leave_whole_traces_with_their_calls() {
        let (mut many, mut few) = (ProcessRequests::new(), ProcessRequests::new());
        for trace in 1..=10_000 {
            many.add(&request(trace, 3), 1000);
            few.add(&request(trace, 1), 1_000_000);
        }
        assert!((250..=1000).contains(&many.requests.len()), "{}", many.requests.len());
        assert_eq!((many.traced, few.traced, few.requests.len()), (10_000, 10_000, 10_000));
        for one in &many.requests {
            let spans: Vec<u64> = many.calls[one.calls()].iter().map(|call| call.span).collect();
            assert_eq!(spans, [0, 1, 2].map(|call| one.id * 100 + call));
        }
        // The other process keeps the same traces.
        few.keep(many.cutoff);
        let traces = |of: &ProcessRequests| of.requests.iter().map(|one| one.trace).collect::<Vec<_>>();
        assert_eq!(traces(&few), traces(&many));
    }

    #[test]
    fn one_trace_with_too_many_requests_is_discarded() {
        let mut own = ProcessRequests::new();
        for _ in 0..100 {
            own.add(&request(7, 1), 10);
        }
        assert!(own.requests.is_empty() && own.calls.is_empty());
        assert_eq!(own.traced, 100);
    }
}
