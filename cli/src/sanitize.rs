//! Text that a terminal shows as it is, whatever it came from.

/// Text from elsewhere, a file or a server, without what would move a terminal's cursor.
pub(crate) fn sanitize(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}
