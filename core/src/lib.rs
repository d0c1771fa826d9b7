//! Overload controllers as pure code. A controller turns *signals* (queueing delay, arrivals,
//! responses) into *decisions* (admit, reject, grant credit, send, wait). It never touches a
//! socket, a thread, a clock or a random number generator: time and random bits are arguments. The
//! same compiled code decides in the simulator and in the running server.
//!
//! For authors of algorithms, plants and servers. Entry points: [`server::Admission`],
//! [`server::ControlLoop`], [`client::ClientHalf`] and [`registry::Registry`].
//!
//! Modules:
//! - [`units`]: time, credits, rates and priorities as types, and their notation (`80us`, `850k`,
//!   `1.4x`).
//! - [`server`]: the server's side of a controller: the fast half ([`server::Admission`], one per
//!   core) and the slow half ([`server::ControlLoop`], one per server).
//! - [`client`]: the client's side: [`client::ClientHalf`], and [`client::Client`], the bounded
//!   queue around it.
//! - [`hedging`]: calls that are made a second time, at another copy of the data, and their budget.
//! - [`registry`]: algorithms by name. `leeward-controllers` has Leeward's; other crates add their
//!   own without changing this one.
//! - [`none`]: the smallest algorithm.
//! - [`params`]: typed, checked parameters that every algorithm declares.
//!
//! # Example
//! A server core and a client of it, connected by hand:
//! ```
//! use leeward_core::client::{Client, ClientSink, Header, LocalOutcome};
//! use leeward_core::registry::Environment;
//! use leeward_core::server::{
//!     Arrival, CoreId, Departure, Outcome, Registration, Session, SessionSlot, Signals, Verdict,
//! };
//! use leeward_core::units::{CreditId, Nanos, Priority, Time};
//!
//! // The environment holds the given conditions; everything else has a default.
//! let environment = Environment::new(10, Nanos::from_micros(10), Nanos::from_micros(200));
//! let algorithm = leeward_controllers::builtin().find("breakwater").unwrap().clone();
//! let params = algorithm.params(&[]).unwrap();
//! let mut server = algorithm.server(&params, &environment).unwrap();
//! let mut client: Client<&str> = algorithm.client(&params, &environment).unwrap();
//!
//! // The client registers; the next control tick wakes it with a credit.
//! let now = Time::ZERO;
//! let mut session = Session::new(SessionSlot(0), CoreId(0));
//! let core = &mut server.cores[0];
//! core.open(&mut session, &Registration { now, demand: 0 });
//! server.control.tick(&Signals::idle(now));
//! assert_eq!(core.next_to_wake(0), Some(SessionSlot(0)));
//! let feedback = core.wake(&mut session, now);
//!
//! /// Receives a client's decisions: a socket in the real client, a virtual wire in the simulator.
//! #[derive(Default)]
//! struct Wire(Vec<&'static str>);
//! impl ClientSink<&'static str> for Wire {
//!     fn send(&mut self, request: &'static str, _: Header) { self.0.push(request) }
//!     fn end(&mut self, _: &'static str, _: LocalOutcome) {}
//!     fn send_demand(&mut self, _: u32) {}
//! }
//! let mut wire = Wire::default();
//! client.on_credit(now, &feedback, &mut wire);
//! client.submit(now, "get a", Priority::HIGHEST, 0, &mut wire);
//! assert_eq!(wire.0, ["get a"]);
//!
//! // The server admits the request, and the response carries the next window.
//! let (verdict, pending) = session.request(core.as_mut(), &Arrival::new(now));
//! assert_eq!(verdict, Verdict::Admit);
//! let sojourn = Nanos::from_micros(12);
//! let departure = Departure { now, outcome: Outcome::Completed, sojourn, credit: CreditId::NONE };
//! let feedback = session.reply(core.as_mut(), pending, &departure);
//! assert!(feedback.window.0 >= 1);
//! ```

#![forbid(unsafe_code)]

pub mod budget;
pub mod client;
pub mod hedging;
pub mod none;
pub mod params;
pub mod registry;
pub mod server;
pub mod shadow;
pub mod sync;
pub mod units;
