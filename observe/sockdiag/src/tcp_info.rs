//! The kernel's `struct tcp_info`, as far as it is needed.
//!
//! The struct only grows at its end, so the offsets hold for every kernel. The netlink crate reads
//! it only in the length of newer kernels, so it is read here.

/// Fields of `struct tcp_info` (`include/uapi/linux/tcp.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpInfo {
    /// `tcpi_last_data_sent`, in milliseconds.
    pub(crate) last_data_sent_ms: u32,
    /// `tcpi_last_data_recv`, in milliseconds.
    pub(crate) last_data_received_ms: u32,
    /// `tcpi_last_ack_recv`, in milliseconds.
    pub(crate) last_acknowledgement_ms: u32,
    /// `tcpi_total_retrans`, in segments.
    pub(crate) retransmitted: u32,
    /// `tcpi_bytes_received`.
    pub(crate) bytes_received: u64,
    /// `tcpi_segs_in`.
    pub(crate) segments_received: u32,
    /// `tcpi_data_segs_in`.
    pub(crate) data_segments_received: u32,
    /// `tcpi_data_segs_out`.
    pub(crate) data_segments_sent: u32,
}

impl TcpInfo {
    /// Reads the struct; `None` if it ends before the last field, as before Linux 4.6.
    pub(crate) fn parse(bytes: &[u8]) -> Option<TcpInfo> {
        Some(TcpInfo {
            last_data_sent_ms: u32_at(bytes, 44)?,
            last_data_received_ms: u32_at(bytes, 52)?,
            last_acknowledgement_ms: u32_at(bytes, 56)?,
            retransmitted: u32_at(bytes, 100)?,
            bytes_received: u64_at(bytes, 128)?,
            segments_received: u32_at(bytes, 140)?,
            data_segments_received: u32_at(bytes, 152)?,
            data_segments_sent: u32_at(bytes, 156)?,
        })
    }
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..offset + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..offset + 8)?.try_into().ok().map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_struct_has_no_information() {
        for length in [0, 44, 100, 159] {
            assert_eq!(TcpInfo::parse(&vec![0; length]), None, "{length} bytes");
        }
        assert_eq!(TcpInfo::parse(&[0; 160]), Some(TcpInfo::default()));
    }

    #[test]
    fn fields_stand_where_the_kernel_puts_them() {
        let mut bytes = vec![0; 248];
        bytes[52..56].copy_from_slice(&380_u32.to_ne_bytes());
        bytes[128..136].copy_from_slice(&7_u64.to_ne_bytes());
        let info = TcpInfo::parse(&bytes).unwrap();
        assert_eq!((info.last_data_received_ms, info.bytes_received), (380, 7));
    }
}
