//! The tests of `tests/pair` again, over datagrams and a network that loses, doubles and reorders one in twenty of them: both ends
//! behave as over a stream. What is about bytes of a stream is not among them: how it is cut, damaged, and read slowly.

use leeward_core::units::Nanos;
use leeward_pair::Faults;

/// The network between the ends.
const DATAGRAMS: Option<Faults> =
    Some(Faults { loss: 50, duplication: 50, reordering: 50, extra_delay_max: Nanos::from_millis(1) });

#[path = "../pair/cancel.rs"]
mod cancel;
#[path = "../pair/client.rs"]
mod client;
#[path = "../pair/control_frames.rs"]
mod control_frames;
#[path = "../pair/crowd.rs"]
mod crowd;
#[path = "../pair/enforcement.rs"]
mod enforcement;
mod once;
#[path = "../pair/order.rs"]
mod order;
#[allow(dead_code, reason = "a part of it is for streams")]
#[path = "../pair/support.rs"]
mod support;
#[path = "../pair/swarm.rs"]
mod swarm;
