//! Entries as bytes. Repetition is left out: times are differences, and an unchanged state is a
//! bit. `docs/recording-format.md` has the tables.

use super::bytes::{Bytes, DecodeError, put, put_signed};
use super::entry::{Answer, Entry, SessionCall, SessionEntry};
use super::threading;
use leeward_core::budget::Budget;
use leeward_core::server::{
    Arrival, CoreGrant, CoreId, Departure, Downstream, Feedback, Gauges, Outcome, Registration, RejectReason,
    SessionSlot, Signals, Verdict,
};
use leeward_core::units::{Cost, CreditId, Credits, Method, Nanos, Priority, Tenant, Time};

const OPEN: u8 = 0;
const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const DEMAND: u8 = 3;
const WAKE: u8 = 4;
const CLOSE: u8 = 5;
const NEXT: u8 = 6;
const TICK: u8 = 7;
const EXECUTE: u8 = 8;
const GRANTED: u8 = 9;
const THREADING: u8 = 10;
const DOWNSTREAM: u8 = 11;
/// A request with a method other than the default, and the reply to one.
const REQUEST_WITH_METHOD: u8 = 12;
const REPLY_WITH_METHOD: u8 = 13;
const KINDS: u8 = 0b1111;

/// The call has changed the session's own words.
const CUSTOM: u8 = 1 << 4;
/// The event's demand is the session's.
const SAME_DEMAND: u8 = 1 << 5;
/// The request was rejected, or the reply is a rejection.
const NEGATIVE: u8 = 1 << 6;
/// The reply's request named a grant. No kind has both this and [`SAME_DEMAND`].
const CREDIT: u8 = 1 << 5;
/// The feedback is only the session's window.
const PLAIN: u8 = 1 << 7;
/// The demand message was answered, or a session was chosen. No kind has both this and
/// [`SAME_DEMAND`].
const IS_ANSWERED: u8 = 1 << 5;
/// The request has a budget, a tenant or a cost other than the default. No kind has both this and
/// [`PLAIN`].
const EXTENDED: u8 = 1 << 7;
/// The gauges are those of the last tick.
const SAME_GAUGES: u8 = 1 << 4;

/// State that one entry leaves for the next. Writer and reader keep the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Codec {
    time: u64,
    gauges: Gauges,
}

impl Codec {
    /// Time of the last call.
    pub(super) fn time(&self) -> Time {
        Time(self.time)
    }

    pub(super) fn encode(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        match entry {
            Entry::Session(entry) => self.encode_session(entry, out),
            Entry::Dequeue { core, waited, verdict } => {
                out.push(EXECUTE | flag(matches!(verdict, Verdict::Reject(_)), NEGATIVE));
                put(out, core.0.into());
                put(out, waited.0);
                if let Verdict::Reject(reason) = verdict {
                    out.push(reason.number());
                }
            }
            Entry::NextToWake { core, random, chosen } => {
                out.push(NEXT | flag(chosen.is_some(), IS_ANSWERED));
                put(out, core.0.into());
                out.extend_from_slice(&random.to_le_bytes());
                if let Some(slot) = chosen {
                    put(out, slot.0.into());
                }
            }
            Entry::Tick { signals, gauges } => {
                let same = same_gauges(gauges, &self.gauges);
                out.push(TICK | flag(same, SAME_GAUGES));
                self.encode_time(signals.now, out);
                let Signals {
                    now: _,
                    packet_delay,
                    run_delay,
                    arrivals,
                    completions,
                    rejections: rejected,
                    lock_rejections: lock_rejected,
                } = *signals;
                for number in [packet_delay.0, run_delay.0, arrivals, completions, rejected, lock_rejected] {
                    put(out, number);
                }
                if !same {
                    encode_gauges(gauges, out);
                    self.gauges = *gauges;
                }
            }
            Entry::CoreGrant { event, gauges } => {
                let same = same_gauges(gauges, &self.gauges);
                out.push(GRANTED | flag(same, SAME_GAUGES));
                self.encode_time(event.now, out);
                put(out, event.granted.into());
                put(out, event.total.into());
                if !same {
                    encode_gauges(gauges, out);
                    self.gauges = *gauges;
                }
            }
            Entry::Downstream { event, gauges } => {
                let same = same_gauges(gauges, &self.gauges);
                out.push(DOWNSTREAM | flag(same, SAME_GAUGES));
                put(out, event.credits);
                out.extend_from_slice(&event.calls_per_request.to_bits().to_le_bytes());
                out.push(event.threshold.level());
                put(out, event.in_flight.map_or(0, |requests| requests.saturating_add(1)));
                if !same {
                    encode_gauges(gauges, out);
                    self.gauges = *gauges;
                }
            }
            Entry::Threading { signals, wanted, timeout } => {
                out.push(THREADING | flag(wanted.is_some(), IS_ANSWERED));
                self.encode_time(signals.now, out);
                threading::encode(signals, *wanted, *timeout, out);
            }
        }
    }

