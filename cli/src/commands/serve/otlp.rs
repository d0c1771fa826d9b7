//! Metrics export by OTLP: `--otlp`. Does not contain the export itself (`leeward-admin`).

use std::time::Duration;

use anyhow::{Context, anyhow};
use leeward_admin::{Exporter, OtlpEndpoint, Sources};
use leeward_core::units::{Nanos, parse_duration};

use super::args::ServeArgs;
use crate::failure::Failure;
use crate::stdout;

/// Accepted intervals between exports.
pub(super) const INTERVAL_RANGE: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(100)..=Nanos::from_secs(3_600);

/// Parses a receiver's address, to check it before the server starts.
pub(super) fn parse_endpoint(text: &str) -> Result<OtlpEndpoint, String> {
    text.parse().map_err(|problem: leeward_admin::ParseEndpointError| problem.to_string())
}

/// Receiver and interval of the export, if requested.
pub(super) fn endpoint(args: &ServeArgs) -> Result<Option<(OtlpEndpoint, Nanos)>, Failure> {
    let wrong = |message: String| Failure::Input(anyhow!(message));
    let every = parse_duration(&args.otlp_every).ok().filter(|every| INTERVAL_RANGE.contains(every));
    let every = every.ok_or_else(|| {
        wrong(format!("--otlp-every `{}`; accepted: 100ms to 3600s, such as 10s", stdout::sanitize(&args.otlp_every)))
    })?;
    let Some(text) = &args.otlp else { return Ok(None) };
    let receiver = parse_endpoint(text).map_err(|message| wrong(format!("--otlp {message}")))?;
    Ok(Some((receiver, every)))
}

/// Starts exporting the metrics of `sources`, under the service's name and address.
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
