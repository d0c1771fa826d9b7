//! Counts the events of a run, without influence on it. Times are from the start of the run.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use leeward_core::client::LocalReason;
use leeward_core::units::{Nanos, Time};
pub use leeward_outcome::Distribution;
use leeward_rpc::client::{Event, RequestStage};
use leeward_rpc::wire::Method;

use crate::config::{AnswerCheck, LoadConfig, Plan};
use crate::report::{Adherence, ClientWindow, Connections, FineWindow, LoadReport, RequestCounts, RunEndReason};
use leeward_rpc::generator::RequestGenerator;

/// A request in flight: its due time and its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IssuedRequest {
    /// Due time.
    pub due: Time,
    /// The procedure that it called.
    pub method: Method,
    /// The bits from which it was generated.
    pub random: u64,
}

/// Name of failures with a wrong answer.
#[derive(Debug)]
struct WrongAnswer;

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// Reason for which it ended.
    pub ending: RunEndReason,
    /// Requests in the schedule; 0 in a closed loop.
    pub planned: u64,
}

/// Settings of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderConfig {
    /// Latency objective: a response within it, from the intended time, is good.
    pub slo: Nanos,
    /// Time after which an application gives up, from the intended time.
    pub timeout: Option<Nanos>,
    /// A request that is issued more than this after its time counts as late.
    pub late_after: Nanos,
    /// The part at the beginning that the measured counts exclude.
    pub warmup: Nanos,
    /// Time for which requests are issued.
    pub duration: Nanos,
    /// Window length of the time series; `None`: no time series.
    pub window: Option<Nanos>,
    /// Window length of the fine time series; `None`: no such series.
    pub fine_window: Option<Nanos>,
}

/// A run's results: the report and whole distributions for `.hgrm` files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunResults {
    /// The summary.
    pub report: LoadReport,
    /// Latency from the intended time.
    pub latency: Distribution,
    /// Latency from the time of sending.
    pub latency_from_send: Distribution,
    /// Time from sending a request to its rejection.
    pub reject_delay: Distribution,
}

struct Windows {
    length: Nanos,
    done: Vec<ClientWindow>,
    /// The window of `latency`.
    current: usize,
    latency: Distribution,
    /// Sum of the reject delays of each window, ns.
    reject_delays: Vec<u64>,
}

impl Windows {
    /// Index of the window that contains `at`. A run that stands still for hours gets one long last
    /// window.
    fn index(&self, at: Time) -> usize {
        (at.0 / self.length.0.max(1)).min(2 * WINDOWS_MAX) as usize
    }

    /// Counters of the window that contains `at`.
    fn counts(&mut self, at: Time) -> &mut RequestCounts {
        let index = self.index(at);
        while self.done.len() <= index {
            let start = Time(self.done.len() as u64 * self.length.0);
            self.done.push(ClientWindow { start, ..ClientWindow::default() });
            self.reject_delays.push(0);
        }
        &mut self.done[index].counts
    }

    fn record_completion(&mut self, now: Time, latency: Nanos) {
        let index = self.index(now);
        if index > self.current {
            self.close();
            self.current = index;
        }
        self.latency.record(latency);
    }

    /// Adds a rejection's reject delay; the rejection itself has been counted.
    fn record_rejection(&mut self, now: Time, delay: Nanos) {
        let index = self.index(now);
        if let (Some(sum), Some(window)) = (self.reject_delays.get_mut(index), self.done.get_mut(index)) {
            *sum = sum.saturating_add(delay.0);
            window.reject_delay_mean_ns = *sum as f64 / window.counts.dropped.max(1) as f64;
        }
    }

    /// The last window that ended by `now`, even if it is empty.
    fn latest(&self, now: Time) -> Option<ClientWindow> {
        let index = self.index(now).checked_sub(1)?;
        let nothing = ClientWindow { start: Time(index as u64 * self.length.0), ..ClientWindow::default() };
        let mut window = self.done.get(index).copied().unwrap_or(nothing);
        if index == self.current {
            // Not closed yet: no response has arrived since.
            window.latency = self.latency.percentiles();
        }
        Some(window)
    }

    fn close(&mut self) {
        let latency = self.latency.take();
        if let Some(window) = self.done.get_mut(self.current) {
            window.latency = latency;
        }
    }
}

/// Limit of a time series' windows: more would hide a mistaken length, and fill the memory.
pub(crate) const WINDOWS_MAX: u64 = 100_000;

/// Limit of different names of rejections, and of failures.
const NAMES_MAX: usize = 64;

/// Limit of different reasons for lost connections.
const REASONS_MAX: usize = 8;

