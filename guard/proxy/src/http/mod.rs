//! One request from its head to the last byte of its answer. Does not contain listeners, the queue,
//! or connections to backends.
//!
//! - `handle`: the way of a request. `head`: checks of a head, and what is changed in it.
//! - [`request_body`], [`response_body`]: the bytes on their way, and time-outs.
//! - `answer`: answers of the proxy's own.

mod answer;
pub(crate) mod handle;
pub(crate) mod head;
pub(crate) mod request_body;
pub(crate) mod response_body;
