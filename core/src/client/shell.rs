//! The client around a [`ClientHalf`]: queue, expiry, demand, and the guarantee that each request
//! ends exactly once. Does not contain the half's decision which requests may leave.

use super::{BoundedQueue, ClientConfig, ClientHalf, ClientParts, ClientVerdict, Gate, Reply, Submission};
use crate::server::{Feedback, Outcome};
use crate::units::{CreditId, Nanos, Priority, Time};

/// Fields that a request carries to the server besides its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Requests that wait at the client after this one.
    pub demand: u32,
    /// Priority of the request.
    pub priority: Priority,
    /// The newest grant that the client knows.
    pub credit: CreditId,
}

/// Why a request ended at the client without being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocalReason {
    /// The request waited longer than the configured client delay.
    Expired,
    /// The queue was full and the request was its oldest.
    Overflow,
    /// The algorithm expects the server to reject the request.
    Throttled,
}

/// End of a request at the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalOutcome {
    /// Reason of the end.
    pub reason: LocalReason,
    /// Time since the application issued it.
    pub waited: Nanos,
}

/// Receives a client's decisions: a socket, or a virtual wire.
pub trait ClientSink<T> {
    /// Sends this request now.
    fn send(&mut self, request: T, header: Header);
    /// Ends this request at the client.
    fn end(&mut self, request: T, end: LocalOutcome);
    /// Reports the current demand to the server in a separate message.
    fn send_demand(&mut self, demand: u32);
}

struct QueuedRequest<T> {
    request: T,
    priority: Priority,
}

/// Client of one session. Each request that the application submits leaves through the
/// [`ClientSink`] exactly once, as `send` or as `end`. `T` is the plant's own handle of a request.
pub struct Client<T> {
    half: Box<dyn ClientHalf>,
    config: ClientConfig,
    queue: BoundedQueue<QueuedRequest<T>>,
    outstanding: u32,
    reserved: u32,
    waiting_elsewhere: u32,
    announced_demand: u32,
    credit: CreditId,
}

impl<T> Client<T> {
    /// Creates a client with nothing queued and nothing sent.
    pub fn new(parts: ClientParts) -> Self {
        Client {
            half: parts.half,
            queue: BoundedQueue::new(parts.config.queue),
            config: parts.config,
            outstanding: 0,
            reserved: 0,
            waiting_elsewhere: 0,
            announced_demand: 0,
            credit: CreditId::NONE,
        }
    }

    /// Takes a request from the application: sends, queues or ends it.
    pub fn submit(&mut self, now: Time, request: T, priority: Priority, random: u64, out: &mut impl ClientSink<T>) {
        // A timer may be late. Requests that have expired or may leave by now go first, so that the
        // new request does not displace them.
        self.send_ready(now, out);
        if self.half.submit(&Submission { now, priority, random }) == ClientVerdict::Reject {
            out.end(request, LocalOutcome { reason: LocalReason::Throttled, waited: Nanos::ZERO });
        } else if self.queue.is_empty() && self.gate(now) == Gate::Open {
            self.send(now, QueuedRequest { request, priority }, out);
        } else if let Some((oldest, waited)) = self.queue.push(now, QueuedRequest { request, priority }) {
            out.end(oldest.request, LocalOutcome { reason: LocalReason::Overflow, waited });
        }
        self.announce(out);
    }

    /// Reserves the permission to send one request. This is for a request that needs several
    /// servers and starts only if all of them permit it. [`Client::submit_reserved`] uses the
    /// reservation, [`Client::release`] returns it. `false`: no request may leave now.
    pub fn reserve(&mut self, now: Time) -> bool {
        let open = self.would_send(now);
        self.reserved += u32::from(open);
        open
    }

    /// Returns a reservation. A waiting request may use it ([`Client::on_timer`]).
    pub fn release(&mut self) {
        debug_assert!(self.reserved > 0, "a reservation that was not made");
        self.reserved = self.reserved.saturating_sub(1);
    }

    /// Sends a request on its reservation, at once. A window that has shrunk meanwhile does not
    /// revoke the reservation.
    pub fn submit_reserved(&mut self, now: Time, request: T, priority: Priority, out: &mut impl ClientSink<T>) {
        self.release();
        self.send(now, QueuedRequest { request, priority }, out);
    }

    /// Sets the number of requests that wait elsewhere for a reservation here. The server gets them
    /// reported as part of the demand.
    pub fn set_waiting_elsewhere(&mut self, requests: u32, out: &mut impl ClientSink<T>) {
        self.waiting_elsewhere = requests;
        self.announce(out);
    }

    /// Takes a response or a rejection; `round_trip` counts from the request's departure.
    pub fn on_reply(
        &mut self,
        now: Time,
        outcome: Outcome,
        round_trip: Nanos,
        feedback: &Feedback,
        out: &mut impl ClientSink<T>,
    ) {
        debug_assert!(self.outstanding > 0, "a reply to nothing");
        self.outstanding = self.outstanding.saturating_sub(1);
        self.half.reply(&Reply { now, outcome, round_trip, feedback: *feedback });
        self.credit = feedback.credit;
        self.drain(now, out);
    }

