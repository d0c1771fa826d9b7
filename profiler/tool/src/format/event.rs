//! Events, and the decoder of a block of events. Decoded times are in nanoseconds.

use super::context::{self, ContextField, OtherEvent};
use super::meta::Clock;
use super::short_event::ShortEvent;
use super::varint::{Cursor, FormatError, difference};

/// An event. `time` is its end, in nanoseconds of `CLOCK_MONOTONIC`; spans reach back from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// The writer's number of the thread.
    pub thread: u32,
    /// Kind and details of the event.
    pub kind: EventKind,
}

/// Kind of a lock or other awaited object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKind {
    /// A mutex.
    Mutex,
    /// An rwlock, for reading.
    Reader,
    /// An rwlock, for writing.
    Writer,
    /// A condition variable.
    Condition,
    /// A spin lock.
    Spin,
    /// A semaphore.
    Semaphore,
    /// A thread that is joined.
    Join,
    /// Any other object.
    Other,
}

impl ObjectKind {
    const ALL: [ObjectKind; 8] = [
        ObjectKind::Mutex,
        ObjectKind::Reader,
        ObjectKind::Writer,
        ObjectKind::Condition,
        ObjectKind::Spin,
        ObjectKind::Semaphore,
        ObjectKind::Join,
        ObjectKind::Other,
    ];

    fn from_marks(marks: u8) -> ObjectKind {
        ObjectKind::ALL[usize::from(marks >> 4 & 7)]
    }

    pub(crate) fn marks(self) -> u8 {
        (self as u8) << 4
    }

    /// Returns the name for output.
    pub fn name(self) -> &'static str {
        match self {
            ObjectKind::Mutex => "mutex",
            ObjectKind::Reader => "rwlock (reading)",
            ObjectKind::Writer => "rwlock (writing)",
            ObjectKind::Condition => "condition variable",
            ObjectKind::Spin => "spin lock",
            ObjectKind::Semaphore => "semaphore",
            ObjectKind::Join => "end of a thread",
            ObjectKind::Other => "object",
        }
    }
}

/// Kind and details of an event. Spans in nanoseconds; addresses as in the process, 0 for unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A call of a function ended.
    Call {
        /// An address in the function.
        function: u64,
        /// The return address.
        caller: u64,
        /// Duration of the call.
        duration: u64,
        /// Recorded part of the call.
        extent: Extent,
    },
    /// A lock was awaited, held and released.
    Held {
        /// Kind of lock.
        object: ObjectKind,
        /// The lock's address.
        lock: u64,
        /// Address at which it was taken.
        site: u64,
        /// Duration of the wait before.
        wait: u64,
        /// Duration of the hold.
        hold: u64,
    },
    /// A wait ended without a lock.
    Waited {
        /// Kind of the object.
        object: ObjectKind,
        /// The object's address.
        lock: u64,
        /// Address of the wait.
        site: u64,
        /// Duration of the wait.
        wait: u64,
    },
    /// A lock was taken.
    Acquired {
        /// Kind of lock.
        object: ObjectKind,
        /// The lock's address.
        lock: u64,
        /// Address at which it was taken.
        site: u64,
        /// Duration of the wait before.
        wait: u64,
    },
    /// A lock was released.
    Released {
        /// Kind of lock.
        object: ObjectKind,
        /// The lock's address.
        lock: u64,
        /// Address of the release.
        site: u64,
    },
    /// The thread begins to work on a request.
    RequestStart {
        /// The request.
        id: u64,
        /// The queue from which the request was taken.
        queue: Option<u64>,
    },
    /// The thread stops working on a request.
    RequestBlock {
        /// The request.
        id: u64,
        /// The queue into which the request is put.
        queue: Option<u64>,
    },
    /// A request ended.
    RequestEnd {
        /// The request.
        id: u64,
    },
    /// All requests of the thread ended.
    RequestEndAll,
    /// A request gets a label, such as a command's name.
    RequestLabel {
        /// The request.
        id: u64,
        /// Index of the label's text; see [`Trace::label`](crate::trace::Trace::label).
        label: u32,
    },
    /// A request gets a field of its trace context.
    RequestContext {
        /// The request.
        id: u64,
        /// The field.
        field: ContextField,
        /// The field's value.
        value: u64,
    },
    /// A request sends a call to another process.
    RemoteCall {
        /// The request.
        id: u64,
        /// The span id that is sent.
        span: u64,
        /// Label of the other process; 0 if unknown.
        peer: u32,
    },
    /// The other process answered a request's call.
    RemoteAnswer {
        /// The request.
        id: u64,
        /// The span id that was sent.
        span: u64,
    },
    /// The thread lost its CPU.
    SwitchedOut {
        /// The CPU.
        cpu: u32,
        /// The kernel's id of the thread that got the CPU; 0 if unknown.
        next: u32,
        /// Reason of the switch.
        reason: OffCpu,
    },
    /// Another thread made the thread runnable.
    Woken {
        /// The kernel's id of the waking thread; 0 if unknown.
        waker: u32,
    },
    /// The thread runs again.
    SwitchedIn {
        /// The CPU.
        cpu: u32,
    },
    /// The thread moved between CPUs.
    Migrated {
        /// The old CPU.
        from: u32,
        /// The new CPU.
        to: u32,
    },
    /// Events are missing here.
    Lost {
        /// Category: 0 any, 1 calls, 2 locks, 3 requests, 4 scheduler.
        category: u8,
        /// Number of missing events.
        count: u64,
    },
}

