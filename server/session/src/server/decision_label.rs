//! The words by which a refused client can ask why: `decision 8f3a`. Nothing is allocated for them. Never here: decisions.

use std::io::Write;

/// The longest: a word, a space, 16 digits.
const LONGEST: usize = 9 + 16;

/// Words that name a decision; empty where there is none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DecisionLabel {
    bytes: [u8; LONGEST],
    length: usize,
}

impl DecisionLabel {
    /// Words for the decision of this number.
    pub(super) fn new(id: u64) -> Self {
        let mut number = DecisionLabel::default();
        let mut rest = &mut number.bytes[..];
        // It fits: sixteen digits are the most that a number has.
        let _ = write!(rest, "decision {id:x}");
        number.length = LONGEST - rest.len();
        number
    }

    pub(super) fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::DecisionLabel;

    #[test]
    fn every_number_fits() {
        assert_eq!(DecisionLabel::default().as_str(), "");
        assert_eq!(DecisionLabel::new(0x8f3a).as_str(), "decision 8f3a");
        assert_eq!(DecisionLabel::new(u64::MAX).as_str(), "decision ffffffffffffffff");
    }
}