    fn encode_session(&mut self, entry: &SessionEntry, out: &mut Vec<u8>) {
        let SessionEntry { core, slot, pending, demand, call, answer, window, method: answered, custom } = *entry;
        let plain = Answer::Feedback(Feedback { window, ..Feedback::NONE }) == answer;
        let tag = match call {
            SessionCall::Open(event) => OPEN | flag(event.demand == demand, SAME_DEMAND),
            SessionCall::Request(event) => {
                let rejected = matches!(answer, Answer::Verdict(Verdict::Reject(_)));
                let marks = flag(rejected, NEGATIVE) | flag(is_extended(&event), EXTENDED);
                let kind = if event.method == Method::DEFAULT { REQUEST } else { REQUEST_WITH_METHOD };
                kind | flag(event.demand == demand, SAME_DEMAND) | marks
            }
            SessionCall::Reply(event) => {
                let marks = flag(event.outcome == Outcome::Rejected, NEGATIVE) | flag(plain, PLAIN);
                let kind = if answered == Method::DEFAULT { REPLY } else { REPLY_WITH_METHOD };
                kind | marks | flag(event.credit != CreditId::NONE, CREDIT)
            }
            SessionCall::Demand(_) => {
                DEMAND | flag(matches!(answer, Answer::Feedback(_)), IS_ANSWERED) | flag(plain, PLAIN)
            }
            SessionCall::Wake(_) => WAKE | flag(plain, PLAIN),
            SessionCall::Close(_) => CLOSE,
        };
        out.push(tag | flag(custom.is_some(), CUSTOM));
        for number in [core.0, slot.0] {
            put(out, number.into());
        }
        self.encode_time(call.now(), out);
        for number in [pending, demand, window.0] {
            put(out, number.into());
        }
        match call {
            SessionCall::Open(event) if event.demand != demand => put(out, event.demand.into()),
            SessionCall::Request(event) => {
                if event.demand != demand {
                    put(out, event.demand.into());
                }
                out.push(event.priority.level());
                put(out, event.delay.0);
                out.extend_from_slice(&event.random.to_le_bytes());
                if is_extended(&event) {
                    put(out, event.budget.remaining().unwrap_or(Nanos::MAX).0);
                    put(out, event.tenant.0.into());
                    put(out, event.cost.0.into());
                }
                encode_method(event.method, out);
            }
            SessionCall::Reply(event) => {
                put(out, event.sojourn.0);
                if event.credit != CreditId::NONE {
                    put(out, event.credit.0);
                }
                encode_method(answered, out);
            }
            _ => {}
        }
        match answer {
            Answer::Verdict(Verdict::Reject(reason)) => out.push(reason.number()),
            Answer::Feedback(feedback) if !plain => {
                put(out, feedback.window.0.into());
                out.push(feedback.threshold.level());
                put(out, feedback.custom);
                put(out, feedback.credit.0);
            }
            _ => {}
        }
        for word in custom.iter().flatten() {
            put(out, *word);
        }
    }

    fn encode_time(&mut self, now: Time, out: &mut Vec<u8>) {
        // Wrapping: the clocks of two cores may differ slightly, in either direction.
        put_signed(out, now.0.wrapping_sub(self.time) as i64);
        self.time = now.0;
    }

