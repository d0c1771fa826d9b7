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
pub use otlp::StartTimes;
pub use process::{ExportCounts, ProcessMetrics};

/// The metrics of these servers and of their process.
pub fn render(snapshots: &[Snapshot], process: &ProcessMetrics, format: Format) -> String {
    let mut text = text::TextSink::new(format);
    families::write_all(snapshots, process, &mut text);
    text.finish()
}

/// The same as the body of `POST /v1/metrics` of OTLP over HTTP, in JSON. `resource` has the attributes of the whole, `unix_ns` is the
/// time of the points.
pub fn render_otlp(
    snapshots: &[Snapshot],
    process: &ProcessMetrics,
    resource: &[(&str, String)],
    unix_ns: u64,
    beginnings: &mut StartTimes,
) -> String {
    let mut otlp = otlp::OtlpSink::new(snapshots, unix_ns, beginnings);
    families::write_all(snapshots, process, &mut otlp);
    otlp.finish(resource)
}
