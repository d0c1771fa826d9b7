//! Random histories of a wait room beside a model of each request, checked after every step, and flaws that the checks must see.

use super::*;
use proptest::prelude::*;

/// A mistake that somebody could make between requests and room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// A called request that goes away does not say so.
    KeepsSlot,
    /// Classes are not minded.
    Unordered,
    /// More may begin than are asked for.
    OneMore,
    /// A request that is called is not woken.
    Silent,
    /// Nobody asks for the time.
    Begins,
}

/// The fate of a request, so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
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
    place: Option<Place>,
    fate: Fate,
    /// Told to wait when it looked, and not woken since.
    sleeps: bool,
}

impl Request {
    fn is_out(&self) -> bool {
        !matches!(self.fate, Fate::Waits | Fate::Called | Fate::Begun)
    }
}

struct History {
    order: Order<Option<usize>>,
    slots: usize,
    flaw: Flaw,
    requests: Vec<Request>,
    now: u64,
    random: u64,
}

type Found = Result<(), String>;

fn ensure(holds: bool, what: impl Into<String>) -> Found {
    if holds { Ok(()) } else { Err(what.into()) }
}

impl History {
    fn new(seed: u64, flaw: Flaw) -> Self {
        let mut history = History {
            order: Order::new(1, 0),
            slots: 0,
            flaw,
            requests: Vec::new(),
            now: 0,
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        };
        history.slots = 1 + history.below(3);
        let places = [0, 1, 3, 12][history.below(4)];
        history.order = Order::new(history.slots + usize::from(flaw == Flaw::OneMore), places);
        history
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }

    fn play(seed: u64, flaw: Flaw) -> Found {
        let mut history = History::new(seed, flaw);
        for _ in 0..300 {
            history.step()?;
        }
        history.finish()
    }

    fn step(&mut self) -> Found {
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

    fn enter(&mut self) -> Found {
        let (class, until) = (self.below(3) as u8, self.now + self.below(120) as u64);
        let told = if self.flaw == Flaw::Unordered { 0 } else { class };
        let waited = self.order.len();
        let (mut wakes, now) = (Vec::new(), Time(self.now));
        let ahead = self.below(5);
        self.order.call_ahead(ahead);
        let entered = self.order.enter(now, (told, Time(until)), &mut wakes);
        let fate = if entered.is_ok() { Fate::Waits } else { Fate::Full };
        self.requests.push(Request { class, until, place: entered.ok(), fate, sleeps: false });
        self.check(wakes)?;
        let index = self.requests.len() - 1;
        if entered.is_err() {
            ensure(waited >= self.order.places, "refused beside a free place")?;
            ensure(self.waiting().all(|other| self.before(other, index)), "refused, and a less important one waits")?;
        }
        Ok(())
    }

    /// A request is polled as a future is: it looks, and begins or ends when it may.
    fn poll(&mut self, index: usize) -> Found {
        let request = self.requests[index];
        let (Some(place), now) = (request.place, Time(self.now)) else { return Ok(()) };
        if request.fate == Fate::Begun {
            let mut wakes = Vec::new();
            self.order.end(&mut wakes);
            self.requests[index].fate = Fate::Done;
            return self.check(wakes);
        }
        let late = self.now >= request.until;
        match self.order.look(now, place) {
            (Stand::Waits, Some(wake)) if !late => {
                *wake = Some(index);
                self.requests[index].sleeps = true;
                Ok(())
            }
            (Stand::Called, _) => {
                let mut wakes = Vec::new();
                let told = if self.flaw == Flaw::Begins { Time(0) } else { now };
                let begins = self.order.begin(told, place, &mut wakes);
                ensure(!(begins == Begin::Begins && late), "begun too late")?;
                self.requests[index].sleeps = false;
                self.requests[index].fate = match begins {
                    Begin::Begins => Fate::Begun,
                    Begin::Waits => Fate::Waits,
                    Begin::Out => Fate::Late,
                };
                self.check(wakes)
            }
            _ => {
                self.requests[index].fate = if late { Fate::Late } else { Fate::Full };
                self.gives_up(index)
            }
        }
    }

    /// A future is dropped.
    fn leave(&mut self, index: usize) -> Found {
        if self.requests[index].fate == Fate::Begun {
            return self.poll(index);
        }
        self.requests[index].fate = Fate::Gone;
        self.gives_up(index)
    }

    fn gives_up(&mut self, index: usize) -> Found {
        let Some(place) = self.requests[index].place else { return Ok(()) };
        let is_called = self.order.called.contains(&place);
        let mut wakes = Vec::new();
        if !(self.flaw == Flaw::KeepsSlot && is_called) {
            let _ = self.order.leave(place, &mut wakes);
        }
        self.check(wakes)
    }

    fn waiting(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.requests.len()).filter(|index| self.requests[*index].fate == Fate::Waits)
    }

