//! The causes by name. Does not say how they are told (`diagnosis.rs`). Pure.

use serde::Serialize;

/// Why requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The service has more work than its CPUs, or its one thread, can do.
    Cpu,
    /// A CPU quota stops the service.
    Quota,
    /// Threads wait for a lock.
    Lock,
    /// Threads wait for a disk.
    Disk,
    /// Requests wait for another service.
    Downstream,
    /// Requests wait for a name server.
    Dns,
    /// The service pauses as a whole while its CPUs are busy, as for garbage collection.
    Pauses,
    /// The process is stopped, or one of several.
    Stopped,
    /// The service does not accept connections.
    Accept,
    /// Nothing waits.
    None,
    /// Something waits, and nothing shows why.
    Unknown,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 11] = [
        Cause::Cpu,
        Cause::Quota,
        Cause::Lock,
        Cause::Disk,
        Cause::Downstream,
        Cause::Dns,
        Cause::Pauses,
        Cause::Stopped,
        Cause::Accept,
        Cause::None,
        Cause::Unknown,
    ];

    /// Name in JSON and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Cpu => "cpu",
            Cause::Quota => "quota",
            Cause::Lock => "lock",
            Cause::Disk => "disk",
            Cause::Downstream => "downstream",
            Cause::Dns => "dns",
            Cause::Pauses => "pauses",
            Cause::Stopped => "stopped",
            Cause::Accept => "accept",
            Cause::None => "none",
            Cause::Unknown => "unknown",
        }
    }
}
