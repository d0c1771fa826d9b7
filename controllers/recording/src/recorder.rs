//! Recording: halves that forward each call to the inner halves and record it.

use super::block::{Block, BlockKind, End, EndReason};
use super::codec::Codec;
use super::entry::{Answer, Entry, SessionCall, SessionEntry};
use super::header::Header;
use leeward_core::server::{
    Admission, Arrival, ControlLoop, CoreGrant, CoreId, Departure, Downstream, Feedback, Gauges, Registration,
    ServerHalves, Session, SessionSlot, Signals, Verdict,
};
use leeward_core::sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering};
use leeward_core::units::{Method, Nanos, Time};
use leeward_threading::{PollSchedule, ThreadGauges, ThreadSignals, ThreadingPolicy, ThreadingSetup};

/// Error: the sink is full or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the recording's sink is full or gone")]
pub struct SinkFull;

/// Receiver of a recording's blocks. The cores' threads call it under the recording's mutex, so it
/// must not wait.
pub trait Sink: Send {
    /// Takes a block, to be written whole and in order, and returns an empty buffer for the next.
    ///
    /// # Errors
    /// [`SinkFull`]: the recording ends here.
    fn take(&mut self, block: Block) -> Result<Vec<u8>, SinkFull>;
}

/// Blocks left to write after a recording has ended.
#[derive(Clone, Debug)]
pub struct FinalBlocks {
    /// Blocks to write after all that the sink has taken.
    pub blocks: Vec<Block>,
    /// The end mark in the last of them.
    pub end: End,
}

/// Handle that ends a recording.
#[derive(Clone)]
pub struct Recorder {
    log: Arc<Log>,
}

impl Recorder {
    /// Whether calls are still being recorded.
    pub fn is_recording(&self) -> bool {
        self.log.is_open()
    }

    /// Ends the recording, unless it has ended, and releases the sink. Later calls are not
    /// recorded. A second call returns the end mark again.
    pub fn finish(&self) -> FinalBlocks {
        let mut pages = match self.log.pages.lock() {
            Ok(pages) => pages,
            Err(poisoned) => {
                let mut pages = poisoned.into_inner();
                pages.end(EndReason::Panicked);
                pages
            }
        };
        pages.end(EndReason::Complete);
        self.log.close();
        let mut blocks = Vec::new();
        if pages.reason != Some(EndReason::Overrun) && !pages.page.is_empty() {
            let payload = std::mem::take(&mut pages.page);
            blocks.push(Block { kind: BlockKind::Entries, payload });
        }
        let reason = pages.reason.unwrap_or(EndReason::Complete);
        let end = End { reason, entries: pages.entries, last: pages.last };
        blocks.push(end.block());
        FinalBlocks { blocks, end }
    }
}

impl Recorder {
    /// Wraps a threading policy, so that its decisions go to the same recording. The recording's
    /// header names it ([`Header::with_threading`]).
    pub fn threading(&self, policy: Box<dyn ThreadingPolicy>) -> Box<dyn ThreadingPolicy> {
        Box::new(RecordedPolicy { inner: policy, log: Arc::clone(&self.log) })
    }
}

/// Wraps a server's halves so that every call to them goes to `sink`, after the [`Header`]. For the
/// cost see the crate's documentation.
pub fn record(halves: ServerHalves, header: &Header, sink: Box<dyn Sink>) -> (ServerHalves, Recorder) {
    let mut pages = Pages {
        codec: Codec::default(),
        page: Vec::new(),
        page_start: Time::ZERO,
        sink: Some(sink),
        entries: 0,
        page_entries: 0,
        last: Time::ZERO,
        reason: None,
    };
    pages.flush(header.block());
    let log = Arc::new(Log { closed: AtomicU64::new(pages.reason.is_some().into()), pages: Mutex::new(pages) });
    let fast = halves.cores.into_iter().enumerate().map(|(core, inner)| {
        Box::new(RecordedCore { inner, core: CoreId(core as u32), log: Arc::clone(&log) }) as Box<dyn Admission>
    });
    let cores = fast.collect();
    let control = Box::new(RecordedLoop { inner: halves.control, log: Arc::clone(&log) });
    (ServerHalves { cores, control }, Recorder { log })
}

