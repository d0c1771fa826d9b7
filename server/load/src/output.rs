//! Results as text: HdrHistogram's percentile distribution (`.hgrm`), which its plotters read, and
//! JSON.

use std::io::{self, Write};

use hdrhistogram::Histogram;

use crate::report::LoadReport;

/// Steps per halving of the distance to 100 %; HdrHistogram's own default.
const STEPS: u32 = 5;

/// Writes a histogram of nanoseconds as a percentile distribution in microseconds.
///
/// # Errors
/// The errors of `out`.
pub fn write_hgrm(histogram: &Histogram<u64>, out: &mut impl Write) -> io::Result<()> {
    let us = |ns: f64| ns / 1e3;
    writeln!(out, "{:>12} {:>14} {:>10} {:>14}\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)")?;
    let mut total = 0;
    for step in histogram.iter_quantiles(STEPS) {
        total += step.count_since_last_iteration();
        let (value, quantile) = (us(step.value_iterated_to() as f64), step.quantile_iterated_to());
        if quantile < 1.0 {
            writeln!(out, "{value:12.3} {quantile:.12} {total:10} {:14.2}", 1.0 / (1.0 - quantile))?;
        } else {
            // The last column is empty at 100 %, as HdrHistogram writes it.
            writeln!(out, "{value:12.3} {quantile:.12} {total:10}")?;
        }
    }
    let (mean, deviation) = (us(histogram.mean()), us(histogram.stdev()));
    writeln!(out, "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]")?;
    writeln!(out, "#[Max     = {:12.3}, Total count    = {:12}]", us(histogram.max() as f64), histogram.len())?;
    // Sub-buckets of a histogram: the power of two that keeps its digits apart.
    let sub_buckets = (2 * 10u64.pow(histogram.sigfig().into())).next_power_of_two();
    writeln!(out, "#[Buckets = {:12}, SubBuckets     = {sub_buckets:12}]", histogram.buckets())
}

/// Writes the report as indented JSON with a line end.
///
/// # Errors
/// The errors of `out`.
pub fn write_json(report: &LoadReport, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hgrm(histogram: &Histogram<u64>) -> String {
        let mut text = Vec::new();
        write_hgrm(histogram, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn the_histogram_has_the_hgrm_format() {
        let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
        for us in 1..=1_000 {
            histogram.record(us * 1_000).unwrap();
        }
        let text = hgrm(&histogram);
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("       Value     Percentile TotalCount 1/(1-Percentile)"));
        assert_eq!(lines.next(), Some(""));
        let rows: Vec<Vec<f64>> = lines
            .by_ref()
            .take_while(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().map(|field| field.parse().unwrap()).collect())
            .collect();
        assert!(rows.is_sorted_by(|a, b| a[0] <= b[0] && a[1] <= b[1] && a[2] <= b[2]));
        let last = rows.last().unwrap();
        assert_eq!((last.len(), last[1], last[2]), (3, 1.0, 1_000.0), "{last:?}");
        assert!((last[0] - 1_000.0).abs() < 1.0);
        let median = rows.iter().find(|row| row[1] >= 0.5).unwrap();
        assert!((median[0] - 500.0).abs() < 2.0 && median[3] == 2.0, "{median:?}");
        assert!(text.contains("Total count    =         1000]"), "{text}");
        assert!(text.trim_end().ends_with("SubBuckets     =         2048]"), "{text}");
    }

    #[test]
    fn an_empty_histogram_has_no_counts() {
        assert!(hgrm(&Histogram::new(3).unwrap()).contains("Total count    =            0]"));
    }
}