/// Recorded part of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The whole call.
    Whole,
    /// The call was running when recording stopped.
    Cut,
    /// The call was running when recording began.
    Early,
    /// Both.
    CutAndEarly,
}

impl Extent {
    #[inline(always)]
    fn from_marks(marks: u8) -> Extent {
        match marks & (CUT | EARLY) {
            0 => Extent::Whole,
            CUT => Extent::Cut,
            EARLY => Extent::Early,
            _ => Extent::CutAndEarly,
        }
    }
}

/// Reason why a thread is not on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OffCpu {
    /// The thread waits for an event.
    Blocked,
    /// The thread could run, but another one does.
    Runnable,
    /// A signal or a debugger has stopped the thread.
    Stopped,
}

/// Pairs of addresses that a block has used; reader and writer keep the same table.
#[derive(Clone, Debug)]
pub(crate) struct PairTable {
    table: Box<[(u64, u64); 256]>,
    used: [u64; 4],
    last: (u64, u64),
}

impl PairTable {
    pub(crate) fn new() -> PairTable {
        PairTable { table: Box::new([(0, 0); 256]), used: [0; 4], last: (0, 0) }
    }

    /// Empties the table for the next block.
    pub(crate) fn clear(&mut self) {
        self.used = [0; 4];
        self.last = (0, 0);
    }

    fn slot(pair: (u64, u64)) -> u8 {
        let mixed = (pair.0 ^ pair.1.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed >> 56) as u8
    }

    fn get(&self, slot: u8) -> Option<(u64, u64)> {
        let used = self.used[usize::from(slot >> 6)] >> (slot & 63) & 1;
        (used == 1).then(|| self.table[usize::from(slot)])
    }

    /// Returns the slot of a known pair; otherwise stores the pair and returns the previous pair as
    /// the error.
    pub(crate) fn put(&mut self, pair: (u64, u64)) -> Result<u8, (u64, u64)> {
        let slot = PairTable::slot(pair);
        if self.get(slot) == Some(pair) {
            return Ok(slot);
        }
        let before = self.last;
        self.remember(pair);
        Err(before)
    }

    #[inline]
    fn remember(&mut self, pair: (u64, u64)) {
        let slot = PairTable::slot(pair);
        self.table[usize::from(slot)] = pair;
        self.used[usize::from(slot >> 6)] |= 1 << (slot & 63);
        self.last = pair;
    }

    #[inline(always)]
    fn take(&mut self, known: bool, cursor: &mut Cursor<'_>) -> Result<(u64, u64), FormatError> {
        if known {
            return self.get(cursor.u8()?).ok_or(FormatError::Slot);
        }
        let pair = cursor.two_signed(self.last.0, self.last.1)?;
        self.remember(pair);
        Ok(pair)
    }
}

