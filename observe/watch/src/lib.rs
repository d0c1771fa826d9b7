//! The queue in front of any service, seen from outside, and why requests wait there.
//!
//! For tools that explain the queue of a running service, as `leeward watch` does. Entry
//! points: [`WatchTarget`] and [`Observer`].
//!
//! An overloaded service has its queue in its sockets, where it cannot see it. The kernel tells the
//! age of that queue to everybody. This crate polls the sockets of a service and what its threads
//! wait for, and says in one sentence why its requests are slow: CPU, quota, a lock, a disk,
//! another service, name resolution, pauses, a stopped process, or connections that are not
//! accepted. It needs no change of the service, and no privilege over its sockets.
//!
//! - [`Observer`]: polls the kernel at a rate that keeps within a share of a CPU.
//! - [`Poll`]: what one poll saw. [`Facts`]: what a few seconds of polls say.
//! - [`diagnose`]: facts to a [`Diagnosis`]. Pure, with a rule per [`Cause`].
//! - [`ListenerReport`]: the result per listener, as text, JSON or Prometheus metrics.
//!
//! ```
//! use leeward_watch::{Observer, WatchTarget};
//! use std::time::Duration;
//!
//! let service = std::net::TcpListener::bind("127.0.0.1:0")?;
//! let port = format!(":{}", service.local_addr()?.port());
//! let mut observer = Observer::open(WatchTarget::parse(&port)?)?;
//! observer.poll_for(Duration::from_millis(50), &|| false)?;
//! for listener in observer.reports() {
//!     println!("{}: {}", listener.address, listener.sentence);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Resolution is milliseconds: the kernel's clock ticks. Inside TLS and HTTP/2 connections,
//! requests are not told apart.

#![forbid(unsafe_code)]

mod cause;
mod connections;
mod cpu_budget;
mod diagnosis;
mod error;
mod evidence;
mod facts;
mod observer;
mod owners;
mod poll;
mod processes;
mod prometheus;
mod quota;
mod report;
mod target;
mod thread_wait;
mod turn;
mod what_if;

pub use cause::Cause;
pub use cpu_budget::Share;
pub use diagnosis::{Diagnosis, diagnose};
pub use error::WatchError;
pub use facts::{Backend, BusiestThread, Facts};
pub use observer::Observer;
pub use poll::{BackendPoll, FrontPoll, Poll, ProcessPoll, ThreadCounts};
pub use prometheus::prometheus_text;
pub use report::{AcceptQueue, AgeMillis, ListenerReport, ProcessReport, WatchReport};
pub use target::{ListenAddress, WatchTarget};
pub use what_if::{WhatIf, what_if};