/// Counters of a run. A load generator reports each event; times are from the start of the run.
///
/// Every request is issued once and has one end, which [`Recorder::finish`] checks.
pub struct Recorder {
    /// Checks answers.
    ask: Option<Arc<dyn RequestGenerator>>,
    answers: AnswerCheck,
    slo: Nanos,
    timeout: Nanos,
    late_after: Nanos,
    /// The measured part.
    from: Time,
    to: Time,
    /// The run is ending: a connection that closes now is not lost.
    closing: bool,
    totals: RequestCounts,
    measured: RequestCounts,
    latency: Distribution,
    latency_from_send: Distribution,
    reject_delay: Distribution,
    sojourn: Distribution,
    lateness: Distribution,
    drop_reasons: BTreeMap<String, u64>,
    failures: BTreeMap<String, u64>,
    failure_message: String,
    wrong_in_time: u64,
    connections: Connections,
    gives_credits: Option<bool>,
    content_bytes: u64,
    windows: Option<Windows>,
    fine: Option<(Nanos, Vec<FineWindow>)>,
}

impl Recorder {
    /// Creates the recorder of a run on a server of Leeward's protocol.
    pub(crate) fn for_plan(config: &LoadConfig, plan: &Plan) -> Self {
        let settings = RecorderConfig {
            slo: config.slo,
            timeout: config.timeout,
            late_after: config.late_after,
            warmup: config.warmup,
            duration: plan.duration(),
            window: config.window,
            fine_window: config.fine_window,
        };
        Recorder { ask: config.ask.clone(), answers: config.answers, ..Recorder::new(&settings) }
    }

    /// Creates a recorder without any event.
    pub fn new(config: &RecorderConfig) -> Self {
        Recorder {
            ask: None,
            answers: AnswerCheck::Any,
            slo: config.slo,
            timeout: config.timeout.unwrap_or(Nanos::MAX),
            late_after: config.late_after,
            from: Time::ZERO + config.warmup,
            to: Time::ZERO + config.duration,
            closing: false,
            totals: RequestCounts::default(),
            measured: RequestCounts::default(),
            latency: Distribution::new(),
            latency_from_send: Distribution::new(),
            reject_delay: Distribution::new(),
            sojourn: Distribution::new(),
            lateness: Distribution::new(),
            drop_reasons: BTreeMap::new(),
            failures: BTreeMap::new(),
            failure_message: String::new(),
            wrong_in_time: 0,
            connections: Connections::default(),
            gives_credits: None,
            content_bytes: 0,
            windows: config.window.map(|length| Windows {
                length,
                done: Vec::new(),
                current: 0,
                latency: Distribution::new(),
                reject_delays: Vec::new(),
            }),
            fine: config.fine_window.map(|length| (length, Vec::new())),
        }
    }

    /// Counts an event at `at`: in the totals, in the measured part, in its window.
    fn count(&mut self, at: Time, count: impl Fn(&mut RequestCounts)) {
        count(&mut self.totals);
        if at >= self.from && at < self.to {
            count(&mut self.measured);
        }
        if let Some(windows) = &mut self.windows {
            count(windows.counts(at));
        }
    }

    /// Counts a request due at `due`, which is submitted to the client now.
    pub fn record_issue(&mut self, now: Time, due: Time) {
        let lateness = now.since(due);
        let late = lateness > self.late_after;
        self.lateness.record(lateness);
        self.count(due, |counts| {
            counts.offered += 1;
            counts.late += u64::from(late);
        });
    }

    /// Counts a request's end.
    pub(crate) fn record_end(&mut self, now: Time, event: &Event<'_, IssuedRequest>) {
        let IssuedRequest { due, method, random } = *event.token();
        let age = now.since(due);
        match event {
            Event::Completed { payload, .. } if !self.is_answer(random, method, payload) => {
                self.record_failure(now, &WrongAnswer);
                let is_measured = now >= self.from && now < self.to;
                self.wrong_in_time += u64::from(is_measured && age <= self.slo.min(self.timeout));
            }
            Event::Completed { round_trip, sojourn, .. } => {
                self.record_completion(now, due, *round_trip, Some(*sojourn));
            }
            Event::Rejected { reason, round_trip, .. } => self.record_rejection(now, due, *round_trip, reason),
            Event::Failed { code, message, .. } => {
                if self.failure_message.is_empty() {
                    self.failure_message = message.as_str().into();
                }
                self.record_failure(now, code);
            }
            Event::EndedLocally { end, .. } => match end.reason {
                LocalReason::Overflow => self.count(now, |counts| counts.overflowed += 1),
                LocalReason::Throttled => self.count(now, |counts| counts.throttled += 1),
                // A reason that is new to this crate is an expiry of some kind.
                _ => self.record_expiry(now),
            },
            Event::TooLong { .. } => self.count(now, |counts| counts.too_long += 1),
            Event::Disconnected { .. } if self.closing && age > self.timeout => {
                self.record_age(now, due);
                self.count(now, |counts| counts.timed_out += 1);
            }
            Event::Disconnected { .. } if self.closing => self.record_unfinished(now, due),
            Event::Disconnected { stage: RequestStage::Sent, .. } => self.count(now, |counts| counts.disconnected += 1),
            // Waiting, or an end that is new to this crate: nothing was sent, as far as is known.
            _ => self.count(now, |counts| counts.unsent += 1),
        }
    }

