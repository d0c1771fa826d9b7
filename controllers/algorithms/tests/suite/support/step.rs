//! Steps of a plant, one event at a time, and the random sequences of them.

use leeward_core::units::Nanos;
use proptest::prelude::*;

/// Connections that may be open at once.
pub(crate) const MAX_CONNECTIONS: usize = 6;

/// A single event. A step without an object (no connection, no message) does nothing.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A client connects, with `waiting` requests in its queue.
    Open { place: usize, waiting: u8 },
    /// A connection ends or breaks, and loses its messages in flight.
    Close { place: usize },
    /// The application issues a request.
    Submit { place: usize, level: u8, random: u64 },
    /// The oldest message to the server arrives. A rejection leaves at once, or later with
    /// [`Step::Finish`].
    ToServer { place: usize, random: u64, at_once: bool },
    /// A request in the server ends: executed, or rejected inside.
    Finish { place: usize, pick: usize, executed: bool },
    /// The oldest message to the client arrives.
    ToClient { place: usize },
    /// The control loop ticks, and wakes sessions.
    Tick { random: u64 },
    /// Sets the delay of the queues until the next such step.
    Queues { packet_delay: Nanos, run_delay: Nanos },
    /// Time passes without timer calls (timers may be late).
    Advance { time: Nanos },
    /// Calls a client's timer, due or not.
    Timer { place: usize },
}

/// Sequences of up to `max` steps of all kinds.
pub(crate) fn steps(max: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 0..max)
}

fn step() -> impl Strategy<Value = Step> {
    let place = 0..MAX_CONNECTIONS;
    prop_oneof![
        3 => (place.clone(), 0u8..6).prop_map(|(place, waiting)| Step::Open { place, waiting }),
        1 => place.clone().prop_map(|place| Step::Close { place }),
        24 => (place.clone(), 1u8..=128, any::<u64>())
            .prop_map(|(place, level, random)| Step::Submit { place, level, random }),
        24 => (place.clone(), any::<u64>(), any::<bool>())
            .prop_map(|(place, random, at_once)| Step::ToServer { place, random, at_once }),
        24 => (place.clone(), 0usize..8, prop::bool::weighted(0.9))
            .prop_map(|(place, pick, executed)| Step::Finish { place, pick, executed }),
        24 => place.clone().prop_map(|place| Step::ToClient { place }),
        12 => any::<u64>().prop_map(|random| Step::Tick { random }),
        2 => (delay(), delay())
            .prop_map(|(packet_delay, run_delay)| Step::Queues { packet_delay, run_delay }),
        8 => advance_time().prop_map(|time| Step::Advance { time }),
        4 => place.prop_map(|place| Step::Timer { place }),
    ]
}

/// Mostly zero, sometimes around the targets, sometimes far above.
fn delay() -> impl Strategy<Value = Nanos> {
    prop_oneof![
        4 => Just(Nanos::ZERO),
        3 => (0u64..200_000).prop_map(Nanos),
        1 => (0u64..100_000_000).prop_map(Nanos),
    ]
}

/// From the time between two packets to a long pause.
fn advance_time() -> impl Strategy<Value = Nanos> {
    prop_oneof![
        40 => (1u64..10_000).prop_map(Nanos),
        4 => (1u64..2_000_000).prop_map(Nanos),
        1 => (1u64..3_000_000_000).prop_map(Nanos),
    ]
}
