//! Flags of a meta command: tokens after its key, one letter each, some with a value.

use super::base64;
use super::replies::BAD_FORMAT;
use super::tokens::{signed, tokens, unsigned};
use crate::store::Mode;

const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad token in command line format\r\n";
pub(super) const TOO_MANY_FLAGS: &[u8] = b"CLIENT_ERROR options flags too long\r\n";
pub(super) const LONG_OPAQUE: &[u8] = b"CLIENT_ERROR opaque token too long\r\n";

/// Greatest number of tokens in a meta command.
pub(super) const META_TOKENS_MAX: usize = 19;
/// Length of the longest opaque with its letter, in bytes.
const OPAQUE_MAX: usize = 32;

/// Flags of a meta command.
///
/// Flags that only request an output are read from the tokens again, because answers keep their
/// order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    /// The decoded key, if it was base64.
    pub(super) binary_key: Option<Vec<u8>>,
    pub(super) quiet: bool,
    pub(super) value: bool,
    /// Reading does not count as use.
    pub(super) no_update: bool,
    /// Create a missing item, with this expiry.
    pub(super) vivify: Option<i32>,
    pub(super) exptime: Option<i32>,
    /// Renew an item that expires within this many seconds.
    pub(super) recache: Option<i32>,
    pub(super) client_flags: u32,
    pub(super) cas: Option<u64>,
    pub(super) mode: Option<u8>,
    pub(super) initial: u64,
    pub(super) delta: Option<u64>,
    pub(super) invalidate: bool,
    /// The opaque is too long. Commands check this after their other flags.
    pub(super) has_long_opaque: bool,
}

impl Flags {
    /// Parses the tokens from index `start` on.
    pub(super) fn read(line: &[u8], key: &[u8], start: usize) -> Result<Self, &'static [u8]> {
        let mut flags = Flags::default();
        let mut seen = [false; 127];
        let mut error = None;
        for token in tokens(line).skip(start) {
            let (letter, value) = (token[0], &token[1..]);
            match seen.get_mut(usize::from(letter)) {
                Some(seen) if !*seen => *seen = true,
                _ => return Err(b"CLIENT_ERROR duplicate flag\r\n"),
            }
            let mut bad = |reply: &'static [u8]| error = Some(reply);
            // memcached's numbers of seconds have 32 bits.
            let seconds = || i32::try_from(signed(value)?).ok();
            match letter {
                b'b' => match base64::decode(key) {
                    Some(key) => flags.binary_key = Some(key),
                    None => bad(b"CLIENT_ERROR error decoding key\r\n"),
                },
                b'N' => {
                    flags.vivify = seconds().or_else(|| {
                        bad(BAD_TOKEN);
                        None
                    })
                }
                b'T' => {
                    flags.exptime = seconds().or_else(|| {
                        bad(BAD_TOKEN);
                        None
                    })
                }
                b'R' => {
                    flags.recache = seconds().or_else(|| {
                        bad(BAD_TOKEN);
                        None
                    })
                }
                b'F' => {
                    match unsigned(value).and_then(|number| number.try_into().ok()) {
                        Some(number) => flags.client_flags = number,
                        // memcached answers bad client flags like any bad line.
                        None => error = error.or(Some(BAD_FORMAT)),
                    }
                }
                b'C' => {
                    flags.cas = unsigned(value).or_else(|| {
                        bad(BAD_TOKEN);
                        None
                    })
                }
                b'M' if value.len() == 1 => flags.mode = Some(value[0]),
                b'M' => bad(b"CLIENT_ERROR incorrect length for M token\r\n"),
                b'J' => {
                    flags.initial = unsigned(value).unwrap_or_else(|| {
                        bad(b"CLIENT_ERROR invalid numeric initial value\r\n");
                        0
                    })
                }
                b'D' => {
                    flags.delta = unsigned(value).or_else(|| {
                        bad(b"CLIENT_ERROR invalid numeric delta value\r\n");
                        None
                    })
                }
                b'I' => flags.invalidate = true,
                b'v' => flags.value = true,
                b'q' => flags.quiet = true,
                b'u' => flags.no_update = true,
                b'O' => flags.has_long_opaque = token.len() > OPAQUE_MAX,
                b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'h' | b'l' => {}
                _ => return Err(b"CLIENT_ERROR invalid flag\r\n"),
            }
        }
        error.map_or(Ok(flags), Err)
    }
}

/// Returns the storing mode of `ms` for its mode letter.
pub(super) fn mode(flags: &Flags) -> Option<Mode> {
    Some(match flags.mode {
        None | Some(b'S') => Mode::Set,
        Some(b'E') => Mode::Add,
        Some(b'A') => Mode::Append,
        Some(b'P') => Mode::Prepend,
        Some(b'R') => Mode::Replace,
        Some(_) => return None,
    })
}
