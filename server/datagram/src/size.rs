//! Limit of a datagram's length. Does not contain the datagram's layout.

use crate::header;
use leeward_wire::{HEADER_LEN, MESSAGE_MAX};

/// Limit of the datagrams of one end, in bytes. An end sends no longer ones, and announces to its
/// peer the longest payload that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatagramSize(u16);

impl DatagramSize {
    /// Fits the longest message of a frame that ends a request or a connection.
    pub const MIN: Self = DatagramSize((header::LEN + HEADER_LEN + MESSAGE_MAX) as u16);
    /// 1,400 bytes: passes nearly every network in one piece.
    pub const DEFAULT: Self = DatagramSize(1400);
    /// Fits a frame of 9,000 bytes in a private network, over IPv4: 20 bytes for the IPv4 header
    /// and 8 for UDP's.
    pub const MAX: Self = DatagramSize(8972);

    /// Limit of so many bytes; `None` below [`DatagramSize::MIN`] and above [`DatagramSize::MAX`].
    pub fn new(bytes: usize) -> Option<Self> {
        let size = DatagramSize(u16::try_from(bytes).ok()?);
        (Self::MIN..=Self::MAX).contains(&size).then_some(size)
    }

    /// The limit in bytes.
    pub fn bytes(self) -> usize {
        usize::from(self.0)
    }

    /// The longest argument or result that fits, in bytes. Longer ones need TCP.
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
    fn only_sizes_that_fit_every_frame_and_the_network_are_accepted() {
        let taken = [0, 1127, 1128, 1400, 8972, 8973, usize::MAX].map(|bytes| DatagramSize::new(bytes).is_some());
        assert_eq!(taken, [false, false, true, true, true, false, false]);
        assert_eq!((DatagramSize::MIN.payload(), DatagramSize::default().payload()), (1024, 1296));
    }
}
