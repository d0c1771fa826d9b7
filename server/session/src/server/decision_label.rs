//! Label of a decision in a rejection: `decision 8f3a`. A rejected client can ask for the reason
//! with it. No allocation. Contains no decisions.

use std::io::Write;

/// Longest label: `decision`, a space, 16 digits.
const LONGEST: usize = 9 + 16;

/// Name of a decision; empty without a decision.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DecisionLabel {
    bytes: [u8; LONGEST],
    length: usize,
}

impl DecisionLabel {
    /// Label of the decision with this number.
    pub(super) fn new(id: u64) -> Self {
        let mut label = DecisionLabel::default();
        let mut rest = &mut label.bytes[..];
        // The write cannot fail: a `u64` has at most sixteen hexadecimal digits.
        let _ = write!(rest, "decision {id:x}");
        label.length = LONGEST - rest.len();
        label
    }

    pub(super) fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::DecisionLabel;

    #[test]
    fn every_decision_id_fits() {
        assert_eq!(DecisionLabel::default().as_str(), "");
        assert_eq!(DecisionLabel::new(0x8f3a).as_str(), "decision 8f3a");
        assert_eq!(DecisionLabel::new(u64::MAX).as_str(), "decision ffffffffffffffff");
    }
}