    fn before(&self, one: usize, other: usize) -> bool {
        let key = |index: usize| (self.requests[index].class, self.requests[index].until, index);
        key(one) < key(other)
    }

    /// The rules that hold after each step.
    fn check(&mut self, wakes: Vec<Option<usize>>) -> Found {
        if self.flaw != Flaw::Silent {
            wakes.into_iter().flatten().for_each(|index| self.requests[index].sleeps = false);
        }
        let (mut called, mut evicted) = (Vec::new(), Vec::new());
        for index in 0..self.requests.len() {
            let Request { fate: Fate::Waits, place: Some(place), until, sleeps, .. } = self.requests[index] else {
                continue;
            };
            match self.order.look(Time(self.now), place).0 {
                Stand::Waits => continue,
                Stand::Called => {
                    self.requests[index].fate = Fate::Called;
                    called.push(index);
                }
                Stand::Out if self.now < until => {
                    self.requests[index].fate = Fate::Called;
                    evicted.push(index);
                }
                Stand::Out => self.requests[index].fate = Fate::Called,
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
        let begun = self.requests.iter().filter(|request| request.fate == Fate::Begun).count();
        ensure(begun <= self.slots, "more have begun than there are slots")?;
        ensure(order.called.len() <= self.slots + 4, "more were called than may be")?;
        ensure(order.queue.is_empty() || order.free() == 0, "somebody waits beside a free slot")?;
        ensure(
            order.len() <= order.places + self.slots + 4,
            "more wait than there are places, and were called before",
        )?;
        ensure(order.begun == begun, "a slot is lost")
    }

    /// Nobody comes any more, and futures are polled only when they were woken: each ends, and nothing is left.
    fn finish(&mut self) -> Found {
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
        let Order { begun, called, queue, .. } = &self.order;
        ensure((*begun, called.len(), queue.len()) == (0, 0, 0), "something is left behind")
    }
}

proptest! {
    /// Each request ends once; never more begin than there are slots, and in their order; whoever stands elsewhere was woken.
    #[test]
    fn a_room_keeps_its_promises(seed: u64) {
        prop_assert_eq!(History::play(seed, Flaw::None), Ok(()));
    }
}

#[test]
fn canaries_are_seen() {
    for flaw in [Flaw::KeepsSlot, Flaw::Unordered, Flaw::OneMore, Flaw::Silent, Flaw::Begins] {
        let seen = (1..=50).filter(|seed| History::play(*seed, flaw).is_err()).count();
        assert!(seen >= 10, "{flaw:?} was seen in {seen} of 50 histories");
    }
}

#[test]
fn a_slot_that_nobody_polls_is_taken_back_in_the_end() {
    let (mut order, mut wakes) = (Order::<Option<usize>>::new(1, 8), Vec::new());
    let held = order.enter(Time(0), (0, Time(100)), &mut wakes).unwrap();
    let waits = order.enter(Time(0), (0, Time(500)), &mut wakes).unwrap();
    assert_eq!(order.look(Time(99), waits).0, Stand::Waits);
    let later = order.enter(Time(100), (0, Time(500)), &mut wakes).unwrap();
    assert_eq!((order.look(Time(100), waits).0, order.look(Time(100), later).0), (Stand::Called, Stand::Waits));
    assert_eq!(order.begin(Time(100), held, &mut wakes), Begin::Out, "its time was over");
    assert_eq!(order.begin(Time(101), waits, &mut wakes), Begin::Begins);
}