/// The fixed part of a block of events. Times in units of the trace's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventsHeader {
    /// The writer's number of the thread.
    pub thread: u32,
    /// Number of events.
    pub count: u32,
    /// Time to which the first difference is added.
    pub base: u64,
    /// The earliest start of anything in the block.
    pub earliest: u64,
    /// The latest time in the block.
    pub latest: u64,
}

impl EventsHeader {
    /// Size in bytes.
    pub const SIZE: usize = 32;

    /// Parses the header.
    ///
    /// # Errors
    /// [`FormatError::Short`].
    pub fn read(cursor: &mut Cursor<'_>) -> Result<EventsHeader, FormatError> {
        Ok(EventsHeader {
            thread: cursor.u32()?,
            count: cursor.u32()?,
            base: cursor.u64()?,
            earliest: cursor.u64()?,
            latest: cursor.u64()?,
        })
    }
}

/// The kind of calls, and marks.
const CALL: u8 = 1;
const KNOWN: u8 = 0x80;
const CUT: u8 = 0x40;
const EARLY: u8 = 0x20;
/// Valid marks of each kind.
const MARKS: [u8; 16] = [0, 0xE0, 0xF0, 0xF0, 0xF0, 0xF0, 0x80, 0x80, 0, 0, 0x30, 0, 0, 0, 0, 0xF0];

/// Receives decoded events.
///
/// It is a trait and not a closure, so that its function can be inlined into the decoder's loop:
/// passing an event through memory costs as much as decoding it.
pub trait Sink {
    /// Processes the next event.
    fn event(&mut self, event: &Event);
}

/// A sink that calls a function.
pub(crate) struct FnSink<F>(pub(crate) F);

impl<F: FnMut(&Event)> Sink for FnSink<F> {
    #[inline]
    fn event(&mut self, event: &Event) {
        (self.0)(event);
    }
}

/// Decodes blocks of events; reuses its tables for the next block.
#[derive(Clone, Debug)]
pub struct Decoder {
    clock: Clock,
    /// The clock's units are nanoseconds of `CLOCK_MONOTONIC`.
    is_identity: bool,
    pairs: PairTable,
}

impl Decoder {
    /// Creates a decoder for a trace with this clock.
    pub fn new(clock: Clock) -> Decoder {
        Decoder { clock, is_identity: clock.is_identity(), pairs: PairTable::new() }
    }

    /// Passes each event of a block to `each`, up to the first malformed one.
    ///
    /// # Errors
    /// The error of the malformed event; earlier events were passed on.
    pub fn decode(&mut self, payload: &[u8], each: impl FnMut(&Event)) -> Result<EventsHeader, FormatError> {
        self.decode_into(payload, &mut FnSink(each))
    }

    /// Decodes like [`Decoder::decode`], into a sink.
    ///
    /// # Errors
    /// See [`Decoder::decode`].
    pub fn decode_into(&mut self, payload: &[u8], sink: &mut impl Sink) -> Result<EventsHeader, FormatError> {
        let mut cursor = Cursor::new(payload);
        let header = EventsHeader::read(&mut cursor)?;
        let thread = header.thread;
        self.pairs.clear();
        let (mut time, mut id) = (header.base, 0);
        for _ in 0..header.count {
            if let Some(word) = cursor.word()
                && let Some(short) = ShortEvent::parse(word)
            {
                let head = word as u8;
                if head & !(KNOWN | CUT | EARLY) == CALL {
                    let (function, caller) = if head & KNOWN != 0 {
                        cursor.skip(short.length() + 1);
                        self.pairs.get(short.next_byte()).ok_or(FormatError::Slot)?
                    } else {
                        cursor.skip(short.length());
                        self.pairs.take(false, &mut cursor)?
                    };
                    time = short.first(time);
                    let (now, duration) = self.span(time, short.second());
                    let kind_of_event =
                        EventKind::Call { function, caller, duration, extent: Extent::from_marks(head) };
                    sink.event(&Event { time: now, thread, kind: kind_of_event });
                    continue;
                }
                if let 6..=8 = head {
                    cursor.skip(short.length());
                    time = short.first(time);
                    id = difference(short.second()).wrapping_add(id);
                    let kind_of_event = match head {
                        6 => EventKind::RequestStart { id, queue: None },
                        7 => EventKind::RequestBlock { id, queue: None },
                        _ => EventKind::RequestEnd { id },
                    };
                    sink.event(&Event { time: self.now(time), thread, kind: kind_of_event });
                    continue;
                }
            }
            let event = self.event(thread, &mut cursor, &mut time, &mut id)?;
            if let Some(event) = event {
                sink.event(&event);
            }
        }
        if cursor.is_empty() { Ok(header) } else { Err(FormatError::TrailingBytes) }
    }

