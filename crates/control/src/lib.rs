//! Overload controllers as pure code. A controller turns *signals* (queueing delay, arrivals, responses) into
//! *decisions* (admit, reject, grant credit, send, wait); it never touches a socket, a thread, a clock or a random
//! number generator: time and random bits are arguments. The same compiled code decides in the simulator and in the
//! running server.
//!
//! Where to look:
//! - [`units`]: time, credits, rates and priorities as types, and how they are written (`80us`, `850k`, `1.4x`).
//! - [`server`]: what a server asks a controller: the fast half ([`server::Admission`], one per core) and the slow half
//!   ([`server::ControlLoop`], one per server).
//! - [`client`]: what a client asks: [`client::ClientHalf`], and [`client::Client`], the bounded queue around it.
//! - [`algorithms`]: one file per algorithm.
//! - [`hedging`]: which calls are made a second time, at another copy of the data, and what that may cost.
//! - [`allocation`]: how many cores a service gets; one file per policy.
//! - [`registry`]: the algorithms by name; other crates add their own here without changing this one.
//! - [`recording`]: what a plant asked and a controller decided, written down and replayed.
//! - [`params`]: typed, checked parameters that every algorithm declares.
//!
//! # Example
//! A server core and a client of it, connected by hand:
//! ```
//! use leeward_control::{
//!     client::{Client, Header, LocalEnd, Outlet},
//!     registry::{Environment, Registry},
//!     server::{Arrival, Departure, Opened, Outcome, Session, SessionSlot, Signals, Verdict, CoreId},
//!     units::{CreditId, Nanos, Priority, Time},
//! };
//!
//! // Everything that the surroundings decide is in the environment; everything else has a default.
//! let environment = Environment::new(10, Nanos::from_micros(10), Nanos::from_micros(200));
//! let algorithm = Registry::builtin().find("breakwater").unwrap().clone();
//! let params = algorithm.params(&[]).unwrap();
//! let mut server = algorithm.server(&params, &environment).unwrap();
//! let mut client: Client<&str> = algorithm.client(&params, &environment).unwrap();
//!
//! // The client registers; the next control tick wakes it with a credit.
//! let now = Time::ZERO;
//! let mut session = Session::new(SessionSlot(0), CoreId(0));
//! let core = &mut server.cores[0];
//! core.open(&mut session, &Opened { now, demand: 0 });
//! server.control.tick(&Signals::idle(now));
//! assert_eq!(core.next_to_wake(0), Some(SessionSlot(0)));
//! let feedback = core.wake(&mut session, now);
//!
//! /// Where a client's decisions go: a socket in the real client, a virtual wire in the simulator.
//! #[derive(Default)]
//! struct Wire(Vec<&'static str>);
//! impl Outlet<&'static str> for Wire {
//!     fn send(&mut self, request: &'static str, _: Header) { self.0.push(request) }
//!     fn end(&mut self, _: &'static str, _: LocalEnd) {}
//!     fn send_demand(&mut self, _: u32) {}
//! }
//! let mut wire = Wire::default();
//! client.on_credit(now, &feedback, &mut wire);
//! client.submit(now, "get a", Priority::HIGHEST, 0, &mut wire);
//! assert_eq!(wire.0, ["get a"]);
//!
//! // The server admits it, and the answer carries the next window.
//! let (verdict, ticket) = session.request(core.as_mut(), &Arrival::new(now));
//! assert_eq!(verdict, Verdict::Admit);
//! let departure = Departure { now, outcome: Outcome::Completed, sojourn: Nanos::from_micros(12), credit: CreditId::NONE };
//! let feedback = session.reply(core.as_mut(), ticket, &departure);
//! assert!(feedback.window.0 >= 1);
//! ```

#![forbid(unsafe_code)]

pub mod algorithms;
pub mod allocation;
pub mod budget;
pub mod client;
pub mod hedging;
pub mod params;
pub mod recording;
pub mod registry;
pub mod rehearsal;
pub mod server;
pub(crate) mod sync;
pub mod threading;
pub mod units;
