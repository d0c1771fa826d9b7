//! HTTP/2 on both sides of the proxy.

mod attacks;
mod backends;
mod clients;
mod draining;
mod grpc;
pub(crate) mod harness;
mod messages;
mod tls;
mod uploads;
mod websocket;
