//! Queues of requests, as events name them: by an address, or by a number that is none.
//!
//! Does not contain the texts and stacks to which numbers refer.

/// Number of the queue of requests that could go on.
const READY: u64 = 257;
/// Numbers from here on stand for a label, and for a stack.
const NAMED: u64 = 0x4000;
const STACK: u64 = 0x8000;
/// Addresses begin here: programs have no memory below.
const ADDRESS: u64 = 0x1_0000;

/// Where a request waits while no thread works on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Queue {
    /// In an unknown place.
    Unknown,
    /// In the queue at this address, or with this number of the program.
    Address(u64),
    /// It could go on, and waits for a thread that polls it.
    Ready,
    /// For what the label with this number names.
    Named(u32),
    /// For what its thread called in the stack with this number.
    Stack(u32),
}

impl Queue {
    /// Returns what the queue of an event means.
    pub fn from_event(queue: u64) -> Queue {
        match queue {
            0 => Queue::Unknown,
            READY => Queue::Ready,
            number if (NAMED + 1..STACK).contains(&number) => Queue::Named((number - NAMED) as u32),
            number if (STACK + 1..ADDRESS).contains(&number) => Queue::Stack((number - STACK) as u32),
            address => Queue::Address(address),
        }
    }

    /// Returns how an event names the queue.
    pub fn to_event(self) -> u64 {
        match self {
            Queue::Unknown => 0,
            Queue::Ready => READY,
            Queue::Named(number) => NAMED + u64::from(number),
            Queue::Stack(number) => STACK + u64::from(number),
            Queue::Address(address) => address,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_queue_is_written_as_it_was_read(queue in prop_oneof![0_u64..0x2_0000, any::<u64>()]) {
            prop_assert_eq!(Queue::from_event(queue).to_event(), queue);
        }
    }

    #[test]
    fn numbers_below_all_addresses_are_no_addresses() {
        assert_eq!(Queue::from_event(257), Queue::Ready);
        assert_eq!(Queue::from_event(0x4001), Queue::Named(1));
        assert_eq!(Queue::from_event(0x8001), Queue::Stack(1));
        assert_eq!(Queue::from_event(0x1_0000), Queue::Address(0x1_0000));
        // A program may number its queues.
        assert_eq!(Queue::from_event(1), Queue::Address(1));
    }
}
