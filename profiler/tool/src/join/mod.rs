//! Recordings of several processes, joined by the trace ids that requests carry.
//!
//! | file | |
//! |---|---|
//! | `gather` | requests with a trace id, of one recording |
//! | `links` | which call of one process causes which request of another |
//! | `align`, `clocks` | one line of time for all processes |
//! | `path`, `compare` | the process that makes the slowest requests slow |
//! | `tree` | one request over all processes |
//!
//! Requests are those that programs mark and give a trace context. Does not open traces.

mod align;
mod clocks;
mod compare;
mod gather;
mod links;
mod path;
mod tree;

use std::collections::BTreeSet;
use std::path::PathBuf;

use thiserror::Error;

pub use align::{Alignment, ClockOffset, ClockPair, align};
pub use clocks::{ClockSource, ProcessClock};
pub use compare::{JoinedTail, Part, PartKind, Step};
pub use tree::{JoinedTimeline, RequestNode};

use crate::analysis::requests::CALLS_MAX;
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, Trace, TraceError};
use gather::{ProcessRequests, TracedRequest};
use links::{Links, RequestIndex};

/// Limit of recordings.
pub const TRACES_MAX: usize = 64;
/// Limit of requests in memory, over all recordings: about 250 MB with a call each.
const REQUESTS_MAX: usize = 1 << 20;

/// Reason why recordings can't be joined.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// A recording can't be read any more, or reading was stopped.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Two recordings are the same.
    #[error("{} and {} are the same recording", .0.display(), .1.display())]
    SameTrace(PathBuf, PathBuf),
    /// There are too few or too many recordings.
    #[error("`join` takes 2 to {TRACES_MAX} recordings; this is {0}")]
    Number(usize),
    /// Fewer than two recordings have trace ids. The text says which have none.
    #[error("{0}")]
    NoTraceIds(String),
    /// No call of one process causes a request of another. The text has the counts.
    #[error("{0}")]
    NoLinks(String),
}

/// Joined recordings.
#[derive(Debug)]
pub struct Joined<'a> {
    traces: &'a [Trace],
    names: Vec<String>,
    processes: Vec<ProcessRequests>,
    links: Links,
    clocks: Vec<ProcessClock>,
    front: usize,
    warnings: Vec<String>,
}

