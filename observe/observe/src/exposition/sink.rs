//! Interface between the metrics and their formats. Does not contain the list of metrics, nor a
//! format.

use crate::exemplar::Exemplar;

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// Name and value of a label.
pub(super) type Label<'a> = (&'static str, &'a str);

/// Output in one format. Metrics have their Prometheus names; a counter's lacks `_total`.
pub(super) trait Sink {
    /// Starts a metric family.
    fn begin_family(&mut self, name: &'static str, kind: MetricKind, help: &str);

    /// Writes a counter's sample.
    fn counter(&mut self, name: &'static str, labels: &[Label<'_>], value: f64) {
        self.counter_with_exemplar(name, labels, value, None);
    }

    /// Writes a counter's sample with an exemplar, in formats that have exemplars.
    fn counter_with_exemplar(
        &mut self,
        name: &'static str,
        labels: &[Label<'_>],
        value: f64,
        exemplar: Option<&Exemplar>,
    );

    /// Writes a gauge's sample.
    fn gauge(&mut self, name: &'static str, labels: &[Label<'_>], value: f64);

    /// Writes a histogram: `buckets` are upper bounds in seconds with their own counts, not
    /// cumulative; `over` is the count above all bounds.
    fn histogram(
        &mut self,
        name: &'static str,
        labels: &[Label<'_>],
        buckets: &mut dyn Iterator<Item = (f64, u64)>,
        over: u64,
        sum: f64,
    ) {
        self.histogram_with_exemplars(name, labels, buckets, over, sum, &[]);
    }

    /// Writes a histogram with an exemplar per bucket, in formats that have exemplars. The last
    /// exemplar is for waits above all bounds.
    fn histogram_with_exemplars(
        &mut self,
        name: &'static str,
        labels: &[Label<'_>],
        buckets: &mut dyn Iterator<Item = (f64, u64)>,
        over: u64,
        sum: f64,
        exemplars: &[Option<&Exemplar>],
    );
}
