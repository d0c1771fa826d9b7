//! Snapshots as text: Prometheus's format 0.0.4, or OpenMetrics 1.0 for whoever accepts that; and as a request of OTLP. Names and
//! units are those of docs/admin.md.
//!
//! - `accept`: which of the text formats a request asks for. `families`: which metrics there are. `process`: those of no server.
//! - `sink`: the seam between metrics and formats. `text`: lines and escapes. `otlp`, `names`: OTLP in JSON, and its names.

mod accept;
mod families;
mod names;
mod otlp;
mod process;
mod sink;
mod text;

use crate::snapshot::Snapshot;
pub use accept::Format;
pub use otlp::Beginnings;
pub use process::{Exports, Process};

/// The metrics of these servers and of their process.
pub fn render(snapshots: &[Snapshot], process: &Process, format: Format) -> String {
    let mut text = text::Text::new(format);
    families::all(snapshots, process, &mut text);
    text.finish()
}

/// The same as the body of `POST /v1/metrics` of OTLP over HTTP, in JSON. `resource` has the attributes of the whole, `unix_ns` is the
/// time of the points.
pub fn render_otlp(
    snapshots: &[Snapshot],
    process: &Process,
    resource: &[(&str, String)],
    unix_ns: u64,
    beginnings: &mut Beginnings,
) -> String {
    let mut otlp = otlp::Otlp::new(snapshots, unix_ns, beginnings);
    families::all(snapshots, process, &mut otlp);
    otlp.finish(resource)
}