impl<'a> Joined<'a> {
    /// Joins recordings. Memory is bounded: of very many requests it keeps a random part of the
    /// traces, the same in all processes.
    ///
    /// # Errors
    /// The recordings have nothing in common, or can't be read any more.
    pub fn new(traces: &'a [Trace], watch: &mut ProgressCallback<'_>) -> Result<Joined<'a>, JoinError> {
        Joined::with_limit(traces, REQUESTS_MAX, watch)
    }

    fn with_limit(traces: &'a [Trace], most: usize, watch: &mut ProgressCallback<'_>) -> Result<Joined<'a>, JoinError> {
        if !(2..=TRACES_MAX).contains(&traces.len()) {
            return Err(JoinError::Number(traces.len()));
        }
        for (index, one) in traces.iter().enumerate() {
            if let Some(other) = traces[..index].iter().find(|other| is_same(one, other)) {
                return Err(JoinError::SameTrace(other.path().into(), one.path().into()));
            }
        }
        let mut names = names(traces);
        let mut processes = Vec::new();
        for trace in traces {
            processes.push(ProcessRequests::read(trace, most / traces.len(), watch)?);
        }
        if processes.iter().filter(|process| process.traced > 0).count() < 2 {
            let without = without_ids(&names, &processes);
            return Err(JoinError::NoTraceIds(format!("{}: see docs/profile-join.md", without.join("; "))));
        }
        let cutoff = processes.iter().map(|process| process.cutoff).min().unwrap_or(u64::MAX);
        processes.iter_mut().for_each(|process| process.keep(cutoff));
        let links = Links::new(&processes);
        let Some(front) = links.front(&processes) else { return Err(no_links(&names, &processes, &links)) };
        name_like_callers(&mut names, traces, links.peers(&processes));
        let mut warnings = without_ids(&names, &processes);
        if cutoff < u64::MAX {
            let share = cutoff as f64 * 100.0 / u64::MAX as f64;
            warnings.push(format!("too many requests for the memory: {share:.1} % of the traces are compared"));
        }
        let boots: Vec<&str> = traces.iter().map(|trace| trace.header().boot.as_str()).collect();
        let clocks = clocks::relate(&boots, front, |from, to| links.pairs(&processes, from, to));
        warnings.extend(defects(&links));
        for (name, process) in names.iter().zip(&processes).filter(|(_, process)| process.truncated > 0) {
            warnings.push(format!(
                "{} requests of {name} have more than {CALLS_MAX} calls: the later ones count as their own time",
                process.truncated
            ));
        }
        for (name, clock) in names.iter().zip(&clocks) {
            if clock.source == ClockSource::Unknown {
                warnings.push(format!(
                    "the clock of {name} can't be compared with that of {}: no calls between them, or contradicting \
                     times. Its requests are shown in the middle of their calls",
                    names[front]
                ));
            } else if clock.is_doubtful() {
                warnings.push(format!(
                    "the clock of {name} is doubtful: {} of {} calls contradict the others",
                    clock.contradicting, clock.calls
                ));
            }
        }
        Ok(Joined { traces, names, processes, links, clocks, front, warnings })
    }

    /// Returns what is wrong with the recordings, in sentences without a final full stop.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Iterates over the processes: name, number of requests with a trace id, and clock.
    pub fn processes(&self) -> impl Iterator<Item = (&str, u64, &ProcessClock)> {
        let of = self.names.iter().zip(&self.processes).zip(&self.clocks);
        of.map(|((name, process), clock)| (name.as_str(), process.traced, clock))
    }

    /// Compares the slowest requests of the front process with the others; `share` is the share of
    /// the slowest, such as 0.01. `symbols` belong to the traces, in the same order.
    ///
    /// # Errors
    /// A trace can't be read any more, or `watch` stops the reading.
    pub fn tail(
        &self,
        symbols: &mut [Symbols],
        share: f64,
        watch: &mut ProgressCallback<'_>,
    ) -> Result<JoinedTail, TraceError> {
        compare::compare(self, symbols, share, watch)
    }

    /// Returns the tree of a trace, or of the slowest one; `None` if no request of the front
    /// process belongs to the trace.
    pub fn tree(&self, trace: Option<u128>) -> Option<RequestNode> {
        tree::tree(self, trace)
    }

    /// Returns the timeline of a tree over all processes, by the clock of the front process.
    ///
    /// # Errors
    /// See [`Joined::tail`].
    pub fn timeline(
        &self,
        tree: &RequestNode,
        symbols: &mut [Symbols],
        watch: &mut ProgressCallback<'_>,
    ) -> Result<JoinedTimeline, TraceError> {
        tree::timeline(self, tree, symbols, watch)
    }

    fn at(&self, index: RequestIndex) -> &TracedRequest {
        links::request(&self.processes, index)
    }

    /// Returns the requests of the front process in which traces begin; all of its requests if
    /// every request has a caller.
    fn roots(&self) -> Vec<RequestIndex> {
        let process = self.front as u32;
        let all =
            (0..self.processes[self.front].requests.len() as u32).map(|request| RequestIndex { process, request });
        let is_root = |index: &RequestIndex| self.links.is_root(&self.processes, *index);
        let roots: Vec<RequestIndex> = all.clone().filter(is_root).collect();
        if roots.is_empty() { all.collect() } else { roots }
    }

    /// Names a process that was called, by its label in the caller's recording.
    fn peer(&self, process: usize, label: u32) -> String {
        self.traces[process].label(label).unwrap_or("another process").to_string()
    }
}

/// Returns whether two traces are the same recording: a copy, or a part of it.
fn is_same(one: &Trace, other: &Trace) -> bool {
    (one.header().id, one.header().pid) == (other.header().id, other.header().pid)
}

