//! Replies of memcached 1.6 that several files share.

pub(super) const ERROR: &[u8] = b"ERROR\r\n";
pub(super) const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
pub(super) const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
pub(super) const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
pub(super) const NOT_A_NUMBER: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";

/// Reserved bytes around a value: without them a long answer would be reallocated for its end.
pub(super) const VALUE_OVERHEAD: usize = 512;
