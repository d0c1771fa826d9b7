//! Makes text safe for a terminal.

/// Replaces control characters in text from a file or a server, since they could move the
/// terminal's cursor.
pub(crate) fn sanitize(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}
