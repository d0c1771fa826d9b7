//! The admin port: serves the state of a running server or gate to an operator's tools and browser.
//!
//! For servers and programs with a gate. Entry points: [`Sources`], [`Admin::start`] and
//! [`Exporter`].
//!
//! | path | response |
//! |---|---|
//! | `/` | the dashboard: one page that loads nothing |
//! | `/metrics` | Prometheus's text, or OpenMetrics by `Accept` |
//! | `/healthz` | 200 as long as the process lives |
//! | `/readyz` | 503 while it stops; with `?overload=1` also while it is overloaded |
//! | `/events` | the state once a second, as server-sent events |
//! | `/debug/decisions` | the newest decisions; `?n=`, `?reason=`, `?port=` |
//! | `/debug/why?id=` | a decision explained in sentences |
//! | `/debug/locks`, `/debug/config` | the locks; the settings |
//!
//! A thread of its own serves the port, with its own sockets and without a runtime, so it responds
//! while the service is overloaded. All input is bounded: 16 connections, heads of 8 KiB, 5
//! seconds.
//!
//! - `server`: the thread and its sockets. `connection`: one connection. `request`, `response`:
//!   heads. `routes`: paths.
//! - `otlp`: pushes the metrics to an OpenTelemetry receiver from a second thread.
//! - `stream`: bytes of a connection; `tls`, with the feature of that name: the same over TLS.
//! - `descriptor`: recognises descriptors that the program has closed.
//! - `feed`: server-sent events. `access`: access rules. `page`: the dashboard.
//!
//! # Example
//! ```
//! use leeward_admin::{Admin, Sources};
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//!
//! let admin = Admin::start("127.0.0.1:0", Sources::default(), String::new())?;
//! let mut operator = TcpStream::connect(admin.address())?;
//! operator.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
//! let mut response = String::new();
//! operator.read_to_string(&mut response)?;
//! assert!(response.starts_with("HTTP/1.1 200"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Does not contain measurements (`leeward-observe`), or anything that changes a server.

#![forbid(unsafe_code)]

mod access;
mod connection;
mod descriptor;
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
