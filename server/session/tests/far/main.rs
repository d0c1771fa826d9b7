//! The tests of `tests/pair` again, over datagrams. The network loses, duplicates and delays 5 % of
//! them each, and both ends behave as over a stream. Tests of a stream's bytes are excluded:
//! splitting, damage, slow reads.

use leeward_core::units::Nanos;
use leeward_pair::Faults;

/// Faults of the network between the ends.
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
