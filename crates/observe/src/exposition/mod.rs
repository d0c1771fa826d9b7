//! Snapshots as text: Prometheus's format 0.0.4, or OpenMetrics 1.0 for whoever accepts that. Names and units are those of
//! docs/admin.md.
//!
//! - `accept`: which of them a request asks for. `families`: which metrics there are.
//! - `text`: lines and escapes.

mod accept;
mod families;
mod text;

use crate::snapshot::Snapshot;
pub use accept::Format;

/// The metrics of these servers.
pub fn render(snapshots: &[Snapshot], format: Format) -> String {
    let mut text = text::Text::new(format);
    families::all(snapshots, &mut text);
    text.finish()
}
