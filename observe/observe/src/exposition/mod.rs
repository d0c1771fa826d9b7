//! Snapshots as text (Prometheus 0.0.4 or OpenMetrics 1.0) and as an OTLP request. Names and units
//! are those of docs/admin.md.
//!
//! - `accept`: text format that a request asks for.
//! - `families`: the list of metrics.
//! - `process`: metrics that belong to no server.
//! - `sink`: interface between metrics and formats.
//! - `text`: lines and escapes.
//! - `otlp`, `names`: OTLP in JSON, and its metric names.

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

/// Renders the metrics of these servers and their process as text.
pub fn render(snapshots: &[Snapshot], process: &ProcessMetrics, format: Format) -> String {
    let mut text = text::TextSink::new(format);
    families::write_all(snapshots, process, &mut text);
    text.finish()
}

/// Renders the same metrics as the body of OTLP/HTTP's `POST /v1/metrics`, in JSON.
///
/// `resource` has the resource attributes; `unix_ns` is the time of the points.
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
