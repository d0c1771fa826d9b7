//! Recordings of a plant's calls to a controller's server side with its decisions, and their
//! replay: the same calls must give the same decisions. The format is `docs/recording-format.md`.
//!
//! For plants that record, and for tools that replay. Entry points: [`record`], [`Reader`] and
//! [`Replayer`].
//!
//! - [`record`] wraps the halves of any algorithm; [`Recorder`] ends the recording. Blocks leave
//!   through a [`Sink`].
//! - [`Reader`] decodes a recording, even if the file is damaged.
//! - [`Replayer`] makes the same calls to the recorded controller, or to another, and compares.
//! - [`Entry`]: one call. [`Header`]: the recorded run. [`Timeline`]: the course of a recording, in
//!   a few dozen rows.
//!
//! Does not record the clients' halves, which are other processes. Files and threads belong to the
//! caller.
//!
//! # Cost
//! The halves of a server share atomics, so the order of their calls matters. While recording,
//! every call of every core takes one mutex around *decide and append*. Decisions of different
//! cores no longer overlap, and each takes about a hundred nanoseconds more
//! (`benches/decisions.rs`). The recorded signals include that cost.
//!
//! When the sink is full, the recording ends and is marked as incomplete, and the halves run
//! without the mutex from then on: the server never waits for a disk.
//!
//! # Example
//! ```
//! use leeward_recording::{Header, Item, MemorySink, Reader, Replayer, record};
//! use leeward_core::registry::Environment;
//! use leeward_core::server::{Arrival, CoreId, Registration, Session, SessionSlot};
//! use leeward_core::units::{Nanos, Time};
//!
//! let registry = leeward_controllers::builtin();
//! let codel = registry.find("codel")?;
//! let params = codel.params(&[])?;
//! let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
//! let header = Header::new("an example", codel, &params, &environment);
//!
//! let memory = MemorySink::new(1 << 20);
//! let halves = codel.server(&params, &environment)?;
//! let (mut halves, recorder) = record(halves, &header, Box::new(memory.clone()));
//! let mut session = Session::new(SessionSlot(0), CoreId(0));
//! halves.cores[0].open(&mut session, &Registration { now: Time::ZERO, demand: 0 });
//! let arrival = Arrival::new(Time(5_000)).with_delay(Nanos::from_millis(2));
//! let (_, _pending) = session.request(halves.cores[0].as_mut(), &arrival);
//! let bytes = memory.finish(&recorder);
//!
//! let mut replayer = None;
//! for item in Reader::items(&bytes) {
//!     match item? {
//!         Item::Header(header) => replayer = Some(Replayer::from_header(&header, &registry)?),
//!         Item::Entry(entry) => replayer.as_mut().unwrap().step(&entry)?,
//!         Item::End(_) => {}
//!     }
//! }
//! let replayer = replayer.unwrap();
//! assert!(replayer.difference().is_none());
//! assert_eq!(replayer.counts().requests, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod block;
mod bytes;
mod codec;
mod difference;
mod entry;
mod header;
mod memory;
#[cfg(all(test, loom))]
mod model;
mod reader;
mod recorder;
mod replay;
mod threading;
mod timeline;

pub use block::{Block, End, EndReason, MAGIC};
pub use difference::Difference;
pub use entry::{Answer, Entry, SessionCall, SessionEntry};
pub use header::{Header, HeaderError};
pub use memory::MemorySink;
pub use reader::{Item, ReadError, Reader};
pub use recorder::{FinalBlocks, Recorder, Sink, SinkFull, record};
pub use replay::{ReplayCounts, ReplayError, Replayer};
pub use threading::ThreadingHeader;
pub use timeline::{Row, Timeline};
