//! Requests of a connection that have not ended, by slot. Slot and generation form the identifier
//! on the wire. So a duplicate or stray answer is recognized without a map.

use leeward_core::units::Time;

use leeward_wire::{Budget, Method, RequestId};

/// State of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    Free,
    Waiting,
    Sent(Time),
}

#[derive(Debug)]
struct Slot<T> {
    token: Option<T>,
    /// Number of times that this slot was freed, modulo 2³².
    generation: u32,
    state: SlotState,
    method: Method,
    /// Queueing budget and the time from which it runs; `None`: the connection's default budget.
    budget: Option<(Budget, Time)>,
    /// Kept until the request is sent. The next request in the slot reuses the memory.
    payload: Vec<u8>,
}

/// Payload memory that a slot keeps for its next request, at most, in bytes.
const RETAINED_MAX: usize = 4096;

#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    in_flight: u32,
}

impl<T> Slots<T> {
    pub(super) fn new() -> Self {
        Slots { slots: Vec::new(), free: Vec::new(), in_flight: 0 }
    }

    /// Inserts a waiting request.
    pub(super) fn insert(
        &mut self,
        token: T,
        method: Method,
        payload: &[u8],
        budget: Option<(Budget, Time)>,
    ) -> (u32, RequestId) {
        let index = self.free.pop().unwrap_or_else(|| {
            let (state, payload) = (SlotState::Free, Vec::new());
            let slot = Slot { token: None, generation: 0, state, method, budget, payload };
            self.slots.push(slot);
            // The shell bounds waiting and unanswered requests, so this stays far below 2³².
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.token = Some(token);
        slot.state = SlotState::Waiting;
        slot.method = method;
        slot.budget = budget;
        slot.payload.extend_from_slice(payload);
        (index, identifier(slot.generation, index))
    }

    /// Identifier, method and payload of a request.
    pub(super) fn call(&self, index: u32) -> (RequestId, Method, &[u8]) {
        let slot = &self.slots[index as usize];
        (identifier(slot.generation, index), slot.method, &slot.payload)
    }

    /// Queueing delay that a request may still spend; `None` without a budget of its own.
    pub(super) fn budget(&self, index: u32, now: Time) -> Option<Budget> {
        let (budget, since) = self.slots[index as usize].budget?;
        Some(budget.remaining().map_or(budget, |whole| Budget::of(whole.saturating_sub(now.since(since)))))
    }

    /// Marks a request as sent and drops its payload.
    pub(super) fn mark_sent(&mut self, index: u32, now: Time) {
        let slot = &mut self.slots[index as usize];
        slot.state = SlotState::Sent(now);
        clear_payload(&mut slot.payload);
        self.in_flight += 1;
    }

    /// Send time and method of the request that an answer names; `None` if it isn't in flight.
    pub(super) fn sent_at(&self, request: RequestId) -> Option<(Time, Method)> {
        let (generation, index) = parts(request);
        let slot = self.slots.get(index as usize)?;
        match slot.state {
            SlotState::Sent(at) if slot.generation == generation => Some((at, slot.method)),
            _ => None,
        }
    }

    /// Ends the request that an answer names. Returns `None` if the request isn't in flight; the
    /// inner value is `None` if it was abandoned.
    pub(super) fn complete(&mut self, request: RequestId) -> Option<Option<T>> {
        self.sent_at(request)?;
        let (_, index) = parts(request);
        self.in_flight -= 1;
        Some(self.release(index))
    }

    /// The slot of a request that still waits.
    pub(super) fn find_waiting(&self, request: RequestId) -> Option<u32> {
        let (generation, index) = parts(request);
        let slot = self.slots.get(index as usize)?;
        (slot.state == SlotState::Waiting && slot.generation == generation).then_some(index)
    }

    /// Abandons a sent request: no caller receives its end. The slot stays in use until the answer.
    pub(super) fn abandon(&mut self, request: RequestId) -> Option<T> {
        self.sent_at(request)?;
        let (_, index) = parts(request);
        self.slots[index as usize].token.take()
    }

    /// Ends a waiting request.
    pub(super) fn remove(&mut self, index: u32) -> Option<T> {
        self.release(index)
    }

    /// Ends all requests in flight.
    pub(super) fn drain_sent(&mut self, mut end: impl FnMut(T)) {
        for index in 0..self.slots.len() as u32 {
            if matches!(self.slots[index as usize].state, SlotState::Sent(_)) {
                self.in_flight -= 1;
                if let Some(token) = self.release(index) {
                    end(token);
                }
            }
        }
    }

    /// Requests sent and not answered.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Requests whose end a caller awaits.
    #[cfg(test)]
    pub(super) fn tracked(&self) -> u32 {
        self.slots.iter().filter(|slot| slot.token.is_some()).count() as u32
    }

    fn release(&mut self, index: u32) -> Option<T> {
        let slot = &mut self.slots[index as usize];
        slot.state = SlotState::Free;
        slot.generation = slot.generation.wrapping_add(1);
        clear_payload(&mut slot.payload);
        self.free.push(index);
        slot.token.take()
    }
}

fn clear_payload(payload: &mut Vec<u8>) {
    if payload.capacity() > RETAINED_MAX { *payload = Vec::new() } else { payload.clear() }
}

fn identifier(generation: u32, index: u32) -> RequestId {
    let id = (u64::from(generation) << 32) | (u64::from(index) + 1);
    RequestId::new(id).expect("the low half is at least 1")
}

/// Generation and slot. The low half of a foreign identifier may be 0, which wraps to an index of
/// no slot.
fn parts(request: RequestId) -> (u32, u32) {
    let id = request.value();
    ((id >> 32) as u32, (id as u32).wrapping_sub(1))
}

#[cfg(test)]
mod tests {
    use leeward_core::units::Nanos;

    use super::*;

    #[test]
    fn an_answer_completes_only_a_sent_request_and_only_once() {
        let mut slots = Slots::new();
        let (first, id) = slots.insert('a', Method(1), b"x", None);
        assert_eq!(slots.call(first).0, id);
        assert_eq!(slots.complete(id), None, "still waiting");
        slots.mark_sent(first, Time(5));
        assert_eq!(slots.in_flight(), 1);
        assert_eq!(slots.sent_at(id).map(|(at, _)| at), Some(Time(5)));
        assert_eq!(slots.complete(id), Some(Some('a')));
        assert_eq!(slots.complete(id), None, "a second time");

        // The slot is reused under another identifier.
        let (second, _) = slots.insert('b', Method(1), b"y", None);
        assert_eq!(second, first);
        let (new_id, _, payload) = slots.call(second);
        assert_eq!(payload, b"y");
        slots.mark_sent(second, Time(6));
        assert_ne!(new_id, id);
        assert_eq!(slots.complete(id), None, "the old identifier");
        for stray in [1 << 32, 77, u64::MAX] {
            assert_eq!(slots.complete(RequestId::new(stray).unwrap()), None);
        }
        assert_eq!(slots.complete(new_id), Some(Some('b')));
    }

    #[test]
    fn an_abandoned_request_keeps_its_slot_until_the_answer() {
        let mut slots = Slots::new();
        let (index, id) = slots.insert('a', Method(1), b"x", None);
        assert_eq!(slots.abandon(id), None, "not sent yet");
        assert_eq!(slots.find_waiting(id), Some(index));
        slots.mark_sent(index, Time(5));
        assert_eq!(slots.find_waiting(id), None);
        assert_eq!(slots.abandon(id), Some('a'));
        assert_eq!(slots.abandon(id), None);
        assert_eq!(slots.in_flight(), 1);
        assert_eq!(slots.complete(id), Some(None));
        assert_eq!(slots.complete(id), None);
        assert_eq!(slots.in_flight(), 0);
    }

    #[test]
    fn a_budget_shrinks_with_the_wait_and_never_becomes_unlimited() {
        let mut slots = Slots::new();
        let budget = Budget::of(Nanos(50));
        let (index, _) = slots.insert((), Method(1), b"", Some((budget, Time(100))));
        assert_eq!(slots.budget(index, Time(120)), Some(Budget::of(Nanos(30))));
        assert_eq!(slots.budget(index, Time(500)), Some(Budget::of(Nanos(1))));
        let (index, _) = slots.insert((), Method(1), b"", Some((Budget::UNLIMITED, Time(100))));
        assert_eq!(slots.budget(index, Time(120)), Some(Budget::UNLIMITED));
        let (index, _) = slots.insert((), Method(1), b"", None);
        assert_eq!(slots.budget(index, Time(120)), None);
    }

    #[test]
    fn long_payloads_give_their_memory_back() {
        let mut slots = Slots::new();
        let (index, _) = slots.insert((), Method(0), &[0; 2 * RETAINED_MAX], None);
        slots.mark_sent(index, Time(0));
        assert_eq!(slots.slots[index as usize].payload.capacity(), 0);
    }
}
