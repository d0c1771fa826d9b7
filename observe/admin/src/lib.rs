//! The admin port: what an operator's tools and an operator's browser ask of a running server or gate.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the dashboard: one page that loads nothing |
//! | `/metrics` | Prometheus's text, or OpenMetrics by `Accept` |
//! | `/healthz` | 200 as long as the process lives |
//! | `/readyz` | 503 while it stops; with `?overload=1` also while it is overloaded |
//! | `/events` | the state once a second, as server-sent events |
//! | `/debug/decisions` | the newest decisions; `?n=`, `?reason=`, `?port=` |
//! | `/debug/why?id=` | a decision in sentences |
//! | `/debug/locks`, `/debug/config` | the locks; the settings |
//!
//! A thread of its own answers, with its own sockets and no runtime: it answers while the service drowns. Everything that comes is
//! bounded: 16 connections, heads of 8 KiB, 5 seconds.
//!
//! - `server`: the thread and its sockets. `connection`: one of them. `request`, `response`: heads. `routes`: paths.
//! - `otlp`: the metrics, pushed to a receiver of OpenTelemetry's from a second thread.
//! - `stream`: bytes of a connection; `tls`, with the feature of that name: the same by TLS.
//! - `feed`: server-sent events. `guard`: who may ask. `page`: the dashboard.
//!
//! Never here: what is measured (`leeward-observe`), and anything that changes a server.

#![forbid(unsafe_code)]

mod access;
mod connection;
mod feed;
mod otlp;
mod page;
mod request;
mod response;
mod routes;
mod server;
mod sources;
mod stream;
#[cfg(feature = "tls")]
mod tls;

pub use otlp::{Exporter, OtlpEndpoint, ParseEndpointError};
pub use server::{Admin, AdminError};
pub use sources::Sources;
#[cfg(feature = "tls")]
pub use tls::ALPN;