    /// Takes an explicit credit message.
    pub fn on_credit(&mut self, now: Time, feedback: &Feedback, out: &mut impl ClientSink<T>) {
        self.half.credit(now, feedback);
        self.credit = feedback.credit;
        self.drain(now, out);
    }

    /// Expires and sends requests that are due. A spurious call does nothing.
    pub fn on_timer(&mut self, now: Time, out: &mut impl ClientSink<T>) {
        self.drain(now, out);
    }

    /// Time of the next [`Client::on_timer`] call: the oldest request's expiry, or the gate's
    /// opening. `None` while no request waits.
    pub fn next_timeout(&mut self, now: Time) -> Option<Time> {
        let expiry = self.queue.oldest()? + self.max_wait();
        let opening = match self.gate(now) {
            Gate::OpensAt(at) => at,
            Gate::Open => now,
            Gate::Closed => Time::NEVER,
        };
        let next = expiry.min(opening);
        (next != Time::NEVER).then_some(next)
    }

    /// Cancels the first waiting request for which `is` returns true; returns it and its waiting
    /// time. `None` if there is none: a sent request can't be cancelled.
    pub fn cancel(&mut self, now: Time, is: impl Fn(&T) -> bool, out: &mut impl ClientSink<T>) -> Option<(T, Nanos)> {
        let (waiting, waited) = self.queue.remove(now, |waiting| is(&waiting.request))?;
        self.announce(out);
        Some((waiting.request, waited))
    }

    /// Whether a request submitted now would leave at once, as far as the gate decides.
    pub fn would_send(&mut self, now: Time) -> bool {
        self.queue.is_empty() && self.gate(now) == Gate::Open
    }

    /// Ends all queued requests after the connection closed. The plant ends the requests that were
    /// sent.
    pub fn close(&mut self, now: Time, mut end: impl FnMut(T, Nanos)) {
        while let Some((waiting, waited)) = self.queue.pop(now) {
            end(waiting.request, waited);
        }
    }

    /// Requests that wait here, or elsewhere for a reservation here.
    pub fn demand(&self) -> u32 {
        (self.queue.len() as u32).saturating_add(self.waiting_elsewhere)
    }

    /// Requests sent and not answered.
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    fn gate(&mut self, now: Time) -> Gate {
        let taken = self.outstanding + self.reserved;
        if taken >= self.config.max_outstanding {
            return Gate::Closed;
        }
        self.half.gate(now, taken)
    }

    fn max_wait(&self) -> Nanos {
        self.config.max_delay.min(self.half.max_wait())
    }

    fn drain(&mut self, now: Time, out: &mut impl ClientSink<T>) {
        self.send_ready(now, out);
        self.announce(out);
    }

    /// Ends expired requests and sends those that may leave.
    fn send_ready(&mut self, now: Time, out: &mut impl ClientSink<T>) {
        self.expire(now, out);
        while !self.queue.is_empty() && self.gate(now) == Gate::Open {
            if let Some((waiting, _)) = self.queue.pop(now) {
                self.send(now, waiting, out);
            }
        }
    }

    fn expire(&mut self, now: Time, out: &mut impl ClientSink<T>) {
        let max_wait = self.max_wait();
        while self.queue.oldest().is_some_and(|since| now.since(since) >= max_wait) {
            if let Some((waiting, waited)) = self.queue.pop(now) {
                out.end(waiting.request, LocalOutcome { reason: LocalReason::Expired, waited });
            }
        }
    }

    fn send(&mut self, now: Time, waiting: QueuedRequest<T>, out: &mut impl ClientSink<T>) {
        self.outstanding += 1;
        self.half.on_sent(now);
        self.announced_demand = self.demand();
        out.send(
            waiting.request,
            Header { demand: self.announced_demand, priority: waiting.priority, credit: self.credit },
        );
    }