    /// Converts a time of the clock to nanoseconds.
    #[inline(always)]
    fn now(&self, time: u64) -> u64 {
        if self.is_identity { time } else { self.clock.nanos(time) }
    }

    /// Converts a time of the clock, and the span of `units` before it, to nanoseconds.
    #[inline(always)]
    fn span(&self, time: u64, units: u64) -> (u64, u64) {
        let units = units.min(time);
        if self.is_identity {
            return (time, units);
        }
        // Converts both ends, so that spans that touch in the file still touch.
        let now = self.clock.nanos(time);
        (now, now.saturating_sub(self.clock.nanos(time - units)))
    }

    #[inline(always)]
    fn event(
        &mut self,
        thread: u32,
        cursor: &mut Cursor<'_>,
        time: &mut u64,
        id: &mut u64,
    ) -> Result<Option<Event>, FormatError> {
        let head = cursor.u8()?;
        let (kind, marks) = (head & 0x0F, head & 0xF0);
        if kind == 0 {
            return Err(FormatError::Kind(kind));
        }
        if marks & !MARKS[usize::from(kind)] != 0 {
            return Err(FormatError::Marks(kind));
        }
        *time = cursor.signed(*time)?;
        let known = marks & 0x80 != 0;
        let clock = self.clock;
        let now = clock.nanos(*time);
        // A span is converted by its ends, so that spans that touch in the file still touch.
        let before = |units: u64, end: u64| clock.nanos(end.wrapping_sub(units.min(end)));
        let span = |units: u64| now.saturating_sub(before(units, *time));
        let kind_of_event = match kind {
            1 => {
                let duration = span(cursor.varint()?);
                let (function, caller) = self.pairs.take(known, cursor)?;
                EventKind::Call { function, caller, duration, extent: Extent::from_marks(marks) }
            }
            2 => {
                let (wait, hold) = (cursor.varint()?, cursor.varint()?);
                let (lock, site) = self.pairs.take(known, cursor)?;
                let acquired = time.wrapping_sub(hold.min(*time));
                let object = ObjectKind::from_marks(marks);
                let taken = clock.nanos(acquired);
                let (wait, hold) = (taken.saturating_sub(before(wait, acquired)), now.saturating_sub(taken));
                EventKind::Held { object, lock, site, wait, hold }
            }
            3 | 4 => {
                let wait = span(cursor.varint()?);
                let (lock, site) = self.pairs.take(known, cursor)?;
                let object = ObjectKind::from_marks(marks);
                if kind == 3 {
                    EventKind::Waited { object, lock, site, wait }
                } else {
                    EventKind::Acquired { object, lock, site, wait }
                }
            }
            5 => {
                let (lock, site) = self.pairs.take(known, cursor)?;
                EventKind::Released { object: ObjectKind::from_marks(marks), lock, site }
            }
            6 | 7 => {
                *id = cursor.signed(*id)?;
                let queue = if known { Some(cursor.varint()?) } else { None };
                if kind == 6 {
                    EventKind::RequestStart { id: *id, queue }
                } else {
                    EventKind::RequestBlock { id: *id, queue }
                }
            }
            8 => {
                *id = cursor.signed(*id)?;
                EventKind::RequestEnd { id: *id }
            }
            9 => EventKind::RequestEndAll,
            10 => {
                let why = match marks {
                    0 => OffCpu::Blocked,
                    0x10 => OffCpu::Runnable,
                    _ => OffCpu::Stopped,
                };
                EventKind::SwitchedOut { cpu: narrow(cursor)?, next: narrow(cursor)?, reason: why }
            }
            11 => EventKind::Woken { waker: narrow(cursor)? },
            12 => EventKind::SwitchedIn { cpu: narrow(cursor)? },
            13 => EventKind::Migrated { from: narrow(cursor)?, to: narrow(cursor)? },
            14 => {
                let sort = cursor.u8()?;
                if sort > 4 {
                    return Err(FormatError::Code(sort));
                }
                EventKind::Lost { category: sort, count: cursor.varint()? }
            }
            _ => {
                let length = cursor.bounded(super::TEXT_MAX)?;
                match context::decode(cursor.take(length)?)? {
                    Some(OtherEvent::RequestLabel { id, label }) => EventKind::RequestLabel { id, label },
                    Some(OtherEvent::RequestContext { id, field, value }) => {
                        EventKind::RequestContext { id, field, value }
                    }
                    Some(OtherEvent::RemoteCall { id, span, peer }) => EventKind::RemoteCall { id, span, peer },
                    Some(OtherEvent::RemoteAnswer { id, span }) => EventKind::RemoteAnswer { id, span },
                    None => return Ok(None),
                }
            }
        };
        Ok(Some(Event { time: now, thread, kind: kind_of_event }))
    }
}

