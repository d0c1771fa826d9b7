//! The `leeward` program.
fn main() {}
