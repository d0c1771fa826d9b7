//! Reasons for which a report on an HTTP service does not measure the service.

use leeward_core::units::Nanos;
use leeward_http_load::HttpVersion;
use leeward_load::LoadReport;
use leeward_load::report::RunEndReason;

use super::super::problems::{MeasurementProblem, find_lateness};
use crate::demo::format::format_us;

/// Reasons to doubt `report`, the most serious first. `with_protocol` adds the server's protocol
/// if it is another one than expected.
///
/// Lost connections alone are no reason: they are opened again, and their requests are failures.
pub(super) fn find(
    report: &LoadReport,
    version: HttpVersion,
    with_protocol: &impl Fn(String) -> String,
) -> Vec<MeasurementProblem> {
    let (connections, totals) = (&report.connections, &report.totals);
    let reasons = connections.reasons.keys().filter(|reason| !reason.is_empty());
    let reasons = reasons.map(|reason| format!(": {reason}")).next().unwrap_or_default();
    let mut doubts = Vec::new();
    let has_result = totals.completed + totals.timed_out + totals.dropped > 0;
    if report.ending == RunEndReason::Disconnected {
        let after = format_us(Nanos(report.duration_ns).as_micros_f64());
        doubts
            .push(format!("the server closed all connections and accepted no others, noticed after {after}{reasons}"));
    } else if !has_result && totals.failed > 0 {
        let codes: Vec<String> = report.failures.iter().map(|(code, count)| format!("{code} {count}")).collect();
        let is_http = version == HttpVersion::Http1 && report.failures.contains_key("protocol");
        let hint = if is_http { "; if it speaks HTTP/2, add --http2" } else { "" };
        let is_other = ["protocol", "closed", "reset"].iter().any(|code| report.failures.contains_key(*code));
        let problem = format!("every answer was a failure ({}){hint}", codes.join(", "));
        doubts.push(if is_other { with_protocol(problem) } else { problem });
    } else if totals.completed + totals.dropped == 0 && totals.offered > 0 {
        doubts.push(with_protocol(format!("the server answered nothing{reasons}")));
    }
    doubts.into_iter().map(MeasurementProblem::Failed).chain(find_lateness(report)).collect()
}