/// Length at which a page goes to the sink: a few thousand calls.
const PAGE: usize = 64 * 1024;
/// Age at which a page goes to the sink: the longest time that a killed process loses.
const MAX_PAGE_AGE: Nanos = Nanos::from_millis(100);
/// Reserved length for the longest entry.
const LONGEST_ENTRY: usize = 1_024;

struct Log {
    /// Not zero after the recording has ended. Separate from the mutex, so that an unrecorded call
    /// does not take it.
    closed: AtomicU64,
    pages: Mutex<Pages>,
}

struct Pages {
    codec: Codec,
    page: Vec<u8>,
    /// Time of the page's first entry.
    page_start: Time,
    /// `None` after the end.
    sink: Option<Box<dyn Sink>>,
    /// Entries of all pages, including the current one.
    entries: u64,
    /// Entries of the current page.
    page_entries: u64,
    last: Time,
    reason: Option<EndReason>,
}

impl Log {
    fn is_open(&self) -> bool {
        self.closed.load(Ordering::Relaxed) == 0
    }

    fn close(&self) {
        self.closed.store(1, Ordering::Relaxed);
    }

    /// Locks the log, if the call is to be recorded. The thread with the lock is the only one in
    /// the controller.
    fn lock_if_open(&self) -> Option<MutexGuard<'_, Pages>> {
        if !self.is_open() {
            return None;
        }
        // Poisoned: the controller panicked in the middle of a call, and no later call can be
        // replayed.
        let pages = self.pages.lock().ok()?;
        if pages.reason.is_some() {
            self.close();
            return None;
        }
        Some(pages)
    }
}

impl Pages {
    fn append(&mut self, entry: &Entry) {
        let now = entry.now().unwrap_or(self.last);
        if self.page.is_empty() {
            self.page_start = now;
        }
        self.last = now;
        self.codec.encode(entry, &mut self.page);
        self.entries += 1;
        self.page_entries += 1;
        if self.page.len() + LONGEST_ENTRY > PAGE || now.since(self.page_start) >= MAX_PAGE_AGE {
            let payload = std::mem::take(&mut self.page);
            self.flush(Block { kind: BlockKind::Entries, payload });
        }
    }

    fn flush(&mut self, block: Block) {
        match self.sink.as_mut().map_or(Err(SinkFull), |sink| sink.take(block)) {
            Ok(mut buffer) => {
                buffer.clear();
                buffer.reserve(PAGE);
                self.page = buffer;
            }
            Err(SinkFull) => {
                // The rejected page is lost.
                self.entries -= self.page_entries;
                self.end(EndReason::Overrun);
            }
        }
        self.page_entries = 0;
    }

    fn end(&mut self, reason: EndReason) {
        self.reason.get_or_insert(reason);
        self.sink = None;
    }
}

struct RecordedCore {
    inner: Box<dyn Admission>,
    core: CoreId,
    log: Arc<Log>,
}

impl RecordedCore {
    /// Makes a call about a session and records it.
    fn session<R: Copy>(
        &mut self,
        session: &mut Session,
        call: SessionCall,
        act: impl FnOnce(&mut dyn Admission, &mut Session) -> R,
        answer: impl FnOnce(R) -> Answer,
    ) -> R {
        let Some(mut pages) = self.log.lock_if_open() else { return act(self.inner.as_mut(), session) };
        let (pending, demand, before) = (session.pending(), session.demand, session.state::<[u64; 2]>());
        let result = act(self.inner.as_mut(), session);
        let after = session.state::<[u64; 2]>();
        pages.append(&Entry::Session(SessionEntry {
            core: self.core,
            slot: session.slot,
            pending,
            demand,
            call,
            answer: answer(result),
            window: session.window,
            method: if let SessionCall::Reply(_) = call { session.last_method() } else { Method::DEFAULT },
            custom: (after != before).then_some(after),
        }));
        result
    }
}

// A method that is not forwarded would be a decision that the recorded server silently does not
// make.
#[deny(clippy::missing_trait_methods)]
impl Admission for RecordedCore {
    fn open(&mut self, session: &mut Session, event: &Registration) {
        let call = SessionCall::Open(*event);
        self.session(session, call, |inner, session| inner.open(session, event), |()| Answer::Nothing);
    }