    pub(super) fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<Entry, DecodeError> {
        let tag = bytes.byte()?;
        let accepted = match tag & KINDS {
            OPEN => CUSTOM | SAME_DEMAND,
            REQUEST | REQUEST_WITH_METHOD => CUSTOM | SAME_DEMAND | NEGATIVE | EXTENDED,
            REPLY | REPLY_WITH_METHOD => CUSTOM | CREDIT | NEGATIVE | PLAIN,
            DEMAND => CUSTOM | IS_ANSWERED | PLAIN,
            WAKE => CUSTOM | PLAIN,
            CLOSE => CUSTOM,
            NEXT => IS_ANSWERED,
            TICK | GRANTED | DOWNSTREAM => SAME_GAUGES,
            THREADING => IS_ANSWERED,
            EXECUTE => NEGATIVE,
            _ => return Err("there is no such call"),
        };
        if tag & !KINDS & !accepted != 0 {
            return Err("a call has marks that it can't have");
        }
        match tag & KINDS {
            EXECUTE => {
                let (core, waited) = (CoreId(bytes.small()?), Nanos(bytes.number()?));
                let verdict =
                    if tag & NEGATIVE == 0 { Verdict::Admit } else { Verdict::Reject(reason(bytes.byte()?)?) };
                Ok(Entry::Dequeue { core, waited, verdict })
            }
            NEXT => {
                let (core, random) = (CoreId(bytes.small()?), bytes.word()?);
                let chosen = if tag & IS_ANSWERED != 0 { Some(SessionSlot(bytes.small()?)) } else { None };
                Ok(Entry::NextToWake { core, random, chosen })
            }
            TICK => {
                let signals = Signals {
                    now: self.decode_time(bytes)?,
                    packet_delay: Nanos(bytes.number()?),
                    run_delay: Nanos(bytes.number()?),
                    arrivals: bytes.number()?,
                    completions: bytes.number()?,
                    rejections: bytes.number()?,
                    lock_rejections: bytes.number()?,
                };
                if tag & SAME_GAUGES == 0 {
                    self.gauges = decode_gauges(bytes)?;
                }
                Ok(Entry::Tick { signals, gauges: self.gauges })
            }
            GRANTED => {
                let event = CoreGrant { now: self.decode_time(bytes)?, granted: bytes.small()?, total: bytes.small()? };
                if tag & SAME_GAUGES == 0 {
                    self.gauges = decode_gauges(bytes)?;
                }
                Ok(Entry::CoreGrant { event, gauges: self.gauges })
            }
            DOWNSTREAM => {
                let event = Downstream::new(bytes.number()?, f64::from_bits(bytes.word()?));
                let event = event.with_threshold(priority(bytes.byte()?)?);
                let event = match bytes.number()? {
                    0 => event,
                    encoded => event.with_in_flight(encoded - 1),
                };
                if tag & SAME_GAUGES == 0 {
                    self.gauges = decode_gauges(bytes)?;
                }
                Ok(Entry::Downstream { event, gauges: self.gauges })
            }
            THREADING => {
                let now = self.decode_time(bytes)?;
                threading::decode(now, tag & IS_ANSWERED != 0, bytes)
            }
            _ => self.decode_session(tag, bytes).map(Entry::Session),
        }
    }

