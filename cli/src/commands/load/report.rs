//! Report of a load as text: first the reasons to doubt it, then the results, then their
//! reliability.

use leeward_core::units::Nanos;
use leeward_load::report::{LoadReport, Percentiles, RunEndReason};

use super::problems::MeasurementProblem;
use crate::demo::format::{format_us, rate};
use crate::table::{WIDTH, wrap};

/// Columns in front of a line's values.
pub(super) const INDENT: usize = 23;
/// Growth of the requests in flight that is worth a line, as a part of the requests due: rates of
/// answers are lower by this part than the rate of requests.
const GROWTH_MIN: f64 = 0.05;

/// Formats the report. `capacity` is the ratio and the capacity, where the demand was a multiple of
/// it.
pub(super) fn text(report: &LoadReport, capacity: Option<(f64, f64)>, doubts: &[MeasurementProblem]) -> String {
    let measured = &report.measured;
    let mut text: String = doubts.iter().map(|doubt| wrap(&format!("Not measured: {doubt}."), 0, WIDTH)).collect();
    if !text.is_empty() {
        text.push('\n');
    }
    let latency = |name: &str, spans: &Percentiles| {
        let [p50, p99, p999] = [spans.p50, spans.p99, spans.p999].map(|span| span.as_micros_f64()).map(format_us);
        format!("{name:<22} p50 {p50}, p99 {p99}, p99.9 {p999}\n")
    };
    let ended_at_client = measured.expired + measured.overflowed + measured.throttled;
    if let Some((ratio, capacity)) = capacity {
        text += &format!(
            "demand                 {}: {ratio} x {}, as a closed loop measured before\n",
            rate(ratio * capacity),
            rate(capacity),
        );
    }
    text += &format!(
        "goodput                {} in time of {} answered; objective {}\n",
        rate(report.goodput_per_s),
        rate(report.throughput_per_s),
        Nanos(report.slo_ns),
    );
    text += &latency("latency", &report.latency);
    text += &latency("  from sending", &report.latency_from_send);
    text += &format!(
        "other results          {} dropped, {ended_at_client} ended at the client, {} failed, {} lost\n",
        measured.dropped,
        measured.failed,
        measured.disconnected + measured.unsent,
    );
    if !report.failures.is_empty() {
        let codes = report.failures.iter().map(|(code, count)| format!("{code} {count}"));
        text += &format!("failures               {} in all\n", codes.collect::<Vec<_>>().join(", "));
    }
    // Without these lines a server that answers only cheap requests would look fast: what was not
    // sent has no latency, and what was not answered has its age at the end.
    let totals = &report.totals;
    if totals.too_long > 0 {
        text += &format!(
            "too long               {} not sent: longer than the server accepts, or than a datagram\n",
            totals.too_long
        );
    }
    if totals.timed_out > 0 {
        text += &format!("timed out              {} in all\n", totals.timed_out);
    }
    if totals.unfinished > 0 {
        text += &format!("unanswered             {} at the end of the wait for the last answers\n", totals.unfinished);
    }
    text += &growth(report);
    if report.retransmitted + report.duplicates > 0 {
        text += &format!(
            "datagrams              {} retransmitted, {} duplicates\n",
            report.retransmitted, report.duplicates
        );
    }
    let cut = match report.ending {
        RunEndReason::Stopped => Some("stopped"),
        RunEndReason::Disconnected => Some("all connections were lost"),
        _ => None,
    };
    if let Some(cut) = cut {
        text += &format!("cut short              {cut} after {}\n", Nanos(report.duration_ns));
    }
    text += &format!(
        "schedule               {:.2} % issued more than {} late; {} connections, {} lost",
        report.adherence.late_share * 100.0,
        Nanos(report.adherence.late_after_ns),
        report.connections.opened,
        report.connections.lost,
    );
    text
}

/// Says that more requests were in flight at the end of the measurement than at its start, if
/// goodput and throughput are much lower for that.
fn growth(report: &LoadReport) -> String {
    let measured = &report.measured;
    let grown = measured.offered.saturating_sub(measured.total());
    let is_much = grown as f64 > GROWTH_MIN * measured.offered as f64;
    // With a longer warm-up only an overload without control makes them grow; the latency shows it.
    if !is_much || report.latency.p50.0 <= report.warmup_ns {
        return String::new();
    }
    let text = format!(
        "{grown} more at the end of the measurement than at its start, of {} due: goodput and answers per second are \
         without these. The latency exceeds the warm-up of {}: set a longer --warmup, unless the server is overloaded",
        measured.offered,
        Nanos(report.warmup_ns),
    );
    format!("{:<INDENT$}{}\n", "in flight", wrap(&text, INDENT, WIDTH).trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_core::units::Time;
    use leeward_load::{Recorder, RecorderConfig, RunEnd};

    /// Report on 100 requests per second for two seconds, each answered after half a second.
    fn report(warmup: Nanos, timeout: Option<Nanos>) -> String {
        let config = RecorderConfig {
            slo: Nanos::from_secs(1),
            timeout,
            late_after: Nanos::from_millis(1),
            warmup,
            duration: Nanos::from_secs(2),
            window: None,
            fine_window: None,
        };
        let (mut recorder, latency) = (Recorder::new(&config), Nanos::from_millis(500));
        for number in 0..200 {
            let due = Time(number * 10_000_000);
            recorder.record_issue(due, due);
            recorder.record_completion(due + latency, due, latency, None);
        }
        let results = recorder.finish(&RunEnd { ending: RunEndReason::Finished, planned: 200 });
        text(&results.report, None, &[])
    }

    #[test]
    fn a_latency_beyond_the_warmup_is_reported() {
        let text = report(Nanos::from_millis(200), None).replace(['\n', ' '], "");
        assert!(text.contains("inflight30moreattheendofthemeasurementthanatitsstart,of180due"), "{text}");
        assert!(!report(Nanos::from_millis(600), None).contains("in flight"));
    }

    #[test]
    fn timed_out_requests_have_a_line() {
        let text = report(Nanos::from_millis(200), Some(Nanos::from_millis(100)));
        assert!(text.contains("timed out              200 in all\n"), "{text}");
        assert!(!report(Nanos::from_millis(200), None).contains("timed out"));
    }
}
