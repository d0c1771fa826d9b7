//! How long a datagram may be. Never here: what is in it.

use crate::header;
use leeward_wire::{HEADER_LEN, MESSAGE_MAX};

/// A bound on the datagrams of one end, in bytes. An end sends none that is longer, and tells the other what fits into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatagramSize(u16);

impl DatagramSize {
    /// Room for the longest message of a frame that ends something.
    pub const MIN: Self = DatagramSize((header::LEN + HEADER_LEN + MESSAGE_MAX) as u16);
    /// 1,400 bytes: passes through nearly every network in one piece.
    pub const DEFAULT: Self = DatagramSize(1400);
    /// Fits a frame of 9,000 bytes of a network of one's own, over IPv4: 20 bytes for its header and 8 for UDP's.
    pub const MAX: Self = DatagramSize(8972);

    /// So many bytes; `None` below [`DatagramSize::MIN`] and above [`DatagramSize::MAX`].
    pub fn new(bytes: usize) -> Option<Self> {
        let size = DatagramSize(u16::try_from(bytes).ok()?);
        (Self::MIN..=Self::MAX).contains(&size).then_some(size)
    }

    /// The bound, in bytes.
    pub fn bytes(self) -> usize {
        usize::from(self.0)
    }

    /// The longest argument or result that fits, in bytes. What is longer goes over TCP.
    pub fn payload(self) -> usize {
        self.bytes() - header::LEN - HEADER_LEN
    }
}

impl Default for DatagramSize {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sizes_that_carry_every_frame_and_fit_a_network_are_sizes() {
        let taken = [0, 1127, 1128, 1400, 8972, 8973, usize::MAX].map(|bytes| DatagramSize::new(bytes).is_some());
        assert_eq!(taken, [false, false, true, true, true, false, false]);
        assert_eq!((DatagramSize::MIN.payload(), DatagramSize::default().payload()), (1024, 1296));
    }
}
