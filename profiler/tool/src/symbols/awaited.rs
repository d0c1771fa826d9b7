//! Names of what a request waits for between two polls.
//!
//! Does not contain waits for locks, whose threads are in a call.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Frame, Location, Symbols};
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
            // A value that is in no module is no return address.
            if location.module.is_none() || is_waker(&location.function()) {
                continue;
            }
            for index in 0..location.frames.len() {
                let frame = &location.frames[index];
                if is_foreign(frame) {
                    awaited = Some(without_parameters(&frame.function));
                    continue;
                }
                // Line tables call the inlined body of an `async fn` only that.
                let function = match frame.function.starts_with('{') {
                    true => without_parameters(&location.function()),
                    false => frame.function.clone(),
                };
                let frames = vec![Frame { function, ..frame.clone() }];
                let place = Location { frames, ..Location::clone(&location) }.describe();
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
    ["leeward_trace::", "<leeward_trace::", "__leeward", "<core::task::wake::Waker"]
        .iter()
        .any(|begin| name.starts_with(begin))
}

/// Returns whether a function is not the program's own: its source is in the standard library or in
/// cargo's registry, or it is known by name.
fn is_foreign(frame: &Frame) -> bool {
    const FOLDERS: [&str; 3] = ["/registry/src/", "/git/checkouts/", "/rustlib/src/"];
    let in_library = |file: &str| file.starts_with("/rustc/") || FOLDERS.iter().any(|folder| file.contains(folder));
    is_library(&frame.function) || frame.file.as_deref().is_some_and(in_library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_registry_are_not_the_programs() {
        let frame = |function: &str, file: Option<&str>| Frame {
            function: function.into(),
            file: file.map(String::from),
            line: None,
        };
        assert!(is_foreign(&frame("poll_read", Some("/home/a/.cargo/registry/src/index/tokio-1.4/src/net.rs"))));
        assert!(is_foreign(&frame("clone", Some("/rustc/0a1b/library/core/src/task/wake.rs"))));
        assert!(is_foreign(&frame("tokio::time::sleep::Sleep::poll", None)));
        assert!(!is_foreign(&frame("ask_backend", Some("src/main.rs"))));
        assert!(!is_foreign(&frame("app::ask_backend", None)));
    }
}
