//! Seam between the metrics and the formats that they are told in. Never here: which metrics there are, and how a format looks.

use crate::exemplar::Exemplar;

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// A label's name and value.
pub(super) type Label<'a> = (&'static str, &'a str);

/// A format under construction. Names are Prometheus's, a counter's without `_total`.
pub(super) trait Sink {
    /// Begins a metric.
    fn begin_family(&mut self, name: &'static str, kind: MetricKind, help: &str);

    /// A counter's sample.
    fn counter(&mut self, name: &'static str, labels: &[Label<'_>], value: f64) {
        self.counter_with_exemplar(name, labels, value, None);
    }

    /// A counter's sample with an example of what it counts, for formats that tell such.
    fn counter_with_exemplar(
        &mut self,
        name: &'static str,
        labels: &[Label<'_>],
        value: f64,
        exemplar: Option<&Exemplar>,
    );

    /// A gauge's sample.
    fn gauge(&mut self, name: &'static str, labels: &[Label<'_>], value: f64);

    /// A histogram: upper bounds in seconds with the waits up to each, none counted twice; then those over all bounds.
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

    /// The same with an example for each bucket, the last one for those over all bounds, for formats that tell such.
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
