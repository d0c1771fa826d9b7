//! One request from its head to the last byte of its answer. Does not contain listeners, the queue,
//! or connections to backends.
//!
//! - `handle`: the way of a request, `exchange`: that to the backend. `head`: checks of a head, and
//!   what is changed in it; `target`: checks of its target; `versions`, `websocket`: what HTTP/1.1
//!   and HTTP/2 say differently.
//! - [`request_body`], [`response_body`]: the bytes on their way, and time-outs; `kept_body`: those
//!   that may be sent again; `grpc_message`: the end of a stream's first message.
//! - [`tunnel`]: the bytes after HTTP. `answer`: answers of the proxy's own.

mod answer;
mod base64;
mod exchange;
mod grpc_message;
pub(crate) mod handle;
pub(crate) mod head;
mod kept_body;
pub(crate) mod request_body;
pub(crate) mod response_body;
mod target;
pub(crate) mod tunnel;
pub(crate) mod versions;
mod websocket;