    fn decode_session(&mut self, tag: u8, bytes: &mut Bytes<'_>) -> Result<SessionEntry, DecodeError> {
        let has = |mark: u8| tag & mark != 0;
        let (core, slot) = (CoreId(bytes.small()?), SessionSlot(bytes.small()?));
        let now = self.decode_time(bytes)?;
        let (pending, demand, window) = (bytes.small()?, bytes.small()?, Credits(bytes.small()?));
        let feedback = |bytes: &mut Bytes<'_>| -> Result<Answer, DecodeError> {
            if has(PLAIN) {
                return Ok(Answer::Feedback(Feedback { window, ..Feedback::NONE }));
            }
            let (window, threshold) = (Credits(bytes.small()?), priority(bytes.byte()?)?);
            let (custom, credit) = (bytes.number()?, CreditId(bytes.number()?));
            Ok(Answer::Feedback(Feedback { window, threshold, custom, credit }))
        };
        let mut answered = Method::DEFAULT;
        let (call, answer) = match tag & KINDS {
            OPEN => {
                let demand = if has(SAME_DEMAND) { demand } else { bytes.small()? };
                (SessionCall::Open(Registration { now, demand }), Answer::Nothing)
            }
            kind @ (REQUEST | REQUEST_WITH_METHOD) => {
                let demand = if has(SAME_DEMAND) { demand } else { bytes.small()? };
                let (priority, delay) = (priority(bytes.byte()?)?, Nanos(bytes.number()?));
                let event = Arrival::new(now)
                    .with_demand(demand)
                    .with_priority(priority)
                    .with_delay(delay)
                    .with_random(bytes.word()?);
                let event = if has(EXTENDED) { decode_extension(event, bytes)? } else { event };
                let event = if kind == REQUEST_WITH_METHOD { event.with_method(decode_method(bytes)?) } else { event };
                let verdict = if has(NEGATIVE) { Verdict::Reject(reason(bytes.byte()?)?) } else { Verdict::Admit };
                (SessionCall::Request(event), Answer::Verdict(verdict))
            }
            kind @ (REPLY | REPLY_WITH_METHOD) => {
                let outcome = if has(NEGATIVE) { Outcome::Rejected } else { Outcome::Completed };
                let sojourn = Nanos(bytes.number()?);
                let credit = match has(CREDIT).then(|| bytes.number()).transpose()? {
                    Some(0) => return Err("a grant is marked and none is named"),
                    named => CreditId(named.unwrap_or(0)),
                };
                if kind == REPLY_WITH_METHOD {
                    answered = decode_method(bytes)?;
                }
                let event = Departure { now, outcome, sojourn, credit };
                (SessionCall::Reply(event), feedback(bytes)?)
            }
            DEMAND if has(IS_ANSWERED) => (SessionCall::Demand(now), feedback(bytes)?),
            DEMAND => (SessionCall::Demand(now), Answer::Nothing),
            WAKE => (SessionCall::Wake(now), feedback(bytes)?),
            _ => (SessionCall::Close(now), Answer::Nothing),
        };
        let custom = if has(CUSTOM) { Some([bytes.number()?, bytes.number()?]) } else { None };
        Ok(SessionEntry { core, slot, pending, demand, call, answer, window, method: answered, custom })
    }

    fn decode_time(&mut self, bytes: &mut Bytes<'_>) -> Result<Time, DecodeError> {
        self.time = self.time.wrapping_add(bytes.signed()? as u64);
        Ok(Time(self.time))
    }
}

/// Whether a request has a budget, a tenant or a cost, which most plants don't set.
fn is_extended(event: &Arrival) -> bool {
    (event.budget, event.tenant, event.cost) != (Budget::UNLIMITED, Tenant::DEFAULT, Cost::ONE)
}

fn decode_extension(event: Arrival, bytes: &mut Bytes<'_>) -> Result<Arrival, DecodeError> {
    let (budget, tenant, cost) = (Budget::new(Nanos(bytes.number()?)), Tenant(bytes.small()?), Cost(bytes.small()?));
    let event = event.with_budget(budget).with_tenant(tenant).with_cost(cost);
    if is_extended(&event) { Ok(event) } else { Err("particulars are marked and there are none") }
}

fn encode_method(method: Method, out: &mut Vec<u8>) {
    if method != Method::DEFAULT {
        put(out, method.0.into());
    }
}

fn decode_method(bytes: &mut Bytes<'_>) -> Result<Method, DecodeError> {
    match bytes.small()? {
        0 => Err("a method is marked and none is named"),
        number => Ok(Method(number)),
    }
}

fn flag(on: bool, mark: u8) -> u8 {
    if on { mark } else { 0 }
}

fn reason(number: u8) -> Result<RejectReason, DecodeError> {
    RejectReason::from_number(number).ok_or("there is no such reason to reject")
}

fn priority(level: u8) -> Result<Priority, DecodeError> {
    let priority = Priority::new(level);
    if priority.level() == level { Ok(priority) } else { Err("there is no such priority") }
}

/// Compares bit by bit, so that NaN equals itself.
pub(super) fn same_gauges(a: &Gauges, b: &Gauges) -> bool {
    let bits = |number: Option<f64>| number.map(f64::to_bits);
    (a.credit_pool, a.credits_issued, a.sessions, a.in_flight)
        == (b.credit_pool, b.credits_issued, b.sessions, b.in_flight)
        && bits(a.priority_threshold) == bits(b.priority_threshold)
        && bits(a.concurrency_limit) == bits(b.concurrency_limit)
}

