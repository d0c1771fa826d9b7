//! Names of what a request waits for between two polls.
//!
//! Does not contain waits for locks, whose threads are in a call.

use std::collections::BTreeMap;
use std::rc::Rc;
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
                let stack = stack.unwrap_or_default();
                describe_await(stack.iter().map(|address| self.site(*address, time)))
            }
        }
    }
}

/// Describes what the innermost function of the program awaits, and where, by the places of calls.
fn describe_await(places: impl Iterator<Item = Rc<Location>>) -> String {
    let mut awaited: Option<String> = None;
    for location in places {
        // A value that is in no module is no return address.
        if location.module.is_none() {
            continue;
        }
        for frame in frames_of_futures(&location.frames) {
            // Line tables call the inlined body of an `async fn` only that.
            let is_body = frame.function.starts_with('{');
            if is_foreign(frame) {
                if !is_body {
                    awaited = Some(without_parameters(&frame.function));
                }
                continue;
            }
            let function = if is_body { function_of_body(&location) } else { frame.function.clone() };
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

/// Returns the frames at a place that say what is awaited, the innermost first.
fn frames_of_futures(frames: &[Frame]) -> &[Frame] {
    match frames {
        // The future of a request may be inlined into the function that polls it, by a closure.
        [inner @ .., _, poll] if is_waker(&poll.function) && poll.function.contains("::recorded_poll") => inner,
        [.., called] if is_waker(&called.function) => &[],
        _ => frames,
    }
}

/// Returns the name of the function whose body is inlined at a place: of the called one, or of the
/// one whose future is polled.
fn function_of_body(location: &Location) -> String {
    let called = location.function();
    let closure = match location.frames.as_slice() {
        [.., closure, _] if is_waker(&called) => closure,
        _ => return without_parameters(&called),
    };
    // `{closure#0}<app::serve::{async_fn_env#0}>`
    let future = closure.function.split_once('<').and_then(|(_, types)| types.split_once("::{"));
    let name = future.and_then(|(path, _)| path.rsplit(['<', '(', '&', ' ']).next());
    name.map_or_else(|| "a future".into(), String::from)
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

    /// Describes the place of one call, whose frames have these functions and files.
    fn described(frames: &[(&str, &str)]) -> String {
        let frame = |(function, file): &(&str, &str)| Frame {
            function: (*function).into(),
            file: Some((*file).into()),
            line: Some(24),
        };
        let frames = frames.iter().map(frame).collect();
        let location = Location { module: Some("app".into()), offset: 0, start: None, frames };
        describe_await([Rc::new(location)].into_iter())
    }

    #[test]
    fn a_future_that_is_inlined_into_its_poll_is_named() {
        const TOKIO: &str = "/home/a/.cargo/registry/src/index/tokio-1.4/src/io/read_exact.rs";
        let read = ("<tokio::io::util::read_exact::ReadExact<T> as core::future::Future>::poll", TOKIO);
        let closure = ("{closure#0}<app::serve::{async_fn_env#0}>", "recorder/src/future.rs");
        let poll = ("<leeward_trace::polls::RequestPolls>::recorded_poll::<(), F>", "recorder/src/polls.rs");
        let awaiting = "awaiting <tokio::io::util::read_exact::ReadExact as core::future::Future>::poll";
        assert_eq!(
            described(&[read, ("{async_fn#0}", "src/main.rs"), closure, poll]),
            format!("{awaiting} in app::serve at main.rs:24")
        );
        assert_eq!(described(&[("app::serve", "src/main.rs"), closure, poll]), "awaiting in app::serve at main.rs:24");
        assert_eq!(described(&[read, closure, poll]), awaiting);
        assert_eq!(described(&[closure, poll]), "awaiting something");
        let clone = ("leeward_trace::waker::clone", "recorder/src/waker.rs");
        assert_eq!(described(&[("{closure#0}", "recorder/src/await_point.rs"), clone]), "awaiting something");
    }

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
