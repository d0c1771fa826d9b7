//! Links calls of one process with the requests that they cause in others.
//!
//! Does not compare requests.

use super::align::ClockPair;
use super::gather::{ProcessRequests, TracedRequest};
use crate::hash::Map;

/// A request: index of its process, and index in that process's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RequestIndex {
    pub(super) process: u32,
    pub(super) request: u32,
}

/// Links between the requests of all processes.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    /// The request that each call of each process causes.
    called: Vec<Vec<Option<RequestIndex>>>,
    /// Whether a call causes the request, by process and request.
    is_called: Vec<Vec<bool>>,
    /// Traces of which a request without a parent is recorded: hashes, sorted.
    begun: Vec<u64>,
    /// Requests whose parent is the parent of another request, too.
    pub(super) duplicates: u64,
    /// Requests whose parent is another request itself, and not one of its calls.
    pub(super) without_call: u64,
    /// Requests with a parent that is in no recording.
    pub(super) without_caller: u64,
}

/// Hash of a span: programs may number their spans anew in each trace.
fn key(trace: u128, span: u64) -> u64 {
    let trace = (trace >> 64) as u64 ^ (trace as u64).rotate_left(23);
    (trace ^ span.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

impl Links {
    pub(super) fn new(processes: &[ProcessRequests]) -> Links {
        let mut by_parent: Map<u64, RequestIndex> = Map::default();
        let mut links = Links::default();
        for (process, own) in processes.iter().enumerate() {
            for (request, one) in own.requests.iter().enumerate().filter(|(_, one)| one.parent != 0) {
                let index = RequestIndex { process: process as u32, request: request as u32 };
                if *by_parent.entry(key(one.trace, one.parent)).or_insert(index) != index {
                    links.duplicates += 1;
                }
            }
            links.is_called.push(vec![false; own.requests.len()]);
            links.called.push(vec![None; own.calls.len()]);
        }
        let mut by_span: Vec<u64> = Vec::new();
        for (process, own) in processes.iter().enumerate() {
            for one in &own.requests {
                by_span.push(key(one.trace, one.span));
                if one.parent == 0 {
                    links.begun.push(key(one.trace, 0));
                }
                for call in one.calls() {
                    let span = own.calls[call].span;
                    let found = by_parent.get(&key(one.trace, span)).copied();
                    let found = found.filter(|found| {
                        let other = request(processes, *found);
                        (other.trace, other.parent) == (one.trace, span)
                    });
                    // Each request has one call: of calls with the same span the first counts.
                    if let Some(found) = found
                        && !std::mem::replace(
                            &mut links.is_called[found.process as usize][found.request as usize],
                            true,
                        )
                    {
                        links.called[process][call] = Some(found);
                    }
                }
            }
        }
        by_span.sort_unstable();
        links.begun.sort_unstable();
        for (own, is_called) in processes.iter().zip(&links.is_called) {
            for one in own.requests.iter().zip(is_called).filter(|(one, called)| one.parent != 0 && !**called) {
                let is_span = by_span.binary_search(&key(one.0.trace, one.0.parent)).is_ok();
                *(if is_span { &mut links.without_call } else { &mut links.without_caller }) += 1;
            }
        }
        links
    }

    /// Returns the request that a call of a process causes.
    pub(super) fn called(&self, process: usize, call: usize) -> Option<RequestIndex> {
        self.called[process][call]
    }

    /// Returns whether the trace begins with the request, or with a caller without a recording.
    pub(super) fn is_root(&self, processes: &[ProcessRequests], index: RequestIndex) -> bool {
        let one = request(processes, index);
        let is_begun = || self.begun.binary_search(&key(one.trace, 0)).is_ok();
        !self.is_called[index.process as usize][index.request as usize] && (one.parent == 0 || !is_begun())
    }

    /// Returns the process in which traces begin: most of its requests have no caller and call
    /// others. `None` if no call causes a request.
    pub(super) fn front(&self, processes: &[ProcessRequests]) -> Option<usize> {
        let calls_others =
            |process: usize, one: &TracedRequest| one.calls().any(|call| self.called[process][call].is_some());
        let of = |process: usize, begins: bool| {
            let requests = processes[process].requests.iter().zip(0..);
            let index = |request| RequestIndex { process: process as u32, request };
            let counts = |request| !begins || self.is_root(processes, index(request));
            requests.filter(|(one, request)| calls_others(process, one) && counts(*request)).count()
        };
        let numbers = 0..processes.len();
        let most = |begins| {
            let best = numbers.clone().map(|process| (of(process, begins), process));
            best.max_by_key(|(count, process)| (*count, usize::MAX - process)).filter(|(count, _)| *count > 0)
        };
        // In a circle of calls every request has a caller.
        most(true).or_else(|| most(false)).map(|(_, process)| process)
    }

    /// Iterates over the linked calls: called process, caller's process, and the caller's label for
    /// the called one.
    pub(super) fn peers<'a>(
        &'a self,
        processes: &'a [ProcessRequests],
    ) -> impl Iterator<Item = (usize, usize, u32)> + 'a {
        let of_process = |(process, called): (usize, &'a Vec<Option<RequestIndex>>)| {
            let calls = called.iter().zip(&processes[process].calls);
            calls.filter_map(move |(found, call)| Some((found.as_ref()?.process as usize, process, call.peer)))
        };
        self.called.iter().enumerate().flat_map(of_process)
    }

    /// Returns the answered calls from one process to another, by both clocks.
    ///
    /// A call that ends before its request, by their lengths, was given up: it bounds no clock.
    pub(super) fn pairs(&self, processes: &[ProcessRequests], from: usize, to: usize) -> Vec<ClockPair> {
        let own = &processes[from];
        let mut pairs = Vec::new();
        for (call, found) in own.calls.iter().zip(&self.called[from]) {
            if let (Some(found), Some(answered)) = (found, call.answered)
                && found.process as usize == to
            {
                let other = request(processes, *found);
                let pair = ClockPair { sent: call.sent, answered, start: other.start, end: other.end };
                pairs.extend((!pair.is_given_up()).then_some(pair));
            }
        }
        pairs
    }
}

/// Returns a request by its index.
pub(super) fn request(processes: &[ProcessRequests], index: RequestIndex) -> &TracedRequest {
    &processes[index.process as usize].requests[index.request as usize]
}
