//! Metrics pushed to a receiver of OpenTelemetry's: `--otlp`. Never here: an export (`leeward-admin`).

use std::time::Duration;

use anyhow::{Context, anyhow};
use leeward_admin::{Exporter, OtlpEndpoint, Sources};
use leeward_core::units::{Nanos, parse_duration};

use super::args::ServeArgs;
use crate::failure::Failure;
use crate::stdout;

/// Spans from one export to the next that may be asked for.
pub(super) const INTERVAL_RANGE: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(100)..=Nanos::from_secs(3_600);

/// A receiver's address as it is checked before anything starts.
pub(super) fn parse_endpoint(text: &str) -> Result<OtlpEndpoint, String> {
    text.parse().map_err(|problem: leeward_admin::ParseEndpointError| problem.to_string())
}

/// Where metrics go and how often, if anywhere.
pub(super) fn endpoint(args: &ServeArgs) -> Result<Option<(OtlpEndpoint, Nanos)>, Failure> {
    let wrong = |words: String| Failure::Input(anyhow!(words));
    let every = parse_duration(&args.otlp_every).ok().filter(|every| INTERVAL_RANGE.contains(every));
    let every = every.ok_or_else(|| {
        wrong(format!("--otlp-every `{}`; accepted: 100ms to 1h, such as 10s", stdout::sanitize(&args.otlp_every)))
    })?;
    let Some(text) = &args.otlp else { return Ok(None) };
    let receiver = parse_endpoint(text).map_err(|words| wrong(format!("--otlp {words}")))?;
    Ok(Some((receiver, every)))
}

/// Begins to export the metrics of `sources`, those of the service of this name at this address.
pub(super) fn start(
    (receiver, every): (OtlpEndpoint, Nanos),
    sources: Sources,
    service: &str,
    address: String,
) -> Result<Exporter, Failure> {
    stdout::print(&format!("metrics: to {receiver} every {every}"))?;
    let resource = vec![
        ("service.name", format!("leeward-{service}")),
        ("service.instance.id", address),
        ("telemetry.sdk.name", "leeward".into()),
        ("telemetry.sdk.language", "rust".into()),
        ("telemetry.sdk.version", env!("CARGO_PKG_VERSION").into()),
    ];
    let started = Exporter::start(receiver, Duration::from_nanos(every.0), sources, resource);
    started.context("--otlp").map_err(Failure::Runtime)
}