    /// Counts a response to a request that was due at `due`.
    ///
    /// `round_trip` is the time from sending. `sojourn` is the time in the server, if the server
    /// reports it.
    pub fn record_completion(&mut self, now: Time, due: Time, round_trip: Nanos, sojourn: Option<Nanos>) {
        let age = now.since(due);
        // Latency is recorded even after the time-out: leaving out the worst would flatter.
        if due >= self.from {
            self.latency.record(age);
            self.latency_from_send.record(round_trip);
            if let Some(sojourn) = sojourn {
                self.sojourn.record(sojourn);
            }
        }
        let (in_time, good) = (age <= self.timeout, age <= self.slo.min(self.timeout));
        self.count(now, |counts| {
            counts.completed += u64::from(in_time);
            counts.timed_out += u64::from(!in_time);
            counts.good += u64::from(good);
        });
        if let Some(windows) = &mut self.windows {
            windows.record_completion(now, age);
        }
        self.count_fine(now, in_time, good);
    }

    /// Counts a rejection by the server, by the name that `reason` has in debug output.
    pub fn record_rejection(&mut self, now: Time, due: Time, round_trip: Nanos, reason: &impl Debug) {
        if due >= self.from {
            self.reject_delay.record(round_trip);
        }
        add(&mut self.drop_reasons, reason);
        self.count(now, |counts| counts.dropped += 1);
        if let Some(windows) = &mut self.windows {
            windows.record_rejection(now, round_trip);
        }
    }

    /// Counts an answer or an end that is no result, by the name that `code` has in debug output.
    pub fn record_failure(&mut self, now: Time, code: &impl Debug) {
        add(&mut self.failures, code);
        self.count(now, |counts| counts.failed += 1);
    }

    /// Counts a request that was sent and given up at its time-out. Its age is recorded as its
    /// latency, which is a lower bound.
    pub fn record_timeout(&mut self, now: Time, due: Time, round_trip: Nanos) {
        if due >= self.from {
            self.latency.record(now.since(due));
            self.latency_from_send.record(round_trip);
        }
        self.count(now, |counts| counts.timed_out += 1);
    }

    /// Counts a request that expired before it was sent.
    pub fn record_expiry(&mut self, now: Time) {
        self.count(now, |counts| counts.expired += 1);
    }

    /// Counts a request that was neither answered nor given up at the end of the run. Its age is
    /// recorded as its latency, which is a lower bound: leaving out the worst would flatter.
    pub fn record_unfinished(&mut self, now: Time, due: Time) {
        self.record_age(now, due);
        self.count(now, |counts| counts.unfinished += 1);
    }

    /// Records the age of a request without an answer as its latency.
    fn record_age(&mut self, now: Time, due: Time) {
        if due >= self.from {
            self.latency.record(now.since(due));
        }
    }

    /// Whether the answer is correct for its request.
    fn is_answer(&self, random: u64, method: Method, payload: &[u8]) -> bool {
        match &self.ask {
            Some(generator) => generator.is_answer(random, method, payload),
            None => self.answers == AnswerCheck::Any || payload.is_empty(),
        }
    }

    fn count_fine(&mut self, now: Time, in_time: bool, good: bool) {
        let Some((length, windows)) = &mut self.fine else { return };
        let index = (now.0 / length.0.max(1)).min(2 * WINDOWS_MAX) as usize;
        while windows.len() <= index {
            let start = Time(windows.len() as u64 * length.0);
            windows.push(FineWindow { start, completed: 0, good: 0 });
        }
        windows[index].completed += u64::from(in_time);
        windows[index].good += u64::from(good);
    }

    /// The last window of the time series that ended by `now`.
    pub fn latest_window(&self, now: Time) -> Option<ClientWindow> {
        self.windows.as_ref().and_then(|windows| windows.latest(now))
    }

    /// Requests issued and not ended.
    pub fn in_flight(&self) -> u64 {
        self.totals.offered - self.totals.total()
    }

    /// Counts so far, over the whole run.
    pub fn totals(&self) -> &RequestCounts {
        &self.totals
    }