/// Names the processes after their programs; where these are the same, by the name with which each
/// was started, or with the process id.
fn names(traces: &[Trace]) -> Vec<String> {
    let file_name = |path: &str| path.rsplit('/').next().filter(|name| !name.is_empty()).map(String::from);
    let starts: Vec<String> = traces
        .iter()
        .map(|trace| file_name(trace.header().command.split(' ').next().unwrap_or_default()))
        .map(|name| name.unwrap_or_else(|| "process".into()))
        .collect();
    let programs: Vec<String> =
        traces.iter().zip(&starts).map(|(trace, start)| trace.program().unwrap_or(start).to_string()).collect();
    let count = |names: &[String], name: &String| names.iter().filter(|other| *other == name).count();
    let with_pids: Vec<String> = (0..traces.len())
        .map(|index| {
            let (program, start) = (&programs[index], &starts[index]);
            if count(&programs, program) == 1 {
                program.clone()
            } else if count(&starts, start) == 1 && (start == program || count(&programs, start) == 0) {
                start.clone()
            } else {
                format!("{program} ({})", traces[index].header().pid)
            }
        })
        .collect();
    // Containers may give their processes the same id.
    let numbered = with_pids.iter().enumerate().map(|(index, name)| match count(&with_pids[..index], name) {
        0 => name.clone(),
        before => format!("{name} #{}", before + 1),
    });
    numbered.collect()
}

/// Gives processes of the same program the name that callers use, if it is one for each.
///
/// `peers` are the called process, the caller's process, and the caller's label, of each call.
fn name_like_callers(names: &mut [String], traces: &[Trace], peers: impl Iterator<Item = (usize, usize, u32)>) {
    let peers: BTreeSet<(usize, usize, u32)> = peers.collect();
    let label = |(called, caller, label): (usize, usize, u32)| Some((called, traces[caller].label(label)?));
    let labels: BTreeSet<(usize, &str)> = peers.into_iter().filter_map(label).collect();
    for (called, label) in &labels {
        let is_only = labels.iter().all(|(other, name)| (other == called) == (name == label));
        let has_pid = names[*called].contains(&format!(" ({})", traces[*called].header().pid));
        if is_only && has_pid && !names.iter().any(|name| name == label) {
            names[*called] = (*label).to_string();
        }
    }
}

/// Says which processes have requests without a trace id.
fn without_ids(names: &[String], processes: &[ProcessRequests]) -> Vec<String> {
    let mut all = Vec::new();
    for (name, process) in names.iter().zip(processes) {
        match (process.traced, process.untraced) {
            (0, 0) => all.push(format!("no request ended in the recording of {name}")),
            (0, _) => all.push(format!("no request of {name} carries a trace id")),
            (_, 0) => {}
            (traced, untraced) => {
                all.push(format!("{untraced} of {} requests of {name} carry no trace id", traced + untraced));
            }
        }
    }
    all
}

fn no_links(names: &[String], processes: &[ProcessRequests], links: &Links) -> JoinError {
    let calls: usize = processes.iter().map(|process| process.calls.len()).sum();
    let mut text = format!("no call of one of {} is a request of another", names.join(", "));
    text += &match (calls, links.without_call) {
        (0, 0) => ": no request reports its calls to other processes".to_string(),
        (0, named) => format!(": {named} requests name a request as their caller, but no request reports its calls"),
        (calls, _) => format!(": of {calls} calls none has a request in the other recordings"),
    };
    JoinError::NoLinks(text)
}

/// Describes defects of the links.
fn defects(links: &Links) -> Vec<String> {
    let mut all = Vec::new();
    if links.duplicates > 0 {
        all.push(format!("{} requests name the same call as another request: the first one counts", links.duplicates));
    }
    if links.without_call > 0 {
        all.push(format!(
            "{} requests name a request as their caller that reports no such call: they are left out",
            links.without_call
        ));
    }
    all
}