    fn request(&mut self, session: &mut Session, event: &Arrival) -> Verdict {
        let call = SessionCall::Request(*event);
        self.session(session, call, |inner, session| inner.request(session, event), Answer::Verdict)
    }

    fn on_dequeue(&mut self, waited: Nanos) -> Verdict {
        let Some(mut pages) = self.log.lock_if_open() else { return self.inner.on_dequeue(waited) };
        let verdict = self.inner.on_dequeue(waited);
        pages.append(&Entry::Dequeue { core: self.core, waited, verdict });
        verdict
    }

    fn reply(&mut self, session: &mut Session, event: &Departure) -> Feedback {
        let call = SessionCall::Reply(*event);
        self.session(session, call, |inner, session| inner.reply(session, event), Answer::Feedback)
    }

    fn demand(&mut self, session: &mut Session, now: Time) -> Option<Feedback> {
        let answer = |feedback: Option<Feedback>| feedback.map_or(Answer::Nothing, Answer::Feedback);
        self.session(session, SessionCall::Demand(now), |inner, session| inner.demand(session, now), answer)
    }

    fn next_to_wake(&mut self, random: u64) -> Option<SessionSlot> {
        let Some(mut pages) = self.log.lock_if_open() else { return self.inner.next_to_wake(random) };
        let chosen = self.inner.next_to_wake(random);
        pages.append(&Entry::NextToWake { core: self.core, random, chosen });
        chosen
    }

    fn wake(&mut self, session: &mut Session, now: Time) -> Feedback {
        self.session(session, SessionCall::Wake(now), |inner, session| inner.wake(session, now), Answer::Feedback)
    }

    fn close(&mut self, session: &mut Session, now: Time) {
        let call = SessionCall::Close(now);
        self.session(session, call, |inner, session| inner.close(session, now), |()| Answer::Nothing);
    }
}

struct RecordedLoop {
    inner: Box<dyn ControlLoop>,
    log: Arc<Log>,
}

#[deny(clippy::missing_trait_methods)]
impl ControlLoop for RecordedLoop {
    fn period(&self) -> Nanos {
        self.inner.period()
    }

    fn reaction(&self) -> Nanos {
        self.inner.reaction()
    }

    fn tick(&mut self, signals: &Signals) {
        let Some(mut pages) = self.log.lock_if_open() else { return self.inner.tick(signals) };
        self.inner.tick(signals);
        pages.append(&Entry::Tick { signals: *signals, gauges: self.inner.gauges() });
    }

    fn on_core_grant(&mut self, event: &CoreGrant) {
        let Some(mut pages) = self.log.lock_if_open() else { return self.inner.on_core_grant(event) };
        self.inner.on_core_grant(event);
        pages.append(&Entry::CoreGrant { event: *event, gauges: self.inner.gauges() });
    }

    fn set_downstream(&mut self, event: &Downstream) {
        let Some(mut pages) = self.log.lock_if_open() else { return self.inner.set_downstream(event) };
        self.inner.set_downstream(event);
        pages.append(&Entry::Downstream { event: *event, gauges: self.inner.gauges() });
    }

    fn gauges(&self) -> Gauges {
        self.inner.gauges()
    }
}

struct RecordedPolicy {
    inner: Box<dyn ThreadingPolicy>,
    log: Arc<Log>,
}

#[deny(clippy::missing_trait_methods)]
impl ThreadingPolicy for RecordedPolicy {
    fn initial(&self) -> ThreadingSetup {
        self.inner.initial()
    }

    fn choices(&self) -> Vec<ThreadingSetup> {
        self.inner.choices()
    }

    fn poll_schedule(&self) -> PollSchedule {
        self.inner.poll_schedule()
    }

    fn window(&self) -> usize {
        self.inner.window()
    }

    fn decide(&mut self, signals: &ThreadSignals) -> Option<ThreadingSetup> {
        let Some(mut pages) = self.log.lock_if_open() else { return self.inner.decide(signals) };
        let wanted = self.inner.decide(signals);
        pages.append(&Entry::Threading { signals: *signals, wanted, timeout: self.inner.next_timeout() });
        wanted
    }

    fn next_timeout(&self) -> Time {
        self.inner.next_timeout()
    }

    fn gauges(&self) -> ThreadGauges {
        self.inner.gauges()
    }
}
