//! A reverse proxy that keeps any HTTP service inside its latency objective.
//!
//! For programs that put a proxy before a service in any language, as `leeward proxy` does.
//! Entry points: [`Settings`] and [`Proxy::start`].
//!
//! Behind a proxy, the queue of a service can't be seen. So the proxy owns the queue: it keeps as
//! many requests at each backend as fill it (`leeward-concurrency`), and holds the rest, where age,
//! class, tenant and deadline are known and a rejection costs the backend nothing.
//!
//! - [`Proxy`]: a running proxy. [`Settings`]: what it must be told; [`settings::file`]: the same
//!   in a configuration file.
//! - [`Admission`]: the queue and the places at backends, shared by the worker threads.
//! - `server`: start, new settings, graceful stop. `thread`: worker threads. `connection`: one
//!   connection of a client, `activity`: whether it is busy, `connections`: all of them.
//! - `worker`: what the requests of a thread share, and a reload replaces.
//! - `transport`: the bytes below HTTP: sockets of TCP and Unix, the PROXY protocol, TLS.
//! - `access_log`: a line per request.
//! - `certificates`: those of both sides.
//! - `http`: one request from its head to the last byte of its answer.
//! - `backend`: connections to backends, and whether a backend is reachable.
//!
//! # Example
//! ```
//! use leeward_proxy::{Proxy, Settings};
//! use std::time::Duration;
//!
//! let backend = "127.0.0.1:3000".parse()?;
//! let settings = Settings::new(Duration::from_millis(50), "127.0.0.1:0", vec![backend]);
//! let proxy = Proxy::start(settings)?;
//! println!("{} keeps requests inside 50 ms", proxy.address());
//! proxy.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Does not contain the parsing of HTTP (hyper) or the law that finds the number of places
//! (`leeward-concurrency`).

#![forbid(unsafe_code)]

mod access_log;
mod activity;
mod admission;
mod backend;
mod certificates;
mod connection;
mod connections;
mod error;
mod http;
mod server;
pub mod settings;
mod thread;
mod transport;
mod worker;

pub use admission::Admission;
pub use backend::address::{BackendAddress, ParseAddressError};
pub use error::ProxyError;
pub use server::Proxy;
pub use settings::Settings;
pub use transport::address::LocalAddress;
pub use transport::listener::BoundListener;
pub use transport::proxy_protocol::encode::Version as ProxyProtocolVersion;
pub use transport::status::TransportStatus;
