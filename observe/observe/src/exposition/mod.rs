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
use sink::{MetricKind, Sink as _};

/// Renders the metrics of these servers and their process as text.
pub fn render(snapshots: &[Snapshot], process: &ProcessMetrics, format: Format) -> String {
    let mut text = text::TextSink::new(format);
    families::write_all(snapshots, process, &mut text);
    text.finish()
}

/// Prometheus text of other metrics than those of [`render`].
///
/// ```
/// let mut text = leeward_observe::exposition::PrometheusText::new();
/// text.begin_counter("reloads", "Reloads.");
/// text.counter("reloads", &[("result", "applied")], 3);
/// assert!(text.finish().ends_with("\nreloads_total{result=\"applied\"} 3\n"));
/// ```
pub struct PrometheusText(text::TextSink);

impl PrometheusText {
    /// Creates an empty text.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        PrometheusText(text::TextSink::new(Format::Prometheus))
    }

    /// Starts a counter. `name` lacks `_total`.
    pub fn begin_counter(&mut self, name: &'static str, help: &str) {
        self.0.begin_family(name, MetricKind::Counter, help);
    }

    /// Writes a sample of the counter that was started last, with any label values.
    pub fn counter(&mut self, name: &'static str, labels: &[(&'static str, &str)], value: u64) {
        self.0.counter(name, labels, value as f64);
    }

    /// Writes a gauge without labels.
    pub fn gauge(&mut self, name: &'static str, help: &str, value: f64) {
        self.0.begin_family(name, MetricKind::Gauge, help);
        self.0.gauge(name, &[], value);
    }

    /// Returns the text.
    pub fn finish(self) -> String {
        self.0.finish()
    }
}

/// Renders the metrics of [`render`] as the body of OTLP/HTTP's `POST /v1/metrics`, in JSON.
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
