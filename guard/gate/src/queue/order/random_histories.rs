//! Random histories of a wait queue, compared with a model of each request after every step.
//! Planted defects must be found.

use super::*;
use proptest::prelude::*;

/// A planted defect in the calls from requests to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// A called request leaves without a call of `leave`.
    KeepsSlot,
    /// The class of each request is ignored.
    Unordered,
    /// One request more than allowed may begin.
    OneMore,
    /// A request whose state changes is not woken.
    Silent,
    /// The time of a beginning request is not checked.
    Begins,
}

/// Current state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestState {
    Waits,
    Called,
    Begun,
    Done,
    Late,
    Full,
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    class: u8,
    until: u64,
    place: Option<QueueKey>,
    state: RequestState,
    /// The request waited at its last poll and was not woken since.
    sleeps: bool,
}

impl Request {
    fn is_out(&self) -> bool {
        !matches!(self.state, RequestState::Waits | RequestState::Called | RequestState::Begun)
    }
}

struct History {
    order: QueueState<Option<usize>>,
    slots: usize,
    flaw: Defect,
    requests: Vec<Request>,
    now: u64,
    random: u64,
}

type CheckResult = Result<(), String>;

fn ensure(holds: bool, message: impl Into<String>) -> CheckResult {
    if holds { Ok(()) } else { Err(message.into()) }
}

impl History {
    fn new(seed: u64, flaw: Defect) -> Self {
        let mut history = History {
            order: QueueState::new(1, 0),
            slots: 0,
            flaw,
            requests: Vec::new(),
            now: 0,
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        };
        history.slots = 1 + history.below(3);
        let capacity = [0, 1, 3, 12][history.below(4)];
        history.order = QueueState::new(history.slots + usize::from(flaw == Defect::OneMore), capacity);
        history
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }

    fn play(seed: u64, flaw: Defect) -> CheckResult {
        let mut history = History::new(seed, flaw);
        for _ in 0..300 {
            history.step()?;
        }
        history.finish()
    }

    fn step(&mut self) -> CheckResult {
        let out: Vec<usize> = (0..self.requests.len()).filter(|index| !self.requests[*index].is_out()).collect();
        match self.below(10) {
            0..=3 => self.enter(),
            4 => {
                self.now += self.below(30) as u64;
                Ok(())
            }
            _ if out.is_empty() => Ok(()),
            5 => {
                let index = out[self.below(out.len())];
                self.leave(index)
            }
            _ => {
                let index = out[self.below(out.len())];
                self.poll(index)
            }
        }
    }

    fn enter(&mut self) -> CheckResult {
        let (class, until) = (self.below(3) as u8, self.now + self.below(120) as u64);
        let seen_class = if self.flaw == Defect::Unordered { 0 } else { class };
        let waited = self.order.len();
        let (mut wakes, now) = (Vec::new(), Time(self.now));
        let ahead = self.below(5);
        self.order.set_ahead(ahead);
        let entered = self.order.enqueue(now, (seen_class, Time(until)), &mut wakes);
        let state = if entered.is_ok() { RequestState::Waits } else { RequestState::Full };
        self.requests.push(Request { class, until, place: entered.ok(), state, sleeps: false });
        self.check(wakes)?;
        let index = self.requests.len() - 1;
        if entered.is_err() {
            ensure(waited >= self.order.capacity, "refused beside a free place")?;
            ensure(self.waiting().all(|other| self.before(other, index)), "refused, and a less important one waits")?;
        }
        Ok(())
    }

    /// Polls a request like a future: it waits, begins or ends.
    fn poll(&mut self, index: usize) -> CheckResult {
        let request = self.requests[index];
        let (Some(key), now) = (request.place, Time(self.now)) else { return Ok(()) };
        if request.state == RequestState::Begun {
            let mut wakes = Vec::new();
            self.order.end(&mut wakes);
            self.requests[index].state = RequestState::Done;
            return self.check(wakes);
        }
        let late = self.now >= request.until;
        match self.order.poll(now, key) {
            (WaiterState::Queued, Some(wake)) if !late => {
                *wake = Some(index);
                self.requests[index].sleeps = true;
                Ok(())
            }
            (WaiterState::Called, _) => {
                let mut wakes = Vec::new();
                let seen_time = if self.flaw == Defect::Begins { Time(0) } else { now };
                let begins = self.order.begin(seen_time, key, &mut wakes);
                ensure(!(begins == BeginOutcome::Started && late), "begun too late")?;
                self.requests[index].sleeps = false;
                self.requests[index].state = match begins {
                    BeginOutcome::Started => RequestState::Begun,
                    BeginOutcome::Requeued => RequestState::Waits,
                    BeginOutcome::Removed => RequestState::Late,
                };
                self.check(wakes)
            }
            _ => {
                self.requests[index].state = if late { RequestState::Late } else { RequestState::Full };
                self.gives_up(index)
            }
        }
    }

