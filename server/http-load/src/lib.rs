//! Load for HTTP services: HTTP/1.1, HTTP/2 and unary gRPC, by hyper's client.
//!
//! For measurements of HTTP and gRPC services in any language. Entry points: [`Target`],
//! [`HttpLoadConfig`] and [`run`].
//!
//! - Open loop: the due times of all requests are drawn before the run
//!   ([`leeward_load::Schedule`]). A late request is still sent, and counted as late.
//! - Latency counts from the *due* time to the last byte of the response, so the wait for a free
//!   connection is part of it (no coordinated omission).
//! - Every request has exactly one end in the [report](leeward_load::LoadReport), and the sums are
//!   checked. Rejections (429, 503, RESOURCE_EXHAUSTED, UNAVAILABLE) are told apart from failures.
//! - One thread runs all connections. Closed connections are opened again.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use leeward_core::units::{Nanos, Rate};
//! use leeward_http_load::{HttpLoadConfig, Target, run};
//! use leeward_load::{Plan, Schedule};
//! use leeward_workload::{Arrivals, Segment, ServiceTime, Shares, Workload};
//!
//! let workload = Workload {
//!     clients: 100,
//!     arrivals: Arrivals::Poisson,
//!     shares: Shares::Equal,
//!     demand: vec![Segment { from: Nanos::ZERO, rate: Rate(2_000.0) }],
//!     service: ServiceTime::Constant(Nanos::ZERO),
//! };
//! let plan = Plan::Open(Schedule::draw(&workload, 1, Nanos::from_secs(10))?);
//! let target = Target::parse("http://127.0.0.1:8080/")?;
//! let config = HttpLoadConfig::new(vec![target], Nanos::from_millis(20));
//! let results = run(&config, &plan, &AtomicBool::new(false), |_| {})?;
//! println!("{} good responses per second", results.report.goodput_per_s);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Linux only. Contains no server and no parser of HTTP.

#![forbid(unsafe_code)]

pub mod config;
mod connection;
mod exchange;
mod grpc;
mod http1;
mod http2;
mod lifecycle;
mod mix;
mod request;
mod response;
mod run;
mod shared;
mod state;
pub mod target;
mod timer;

pub use bytes;
pub use config::{HttpLoadConfig, HttpLoadError, HttpVersion, Share};
pub use http;
pub use run::{ScaledRun, run, run_scaled};
pub use target::{Endpoint, Target, TargetError};
