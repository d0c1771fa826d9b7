//! Both ends of the protocol in virtual time, under faults of the wire and of the peer. One module
//! per subject; `support` has their shared parts. Does not contain sockets (server/rpc/tests).

use leeward_pair::Faults;

/// The network between the ends: streams. `tests/far` has the same tests over datagrams.
const DATAGRAMS: Option<Faults> = None;

mod cancel;
mod client;
mod conservation;
mod control_frames;
mod crowd;
mod enforcement;
mod faults;
mod fuzz;
#[path = "../../../wire/tests/wire/mutants.rs"]
mod mutants;
mod order;
mod support;
mod swarm;
