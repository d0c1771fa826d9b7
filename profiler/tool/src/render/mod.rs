//! Timelines for people: in the terminal, and as a page that needs nothing else.

mod html;
mod text;

pub use html::page;
pub use text::timeline;

use crate::analysis::timeline::Look;

impl Look {
    /// What a bar of this look means.
    pub fn words(self) -> &'static str {
        match self {
            Look::Call => "in a function",
            Look::Wait => "waiting",
            Look::Held => "holding what the request waits for",
            Look::Blocked => "off the CPU, blocked",
            Look::Descheduled => "off the CPU, though it could run",
            Look::Queued => "in a queue",
        }
    }
}
