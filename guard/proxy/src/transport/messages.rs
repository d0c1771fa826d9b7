//! Messages for the operator, on the standard error stream. Does not contain metrics.

use std::fmt::Display;
use std::io::Write;

/// Writes a message in one line. A stream that nobody reads is no reason to fail.
pub(crate) fn tell(message: &dyn Display) {
    let _ = writeln!(std::io::stderr(), "leeward proxy: {}", plain(&message.to_string()));
}

/// A text without control characters: names in a peer's certificate are its own choice.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_message_is_one_line_of_plain_text() {
        assert_eq!(super::plain("a\n\x1b[1mb\r"), "a??[1mb?");
    }
}
