//! Keeps records back until all that come before them are there, and puts them in order.
//!
//! Contains no system call.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::report::{Event, EventKind};

/// Greatest number of records that are kept back: beyond, the oldest leave early.
const RECORDS_MAX: usize = 1 << 16;
/// Nanoseconds for which a request that was passed on is remembered, and the number of these.
const REMEMBERED: u64 = 10_000_000_000;
const REMEMBERED_MAX: usize = 1 << 16;

/// A request that may be reported again: its begin, and the thread that began it.
type Request = (u64, u32);
/// Place of a report: its time, then the order of arrival.
type Place = (u64, u64);

/// Reports that are kept back.
#[derive(Debug, Default)]
pub(super) struct Delay {
    events: BTreeMap<Place, Event>,
    /// Where requests are; `None` for those that were passed on.
    requests: HashMap<Request, Option<Place>>,
    /// Requests that were passed on, with the time.
    passed: VecDeque<(u64, Request)>,
    arrived: u64,
}

impl Delay {
    /// Takes a report. A later one of the same request takes the place of the earlier; it is too
    /// late if that was passed on.
    pub(super) fn push(&mut self, event: Event) {
        self.arrived += 1;
        let place = (event.time, self.arrived);
        if event.kind == EventKind::Request {
            match self.requests.insert((event.start, event.started_by), Some(place)) {
                Some(Some(earlier)) => _ = self.events.remove(&earlier),
                Some(None) => {
                    self.requests.insert((event.start, event.started_by), None);
                    return;
                }
                None => {}
            }
        }
        self.events.insert(place, event);
    }

    /// Removes requests whose last report is not before a time: they may go on, unseen.
    pub(super) fn remove_since(&mut self, time: u64) {
        let later = self.events.split_off(&(time, 0));
        for (place, event) in later {
            if event.kind == EventKind::Request {
                self.requests.remove(&(event.start, event.started_by));
            } else {
                self.events.insert(place, event);
            }
        }
    }

    /// Passes the reports up to a time to `each`, in their order.
    pub(super) fn release(&mut self, until: u64, mut each: impl FnMut(Event)) {
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > until && self.events.len() <= RECORDS_MAX {
                break;
            }
            let Some((_, event)) = self.events.pop_first() else { break };
            if event.kind == EventKind::Request {
                let request = (event.start, event.started_by);
                self.requests.insert(request, None);
                self.passed.push_back((event.time, request));
            }
            each(event);
        }
        let is_old = |time: u64| time.saturating_add(REMEMBERED) < until;
        while self.passed.front().is_some_and(|(time, _)| is_old(*time)) || self.passed.len() > REMEMBERED_MAX {
            if let Some((_, request)) = self.passed.pop_front() {
                self.requests.remove(&request);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(start: u64, time: u64) -> Event {
        let (process, thread, id) = (1, 1, 0);
        Event { kind: EventKind::Request, flags: 1, time, start, id, process, thread, started_by: 1 }
    }

    fn released(delay: &mut Delay, until: u64) -> Vec<(u64, u64)> {
        let mut events = Vec::new();
        delay.release(until, |event| events.push((event.start, event.time)));
        events
    }

    #[test]
    fn reports_leave_in_the_order_of_time() {
        let mut delay = Delay::default();
        [(5, 30), (7, 20), (6, 20), (9, 40)].into_iter().for_each(|(start, time)| delay.push(request(start, time)));
        assert_eq!(released(&mut delay, 30), [(7, 20), (6, 20), (5, 30)]);
        assert_eq!(released(&mut delay, 30), []);
        assert_eq!(released(&mut delay, u64::MAX), [(9, 40)]);
        assert!(delay.requests.is_empty() && delay.passed.is_empty());
    }

    #[test]
    fn what_may_go_on_is_removed() {
        let mut delay = Delay::default();
        [(5, 30), (7, 20), (5, 40)].into_iter().for_each(|(start, time)| delay.push(request(start, time)));
        delay.remove_since(35);
        assert_eq!(released(&mut delay, u64::MAX), [(7, 20)]);
        assert!(!delay.requests.contains_key(&(5, 1)));
    }

    #[test]
    fn a_request_is_passed_on_once() {
        let mut delay = Delay::default();
        [20, 25, 30].into_iter().for_each(|time| delay.push(request(5, time)));
        assert_eq!(released(&mut delay, 28), []);
        assert_eq!(released(&mut delay, 30), [(5, 30)]);
        delay.push(request(5, 60));
        assert_eq!(released(&mut delay, 100), []);
    }
}