    /// Drops a future.
    fn leave(&mut self, index: usize) -> CheckResult {
        if self.requests[index].state == RequestState::Begun {
            return self.poll(index);
        }
        self.requests[index].state = RequestState::Gone;
        self.gives_up(index)
    }

    fn gives_up(&mut self, index: usize) -> CheckResult {
        let Some(key) = self.requests[index].place else { return Ok(()) };
        let is_called = self.order.called.contains(&key);
        let mut wakes = Vec::new();
        if !(self.flaw == Defect::KeepsSlot && is_called) {
            let _ = self.order.leave(key, &mut wakes);
        }
        self.check(wakes)
    }

    fn waiting(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.requests.len()).filter(|index| self.requests[*index].state == RequestState::Waits)
    }

    fn before(&self, one: usize, other: usize) -> bool {
        let key = |index: usize| (self.requests[index].class, self.requests[index].until, index);
        key(one) < key(other)
    }

    /// Checks the rules that hold after each step.
    fn check(&mut self, wakes: Vec<Option<usize>>) -> CheckResult {
        if self.flaw != Defect::Silent {
            wakes.into_iter().flatten().for_each(|index| self.requests[index].sleeps = false);
        }
        let (mut called, mut evicted) = (Vec::new(), Vec::new());
        for index in 0..self.requests.len() {
            let Request { state: RequestState::Waits, place: Some(key), until, sleeps, .. } = self.requests[index]
            else {
                continue;
            };
            match self.order.poll(Time(self.now), key).0 {
                WaiterState::Queued => continue,
                WaiterState::Called => {
                    self.requests[index].state = RequestState::Called;
                    called.push(index);
                }
                WaiterState::Removed if self.now < until => {
                    self.requests[index].state = RequestState::Called;
                    evicted.push(index);
                }
                WaiterState::Removed => self.requests[index].state = RequestState::Called,
            }
            ensure(!sleeps, format!("request {index} stands elsewhere, and sleeps"))?;
        }
        let (waits, order) = (|| self.waiting(), &self.order);
        for index in called {
            ensure(waits().all(|other| self.before(index, other)), format!("{index} was called before a better one"))?;
        }
        for index in evicted {
            ensure(waits().all(|other| self.before(other, index)), format!("{index} had to go for a worse one"))?;
        }
        let begun = self.requests.iter().filter(|request| request.state == RequestState::Begun).count();
        ensure(begun <= self.slots, "more have begun than there are slots")?;
        ensure(order.called.len() <= self.slots + 4, "more were called than may be")?;
        ensure(order.queue.is_empty() || order.free() == 0, "somebody waits beside a free slot")?;
        ensure(
            order.len() <= order.capacity + self.slots + 4,
            "more wait than there are places, and were called before",
        )?;
        ensure(order.begun == begun, "a slot is lost")
    }

    /// Runs without new requests and polls only woken futures, until each has ended and the queue
    /// is empty.
    fn finish(&mut self) -> CheckResult {
        loop {
            let awake = (0..self.requests.len()).find(|index| {
                let request = self.requests[*index];
                !request.is_out() && !request.sleeps
            });
            match awake {
                Some(index) => self.poll(index)?,
                None => break,
            }
        }
        let asleep = self.requests.iter().filter(|request| !request.is_out()).count();
        ensure(asleep == 0, format!("{asleep} wait for ever"))?;
        let QueueState { begun, called, queue, .. } = &self.order;
        ensure((*begun, called.len(), queue.len()) == (0, 0, 0), "something is left behind")
    }
}

proptest! {
    /// Each request ends once. Requests begin in order and never exceed the slots. A state change
    /// wakes the request.
    #[test]
    fn the_wait_queue_keeps_its_invariants(seed: u64) {
        prop_assert_eq!(History::play(seed, Defect::None), Ok(()));
    }
}

#[test]
fn canaries_are_caught() {
    for flaw in [Defect::KeepsSlot, Defect::Unordered, Defect::OneMore, Defect::Silent, Defect::Begins] {
        let seen = (1..=50).filter(|seed| History::play(*seed, flaw).is_err()).count();
        assert!(seen >= 10, "{flaw:?} was seen in {seen} of 50 histories");
    }
}

#[test]
fn a_slot_of_an_unpolled_request_is_reclaimed() {
    let (mut order, mut wakes) = (QueueState::<Option<usize>>::new(1, 8), Vec::new());
    let held = order.enqueue(Time(0), (0, Time(100)), &mut wakes).unwrap();
    let second = order.enqueue(Time(0), (0, Time(500)), &mut wakes).unwrap();
    assert_eq!(order.poll(Time(99), second).0, WaiterState::Queued);
    let third = order.enqueue(Time(100), (0, Time(500)), &mut wakes).unwrap();
    assert_eq!(
        (order.poll(Time(100), second).0, order.poll(Time(100), third).0),
        (WaiterState::Called, WaiterState::Queued)
    );
    assert_eq!(order.begin(Time(100), held, &mut wakes), BeginOutcome::Removed, "its time was over");
    assert_eq!(order.begin(Time(101), second, &mut wakes), BeginOutcome::Started);
}
