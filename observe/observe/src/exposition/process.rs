//! Metrics of the process beside its servers' own: exports, and the admin port's handshakes.

use crate::snapshot::TlsCounts;

/// State of whatever stands beside the servers of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessMetrics {
    /// Exports, where somebody exports.
    pub exports: Option<ExportCounts>,
    /// Handshakes of the admin port, where it speaks TLS.
    pub admin_tls: Option<TlsCounts>,
}

/// Exports so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportCounts {
    /// Taken by the receiver.
    pub accepted: u64,
    /// Answered with an error, such as 503.
    pub refused: u64,
    /// Not sent: nobody listens there, or nobody knows the host.
    pub unreachable: u64,
    /// Sent, and not answered in time or not in HTTP.
    pub unanswered: u64,
    /// Points in accepted exports that the receiver did not take.
    pub rejected_points: u64,
}