    /// Reports a demand that no request has carried, if the algorithm wants that.
    fn announce(&mut self, out: &mut impl ClientSink<T>) {
        let demand = self.demand();
        if demand != self.announced_demand && self.half.announces_demand() {
            self.announced_demand = demand;
            out.send_demand(demand);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens for as many requests as it has credits.
    struct Credit(u32);

    impl ClientHalf for Credit {
        fn gate(&mut self, _: Time, outstanding: u32) -> Gate {
            if outstanding < self.0 { Gate::Open } else { Gate::Closed }
        }
        fn credit(&mut self, _: Time, feedback: &Feedback) {
            self.0 = feedback.window.0;
        }
        fn announces_demand(&self) -> bool {
            true
        }
    }

    #[derive(Default)]
    struct Log(Vec<String>);

    impl ClientSink<u32> for Log {
        fn send(&mut self, request: u32, header: Header) {
            self.0.push(format!("send {request} demand {}", header.demand));
        }
        fn end(&mut self, request: u32, end: LocalOutcome) {
            self.0.push(format!("end {request} {:?} after {}", end.reason, end.waited));
        }
        fn send_demand(&mut self, demand: u32) {
            self.0.push(format!("demand {demand}"));
        }
    }

    fn client(window: u32, queue: usize, max_delay: Nanos) -> Client<u32> {
        let config = ClientConfig { queue, max_delay, ..ClientConfig::default() };
        Client::new(ClientParts { half: Box::new(Credit(window)), config })
    }

    #[test]
    fn requests_are_sent_by_credit_and_end_once() {
        let mut client = client(1, 2, Nanos(100));
        let mut log = Log::default();
        for request in 1..=4 {
            client.submit(Time(0), request, Priority::HIGHEST, 0, &mut log);
        }
        client.on_credit(Time(50), &Feedback { window: crate::units::Credits(2), ..Feedback::NONE }, &mut log);
        client.on_timer(Time(99), &mut log);
        client.on_timer(Time(100), &mut log);
        assert_eq!(
            log.0,
            [
                "send 1 demand 0",
                "demand 1",
                "demand 2",
                "end 2 Overflow after 0ns",
                "send 3 demand 1",
                "end 4 Expired after 100ns",
                "demand 0",
            ]
        );
        assert_eq!(client.outstanding(), 2);
    }

    /// Records the grant that each request names.
    #[derive(Default)]
    struct Grants(Vec<(u32, u64)>);

    impl ClientSink<u32> for Grants {
        fn send(&mut self, request: u32, header: Header) {
            self.0.push((request, header.credit.0));
        }
        fn end(&mut self, _: u32, _: LocalOutcome) {}
        fn send_demand(&mut self, _: u32) {}
    }

    #[test]
    fn a_request_carries_the_newest_credit_id() {
        let mut client = client(0, 4, Nanos::MAX);
        let mut out = Grants::default();
        for request in 1..=3 {
            client.submit(Time(0), request, Priority::HIGHEST, 0, &mut out);
        }
        let grant = |window: u32, credit: u64| Feedback {
            window: crate::units::Credits(window),
            credit: CreditId(credit),
            ..Feedback::NONE
        };
        client.on_credit(Time(5), &grant(2, 77), &mut out);
        client.on_credit(Time(6), &grant(4, 78), &mut out);
        client.submit(Time(900), 4, Priority::HIGHEST, 0, &mut out);
        assert_eq!(out.0, [(1, 77), (2, 77), (3, 78), (4, 78)]);
    }

    #[test]
    fn a_reserved_credit_is_kept_for_its_request() {
        let mut client = client(2, 4, Nanos(100));
        let mut log = Log::default();
        assert!(client.reserve(Time(0)) && client.reserve(Time(0)) && !client.reserve(Time(0)));
        client.submit(Time(0), 1, Priority::HIGHEST, 0, &mut log);
        assert!(log.0 == ["demand 1"], "both credits are set aside: {:?}", log.0);
        client.release();
        client.on_timer(Time(1), &mut log);
        client.submit_reserved(Time(2), 2, Priority::HIGHEST, &mut log);
        assert_eq!(log.0[1..], ["send 1 demand 0", "send 2 demand 0"]);
        assert_eq!(client.outstanding(), 2);
        assert!(!client.reserve(Time(3)));
        client.set_waiting_elsewhere(3, &mut log);
        assert_eq!((client.demand(), log.0.last().map(String::as_str)), (3, Some("demand 3")));
    }

    /// Opens at time 10.
    struct OpensAtTen;

    impl ClientHalf for OpensAtTen {
        fn gate(&mut self, now: Time, _: u32) -> Gate {
            if now < Time(10) { Gate::OpensAt(Time(10)) } else { Gate::Open }
        }
    }

    #[test]
    fn a_late_timer_costs_no_request() {
        let config = ClientConfig { queue: 1, ..ClientConfig::default() };
        let mut client = Client::new(ClientParts { half: Box::new(OpensAtTen), config });
        let mut log = Log::default();
        client.submit(Time(0), 1, Priority::HIGHEST, 0, &mut log);
        assert_eq!(client.next_timeout(Time(0)), Some(Time(10)));
        client.submit(Time(11), 2, Priority::HIGHEST, 0, &mut log);
        assert_eq!(log.0, ["send 1 demand 0", "send 2 demand 0"]);
    }

    #[test]
    fn the_next_timeout_is_the_oldest_expiry() {
        let mut client = client(0, 16, Nanos(100));
        assert_eq!(client.next_timeout(Time(0)), None);
        client.submit(Time(5), 1, Priority::HIGHEST, 0, &mut Log::default());
        client.submit(Time(9), 2, Priority::HIGHEST, 0, &mut Log::default());
        assert_eq!(client.next_timeout(Time(10)), Some(Time(105)));
    }
}
