//! The words by which a refused client can ask why: `decision 8f3a`. Nothing is allocated for them. Never here: decisions.

use std::io::Write;

/// The longest: a word, a space, 16 digits.
const LONGEST: usize = 9 + 16;

/// Words that name a decision; empty where there is none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Number {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Number {
    /// Words for the decision of this number.
    pub(super) fn of(id: u64) -> Self {
        let mut number = Number::default();
        let mut rest = &mut number.bytes[..];
        // It fits: sixteen digits are the most that a number has.
        let _ = write!(rest, "decision {id:x}");
        number.length = LONGEST - rest.len();
        number
    }

    pub(super) fn words(&self) -> &str {
        str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Number;

    #[test]
    fn every_number_fits() {
        assert_eq!(Number::default().words(), "");
        assert_eq!(Number::of(0x8f3a).words(), "decision 8f3a");
        assert_eq!(Number::of(u64::MAX).words(), "decision ffffffffffffffff");
    }
}