    /// Counts a welcomed connection; its welcome tells whether windows bind.
    pub(crate) fn record_welcome(&mut self, gives_credits: bool) {
        self.record_open();
        self.gives_credits.get_or_insert(gives_credits);
    }

    /// Counts an open connection.
    pub fn record_open(&mut self) {
        self.connections.opened += 1;
    }

    /// Counts a connection that was opened in the place of another one.
    pub fn record_reopening(&mut self) {
        self.connections.reopened += 1;
    }

    /// Counts a request that waited too long for a connection.
    pub fn record_wait_for_connection(&mut self) {
        self.connections.waited_for += 1;
    }

    /// Adds to the bytes of the responses' contents.
    pub fn record_content(&mut self, bytes: u64) {
        self.content_bytes = self.content_bytes.saturating_add(bytes);
    }

    pub(crate) fn gives_credits(&self) -> Option<bool> {
        self.gives_credits
    }

    /// Counts a connection that was lost before the end of the run.
    pub fn record_loss(&mut self, reason: &str) {
        self.connections.lost += 1;
        let reasons = &mut self.connections.reasons;
        let key = if reasons.len() < REASONS_MAX || reasons.contains_key(reason) { reason } else { "other" };
        *reasons.entry(key.to_string()).or_default() += 1;
    }

    /// Ends the run early: rates are over the shorter time.
    pub fn end_early(&mut self, at: Time) {
        self.to = self.to.min(at);
    }

    /// Requests that end from now on count as unfinished.
    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    /// Returns the results, with violations of conservation among them.
    pub fn finish(mut self, run_end: &RunEnd) -> RunResults {
        if let Some(windows) = &mut self.windows {
            windows.close();
        }
        let measured_s = self.to.since(self.from).as_secs_f64();
        let per_second = |count: u64| if measured_s > 0.0 { count as f64 / measured_s } else { 0.0 };
        let mut violations = Vec::new();
        if !self.totals.is_balanced() {
            violations.push(format!("{} requests offered, {} ended", self.totals.offered, self.totals.total()));
        }
        let lateness = self.lateness.percentiles();
        let report = LoadReport {
            // The driver sets these two from the links.
            retransmitted: 0,
            duplicates: 0,
            ending: run_end.ending,
            planned: run_end.planned,
            duration_ns: self.to.0,
            warmup_ns: self.from.0,
            slo_ns: self.slo.0,
            totals: self.totals,
            measured: self.measured,
            throughput_per_s: per_second(self.measured.completed),
            goodput_per_s: per_second(self.measured.good),
            latency: self.latency.percentiles(),
            latency_from_send: self.latency_from_send.percentiles(),
            reject_delay: self.reject_delay.percentiles(),
            server_sojourn: self.sojourn.percentiles(),
            adherence: Adherence {
                late_after_ns: self.late_after.0,
                late_share: self.totals.late as f64 / self.totals.offered.max(1) as f64,
                lateness,
                kept: lateness.p99 <= self.slo,
            },
            drop_reasons: self.drop_reasons,
            failures: self.failures,
            failure_message: self.failure_message,
            wrong_in_time: self.wrong_in_time,
            connections: self.connections,
            content_bytes: self.content_bytes,
            classes: Vec::new(),
            gives_credits: self.gives_credits,
            windows: self.windows.map(|windows| windows.done).unwrap_or_default(),
            fine: self.fine.map(|(_, windows)| windows).unwrap_or_default(),
            violations,
        };
        RunResults {
            report,
            latency: self.latency,
            latency_from_send: self.latency_from_send,
            reject_delay: self.reject_delay,
        }
    }
}

/// Adds 1 to the count of `name`. Allocates only for the first count of each name.
fn add(counts: &mut BTreeMap<String, u64>, name: &impl Debug) {
    use std::fmt::Write;
    let mut text = NameBuffer { bytes: [0; 32], length: 0 };
    // A longer name is cut, which is no error here.
    let _ = write!(text, "{name:?}");
    let text = std::str::from_utf8(&text.bytes[..text.length]).unwrap_or("unnamed");
    if let Some(count) = counts.get_mut(text) {
        *count += 1;
        return;
    }
    // A server that invents names must not fill the memory.
    let name = if counts.len() < NAMES_MAX { text } else { "other" };
    *counts.entry(name.to_string()).or_default() += 1;
}

struct NameBuffer {
    bytes: [u8; 32],
    length: usize,
}

impl std::fmt::Write for NameBuffer {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let count = text.len().min(self.bytes.len() - self.length);
        self.bytes[self.length..self.length + count].copy_from_slice(&text.as_bytes()[..count]);
        self.length += count;
        Ok(())
    }
}
