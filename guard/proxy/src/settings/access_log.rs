//! Settings of the access log. Does not contain its lines.

use std::path::PathBuf;

/// Whether requests are logged, how, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// Format of a line; `None`: there is no log.
    pub format: Option<LogFormat>,
    /// Where lines go.
    pub target: LogTarget,
}

/// Format of a line of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFormat {
    /// A JSON object.
    Json,
    /// `CLIENT - - [TIME] "REQUEST" STATUS BYTES "REFERER" "USER-AGENT"`.
    Combined,
}

/// Where lines go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogTarget {
    /// The standard output.
    #[default]
    Stdout,
    /// A file, which is opened anew with each reload.
    File(PathBuf),
}