fn encode_gauges(gauges: &Gauges, out: &mut Vec<u8>) {
    let Gauges { credit_pool, credits_issued, sessions, in_flight, priority_threshold, concurrency_limit } = *gauges;
    let (whole, real) = ([credit_pool, credits_issued, sessions, in_flight], [priority_threshold, concurrency_limit]);
    let present = whole.iter().map(Option::is_some).chain(real.iter().map(Option::is_some));
    out.push(present.enumerate().fold(0, |mask, (index, is_some)| mask | u8::from(is_some) << index));
    for number in whole.into_iter().flatten() {
        put_signed(out, number);
    }
    for number in real.into_iter().flatten() {
        out.extend_from_slice(&number.to_bits().to_le_bytes());
    }
}

fn decode_gauges(bytes: &mut Bytes<'_>) -> Result<Gauges, DecodeError> {
    let mask = bytes.byte()?;
    if mask >= 1 << 6 {
        return Err("there is no such gauge");
    }
    let mut whole = [None; 4];
    for (index, number) in whole.iter_mut().enumerate() {
        if mask >> index & 1 == 1 {
            *number = Some(bytes.signed()?);
        }
    }
    let mut real = [None; 2];
    for (index, number) in real.iter_mut().enumerate() {
        if mask >> (index + 4) & 1 == 1 {
            *number = Some(f64::from_bits(bytes.word()?));
        }
    }
    let [credit_pool, credits_issued, sessions, in_flight] = whole;
    let [priority_threshold, concurrency_limit] = real;
    Ok(Gauges { credit_pool, credits_issued, sessions, in_flight, priority_threshold, concurrency_limit })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn feedback() -> impl Strategy<Value = Feedback> {
        (any::<u32>(), 1u8..=128, any::<u64>(), 0..3u64).prop_map(|(window, level, custom, credit)| Feedback {
            window: Credits(window),
            threshold: Priority::new(level),
            custom,
            credit: CreditId(credit),
        })
    }

    fn gauges() -> impl Strategy<Value = Gauges> {
        let whole = || proptest::option::of(any::<i64>());
        let real = || proptest::option::of(-1e12..1e12);
        (whole(), whole(), whole(), whole(), real(), real()).prop_map(
            |(pool, issued, sessions, flight, level, limit)| Gauges {
                credit_pool: pool,
                credits_issued: issued,
                sessions,
                in_flight: flight,
                priority_threshold: level,
                concurrency_limit: limit,
            },
        )
    }

    fn verdict() -> impl Strategy<Value = Verdict> {
        prop_oneof![
            Just(Verdict::Admit),
            Just(Verdict::Reject(RejectReason::Delay)),
            Just(Verdict::Reject(RejectReason::Priority)),
            Just(Verdict::Reject(RejectReason::Concurrency)),
            Just(Verdict::Reject(RejectReason::Lock)),
            Just(Verdict::Reject(RejectReason::Share)),
        ]
    }

    fn call() -> impl Strategy<Value = (SessionCall, Answer)> {
        let at = || any::<u64>().prop_map(Time);
        let answer = || feedback().prop_map(Answer::Feedback);
        let extension = prop_oneof![Just((u64::MAX, 0, 1)), any::<(u64, u32, u32)>()];
        let arrival = (at(), any::<u32>(), 1u8..=128, any::<u64>(), any::<u64>(), extension, method()).prop_map(
            |(now, demand, level, delay, random, (budget, tenant, cost), method)| {
                let event = Arrival::new(now)
                    .with_demand(demand)
                    .with_priority(Priority::new(level))
                    .with_delay(Nanos(delay))
                    .with_random(random)
                    .with_budget(Budget::new(Nanos(budget)))
                    .with_tenant(Tenant(tenant))
                    .with_cost(Cost(cost))
                    .with_method(method);
                SessionCall::Request(event)
            },
        );
        let outcome = prop_oneof![Just(Outcome::Completed), Just(Outcome::Rejected)];
        let departure = (at(), outcome, any::<u64>(), 0..3u64).prop_map(|(now, outcome, sojourn, credit)| Departure {
            now,
            outcome,
            sojourn: Nanos(sojourn),
            credit: CreditId(credit),
        });
        prop_oneof![
            (at(), any::<u32>())
                .prop_map(|(now, demand)| (SessionCall::Open(Registration { now, demand }), Answer::Nothing)),
            (arrival, verdict()).prop_map(|(call, verdict)| (call, Answer::Verdict(verdict))),
            (departure.prop_map(SessionCall::Reply), answer()),
            (at().prop_map(SessionCall::Demand), prop_oneof![Just(Answer::Nothing), answer()]),
            (at().prop_map(SessionCall::Wake), answer()),
            at().prop_map(|now| (SessionCall::Close(now), Answer::Nothing)),
        ]
    }

    fn method() -> impl Strategy<Value = Method> {
        prop_oneof![Just(Method::DEFAULT), any::<u32>().prop_map(Method)]
    }

    fn entry() -> impl Strategy<Value = Entry> {
        let custom = proptest::option::of(any::<[u64; 2]>());
        let session = (any::<[u32; 5]>(), call(), custom, any::<bool>(), method()).prop_map(
            |([core, slot, pending, demand, window], (call, answer), custom, plain, method)| {
                let window = match (plain, answer) {
                    (true, Answer::Feedback(feedback)) => feedback.window,
                    _ => Credits(window),
                };
                let (core, slot) = (CoreId(core), SessionSlot(slot));
                let answered = if let SessionCall::Reply(_) = call { method } else { Method::DEFAULT };
                Entry::Session(SessionEntry {
                    core,
                    slot,
                    pending,
                    demand,
                    call,
                    answer,
                    window,
                    method: answered,
                    custom,
                })
            },
        );
        let next = (any::<u32>(), any::<u64>(), proptest::option::of(any::<u32>())).prop_map(|(core, random, slot)| {
            Entry::NextToWake { core: CoreId(core), random, chosen: slot.map(SessionSlot) }
        });
        let execute = (any::<u32>(), any::<u64>(), verdict()).prop_map(|(core, waited, verdict)| Entry::Dequeue {
            core: CoreId(core),
            waited: Nanos(waited),
            verdict,
        });
        let tick = (any::<[u64; 7]>(), gauges()).prop_map(
            |([now, packet, run, arrivals, completions, drops, locks], gauges)| {
                let (packet_delay, run_delay) = (Nanos(packet), Nanos(run));
                let signals = Signals {
                    now: Time(now),
                    packet_delay,
                    run_delay,
                    arrivals,
                    completions,
                    rejections: drops,
                    lock_rejections: locks,
                };
                Entry::Tick { signals, gauges }
            },
        );
        let granted = (any::<u64>(), any::<[u32; 2]>(), gauges()).prop_map(|(now, [granted, total], gauges)| {
            Entry::CoreGrant { event: CoreGrant { now: Time(now), granted, total }, gauges }
        });
        let downstream = (any::<u64>(), 0.0f64..1e9, gauges()).prop_map(|(credits, per_request, gauges)| {
            let event = Downstream::new(credits, per_request).with_threshold(Priority::new((credits % 128) as u8));
            let event = if credits % 3 == 0 { event } else { event.with_in_flight(credits / 2) };
            Entry::Downstream { event, gauges }
        });
        prop_oneof![4 => session, 1 => execute, 1 => next, 1 => tick, 1 => granted, 1 => downstream]
    }

    proptest! {
        #[test]
        fn entries_round_trip(entries in prop::collection::vec(entry(), 0..40)) {
            let (mut writer, mut reader) = (Codec::default(), Codec::default());
            let mut out = Vec::new();
            entries.iter().for_each(|entry| writer.encode(entry, &mut out));
            let mut bytes = Bytes::new(&out);
            for entry in &entries {
                prop_assert_eq!(reader.decode(&mut bytes), Ok(*entry));
            }
            prop_assert_eq!(bytes.remaining(), 0);
        }

        #[test]
        fn any_bytes_are_decoded_or_rejected(noise in prop::collection::vec(any::<u8>(), 0..200)) {
            let (mut codec, mut bytes) = (Codec::default(), Bytes::new(&noise));
            while bytes.remaining() > 0 && codec.decode(&mut bytes).is_ok() {}
        }
    }
}
