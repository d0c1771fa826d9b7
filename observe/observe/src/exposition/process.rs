//! Metrics of the process besides those of its servers: OTLP exports, and the admin port's
//! handshakes.

use crate::snapshot::TlsCounts;

/// Counts of a process that belong to none of its servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessMetrics {
    /// OTLP exports, if the process exports.
    pub exports: Option<ExportCounts>,
    /// Handshakes of the admin port, if it uses TLS.
    pub admin_tls: Option<TlsCounts>,
}

/// OTLP exports so far, by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportCounts {
    /// Exports that the receiver accepted.
    pub accepted: u64,
    /// Exports that the receiver answered with an error, such as 503.
    pub refused: u64,
    /// Exports that were not sent: the connection failed or the host is unknown.
    pub unreachable: u64,
    /// Exports that were sent, but got no answer in time or one that is not HTTP.
    pub unanswered: u64,
    /// Points in accepted exports that the receiver rejected.
    pub rejected_points: u64,
}