fn narrow(cursor: &mut Cursor<'_>) -> Result<u32, FormatError> {
    u32::try_from(cursor.varint()?).map_err(|_| FormatError::Length)
}

#[cfg(test)]
mod tests {
    use super::super::varint::put_varint;
    use super::*;
    use proptest::prelude::*;

    /// Decodes like [`Decoder::decode`], without the fast path.
    fn decode_slowly(decoder: &mut Decoder, payload: &[u8]) -> (Vec<Event>, Result<EventsHeader, FormatError>) {
        let mut events = Vec::new();
        let mut cursor = Cursor::new(payload);
        let mut decode = || {
            let header = EventsHeader::read(&mut cursor)?;
            decoder.pairs.clear();
            let (mut time, mut id) = (header.base, 0);
            for _ in 0..header.count {
                events.extend(decoder.event(header.thread, &mut cursor, &mut time, &mut id)?);
            }
            if cursor.is_empty() { Ok(header) } else { Err(FormatError::TrailingBytes) }
        };
        let result = decode();
        (events, result)
    }

    fn events() -> impl Strategy<Value = Vec<u8>> {
        let number = (any::<u64>(), 0_u32..64).prop_map(|(number, bits)| number >> bits);
        // Mostly calls and requests, with valid and invalid marks; small and large numbers.
        let head = prop_oneof![4 => Just(0x81_u8), 2 => Just(1), 2 => 6_u8..9, 1 => any::<u8>()];
        let event = (head, prop::collection::vec(prop_oneof![3 => 0_u64..40_000, 1 => number], 4), 0_u8..8);
        prop::collection::vec(event, 0..60).prop_map(|events| {
            let mut bytes = Vec::new();
            for (head, numbers, slot) in events {
                bytes.push(head);
                let fields = if head & 15 == 1 { if head & KNOWN != 0 { 2 } else { 4 } } else { 2 };
                numbers[..fields].iter().for_each(|number| put_varint(&mut bytes, *number));
                if head & 0x8F == CALL | KNOWN {
                    bytes.push(slot);
                }
            }
            bytes
        })
    }

    proptest! {
        #[test]
        fn fast_and_slow_decoding_agree(
            bytes in events(), cut: prop::sample::Index, base: u64, scale in prop_oneof![Just(1_u64 << 32), any::<u64>()], anchor in 0_u64..1000,
        ) {
            let mut payload = Vec::new();
            payload.extend([7_u32, 60].iter().flat_map(|word| word.to_le_bytes()));
            payload.extend([base, 0, 0].iter().flat_map(|word| word.to_le_bytes()));
            payload.extend(bytes);
            // Complete payloads, and truncated ones.
            for length in [payload.len(), 32 + cut.index(payload.len() - 31)] {
                let mut decoder = Decoder::new(Clock { scale, anchor, monotonic: 0, wall: 0 });
                let (expected, end) = decode_slowly(&mut decoder, &payload[..length]);
                let mut decoded_events = Vec::new();
                let decoded = decoder.decode(&payload[..length], |event| decoded_events.push(*event));
                prop_assert_eq!((decoded_events, decoded), (expected, end));
            }
        }
    }
}
