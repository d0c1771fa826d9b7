//! Lines of both text formats: headers, samples, histograms, escapes. Does not contain the list of
//! metrics.

use super::Format;
use super::sink::{Label, MetricKind, Sink};
use crate::exemplar::Exemplar;
use std::fmt::Write;

/// Text output.
pub(super) struct TextSink {
    format: Format,
    text: String,
}

impl TextSink {
    pub(super) fn new(format: Format) -> Self {
        TextSink { format, text: String::with_capacity(16 * 1024) }
    }

    fn sample(&mut self, name: &str, suffix: &str, labels: &[Label<'_>], bound: Option<f64>, value: f64) {
        self.sample_with(name, suffix, labels, bound, value, None);
    }

    fn sample_with(
        &mut self,
        name: &str,
        suffix: &str,
        labels: &[Label<'_>],
        bound: Option<f64>,
        value: f64,
        exemplar: Option<&Exemplar>,
    ) {
        let text = &mut self.text;
        let _ = write!(text, "{name}{suffix}");
        let mut before = '{';
        for (name, value) in labels {
            let _ = write!(text, "{before}{name}=\"");
            escape(value, text);
            text.push('"');
            before = ',';
        }
        if let Some(bound) = bound {
            let _ = write!(text, "{before}le=\"");
            number(bound, text);
            text.push('"');
            before = ',';
        }
        if before == ',' {
            text.push('}');
        }
        text.push(' ');
        number(value, text);
        // Only OpenMetrics has exemplars. Prometheus stores their times in milliseconds.
        if let Some(Exemplar { decision, unix_ns, wait_ns: waited_ns, .. }) =
            exemplar.filter(|_| self.format == Format::OpenMetrics)
        {
            let (seconds, ms) = (unix_ns / 1_000_000_000, unix_ns / 1_000_000 % 1_000);
            let _ = write!(text, " # {{decision=\"{decision}\"}} {} {seconds}.{ms:03}", *waited_ns as f64 / 1e9);
        }
        text.push('\n');
    }

    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

impl Sink for TextSink {
    fn begin_family(&mut self, name: &'static str, kind: MetricKind, help: &str) {
        // The Prometheus format names the samples, OpenMetrics the family.
        let suffix = if kind == MetricKind::Counter && self.format == Format::Prometheus { "_total" } else { "" };
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let _ = writeln!(self.text, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}");
        if self.format == Format::OpenMetrics && name.ends_with("_seconds") {
            let _ = writeln!(self.text, "# UNIT {name} seconds");
        }
    }

    fn counter_with_exemplar(
        &mut self,
        name: &'static str,
        labels: &[Label<'_>],
        value: f64,
        exemplar: Option<&Exemplar>,
    ) {
        self.sample_with(name, "_total", labels, None, value, exemplar);
    }

    fn gauge(&mut self, name: &'static str, labels: &[Label<'_>], value: f64) {
        self.sample(name, "", labels, None, value);
    }

    fn histogram_with_exemplars(
        &mut self,
        name: &'static str,
        labels: &[Label<'_>],
        buckets: &mut dyn Iterator<Item = (f64, u64)>,
        over: u64,
        sum: f64,
        exemplars: &[Option<&Exemplar>],
    ) {
        let mut count = 0_u64;
        let mut exemplars = exemplars.iter().copied().chain(std::iter::repeat(None));
        let mut next = || exemplars.next().flatten();
        for (bound, more) in buckets {
            count = count.wrapping_add(more);
            self.sample_with(name, "_bucket", labels, Some(bound), count as f64, next());
        }
        count = count.wrapping_add(over);
        self.sample_with(name, "_bucket", labels, Some(f64::INFINITY), count as f64, next());
        self.sample(name, "_sum", labels, None, sum);
        self.sample(name, "_count", labels, None, count as f64);
    }
}

/// Escapes a label's value.
fn escape(value: &str, text: &mut String) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

fn number(value: f64, text: &mut String) {
    let _ = match value {
        f64::INFINITY => write!(text, "+Inf"),
        f64::NEG_INFINITY => write!(text, "-Inf"),
        _ => write!(text, "{value}"),
    };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_format_has_its_own_metadata_and_terminator() {
        let render = |format| {
            let mut text = TextSink::new(format);
            text.begin_family("a_requests", MetricKind::Counter, "Requests.");
            text.counter("a_requests", &[("port", "x\"\n\\")], 3.0);
            text.begin_family("b_seconds", MetricKind::Histogram, "Waits.");
            text.histogram("b_seconds", &[], &mut [(0.00001, 2), (0.5, 1)].into_iter(), 4, 1.5);
            text.finish()
        };
        let older = render(Format::Prometheus);
        assert_eq!(
            older,
            "# HELP a_requests_total Requests.\n# TYPE a_requests_total counter\na_requests_total{port=\"x\\\"\\n\\\\\"} 3\n\
             # HELP b_seconds Waits.\n# TYPE b_seconds histogram\nb_seconds_bucket{le=\"0.00001\"} 2\n\
             b_seconds_bucket{le=\"0.5\"} 3\nb_seconds_bucket{le=\"+Inf\"} 7\nb_seconds_sum 1.5\nb_seconds_count 7\n"
        );
        let newer = render(Format::OpenMetrics);
        assert!(
            newer.starts_with("# HELP a_requests Requests.\n# TYPE a_requests counter\na_requests_total{"),
            "{newer}"
        );
        assert!(newer.contains("# UNIT b_seconds seconds\n") && newer.ends_with("# EOF\n"), "{newer}");
    }

    proptest! {
        #[test]
        fn label_values_never_break_a_line(value in any::<String>()) {
            let mut text = TextSink::new(Format::Prometheus);
            text.gauge("a", &[("l", &value)], 1.0);
            let text = text.finish();
            prop_assert_eq!(text.matches('\n').count(), 1);
            let is_whole = text.ends_with("\"} 1\n");
            prop_assert!(is_whole);
        }
    }
}
