//! Names of what a request waits for between two polls.
//!
//! Does not contain waits for locks, whose threads are in a call.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Location, Symbols};
use crate::analysis::names::{is_library, without_parameters};
use crate::format::queue::Queue;
use crate::trace::Trace;

/// Labels and stacks of a trace, to which queues refer.
#[derive(Default)]
pub(super) struct AwaitPlaces {
    labels: BTreeMap<u32, String>,
    stacks: BTreeMap<u32, Arc<[u64]>>,
}

impl AwaitPlaces {
    pub(super) fn new(trace: &Trace) -> AwaitPlaces {
        AwaitPlaces { labels: trace.labels().clone(), stacks: trace.stacks().clone() }
    }
}

impl Symbols {
    /// Describes where a request waits while no thread works on it, as the start of a line.
    pub fn queue(&mut self, queue: u64, time: u64) -> String {
        match Queue::from_event(queue) {
            Queue::Unknown => "in a queue".into(),
            Queue::Address(address) => format!("in the queue at {address:#x}"),
            Queue::Ready => "ready, but not polled".into(),
            Queue::Named(label) => match self.await_places.labels.get(&label) {
                Some(text) => format!("awaiting {text}"),
                None => "awaiting something".into(),
            },
            Queue::Stack(number) => {
                let stack = self.await_places.stacks.get(&number).map(Arc::clone);
                self.await_place(&stack.unwrap_or_default(), time)
            }
        }
    }

    /// Describes what the innermost function of the program awaits, and where.
    fn await_place(&mut self, stack: &[u64], time: u64) -> String {
        let mut awaited: Option<String> = None;
        for address in stack {
            let location = self.site(*address, time);
            for index in 0..location.frames.len() {
                let frame = &location.frames[index];
                if is_waker(&frame.function) {
                    continue;
                }
                if is_library(&frame.function) {
                    awaited = Some(without_parameters(&frame.function));
                    continue;
                }
                // Frames around an inlined one are of the same place.
                let place = Location { frames: vec![frame.clone()], ..Location::clone(&location) }.describe();
                return match awaited {
                    Some(awaited) => format!("awaiting {awaited} in {place}"),
                    None => format!("awaiting in {place}"),
                };
            }
        }
        awaited.map_or("awaiting something".into(), |awaited| format!("awaiting {awaited}"))
    }
}

/// Returns whether a function only passes a waker on: it says nothing about what is awaited.
fn is_waker(name: &str) -> bool {
    name.contains("leeward_trace::") || name.starts_with("__leeward") || name.contains("::Waker") || name.contains("RawWaker")
}
