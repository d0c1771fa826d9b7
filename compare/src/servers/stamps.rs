//! The kernel's receive timestamps, as Leeward's server reads them for its delay signal. The bare echoes do it where a
//! case asks what that costs, and throw the age away.

use std::io::{self, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::libc;
use nix::sys::socket::sockopt::Timestamping;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, TimestampingFlag, recvmsg, setsockopt};

/// Bytes of the control message that carries the timestamps: a header and three times of two words each.
pub(super) const CONTROL: usize = HEADER + 3 * TIME;
const HEADER: usize = size_of::<libc::cmsghdr>();
const TIME: usize = size_of::<libc::timespec>();

/// Asks the kernel for timestamps of what this socket receives.
pub(super) fn ask_for(stream: &TcpStream) {
    let flags = TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE | TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE;
    let _ = setsockopt(stream, Timestamping, &flags);
}

/// Reads once, with the age of what came.
///
/// # Errors
/// As for any read.
pub(super) fn read(stream: &TcpStream, into: &mut [u8], control: &mut [u8]) -> io::Result<(usize, Option<Duration>)> {
    let mut slices = [IoSliceMut::new(into)];
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut slices, Some(control), MsgFlags::empty())?;
    let mut waited = None;
    for control in message.cmsgs().into_iter().flatten() {
        if let ControlMessageOwned::ScmTimestampsns(stamps) = control {
            waited = age(Duration::from(stamps.system));
        }
    }
    Ok((message.bytes, waited))
}

/// The age by the first control message in `control`, if that is a timestamp.
pub(super) fn age_in(control: &[u8]) -> Option<Duration> {
    let int = |at: usize| Some(i32::from_ne_bytes(*control.get(at..)?.first_chunk()?));
    let word = |at: usize| Some(i64::from_ne_bytes(*control.get(at..)?.first_chunk()?));
    let is_stamp = int(HEADER - 8)? == libc::SOL_SOCKET && int(HEADER - 4)? == libc::SCM_TIMESTAMPING;
    let (seconds, nanos) = (word(HEADER)?, word(HEADER + TIME / 2)?);
    age(Duration::new(u64::try_from(seconds).ok().filter(|_| is_stamp)?, u32::try_from(nanos).ok()?))
}

fn age(stamp: Duration) -> Option<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    (!stamp.is_zero()).then(|| now.saturating_sub(stamp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_timestamp_has_an_age() {
        assert_eq!(age_in(&[]), None);
        assert_eq!(age_in(&[0; CONTROL]), None);
        let mut control = vec![0; CONTROL];
        control[HEADER - 8..HEADER - 4].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
        control[HEADER - 4..HEADER].copy_from_slice(&libc::SCM_TIMESTAMPING.to_ne_bytes());
        assert_eq!(age_in(&control), None, "no stamp");
        control[HEADER..HEADER + 8].copy_from_slice(&1_i64.to_ne_bytes());
        assert!(age_in(&control).is_some());
        assert_eq!(age_in(&control[..HEADER + 8]), None, "cut off");
    }
}
