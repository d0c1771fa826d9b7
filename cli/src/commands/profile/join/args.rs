//! The command line of `leeward profile join`. Contains no checks of the recordings.

use std::path::PathBuf;

use super::super::args::{is_hex, parse_share};

/// Join recordings of several processes, and find the one that makes the slowest requests slow
///
/// Requests must carry a trace id, and report their calls to other processes: see
/// docs/profile-join.md. The process in which most traces begin is the front; from there the
/// comparison goes on to the process that has most of the difference. Clocks of different hosts
/// are aligned by the calls.
#[derive(Debug, clap::Args)]
#[command(after_help = JOIN)]
pub(crate) struct JoinArgs {
    /// Folders of traces, or folders that hold such folders
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// Folder with executables and debug files, besides the usual folders; may be repeated
    #[arg(long = "symbols", value_name = "DIR")]
    pub(crate) symbols: Vec<PathBuf>,
    /// Share of the front's requests that counts as the slowest, in percent
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = parse_share)]
    pub(crate) slowest: f64,
    /// Number of findings
    #[arg(long, short = 'n', value_name = "N", default_value_t = 3)]
    pub(crate) limit: usize,
    /// Show this trace instead of the slowest: 32 hexadecimal digits, or a `traceparent`
    #[arg(long, value_name = "ID", value_parser = parse_trace)]
    pub(crate) trace: Option<u128>,
    /// Folder for the shown trace as a page (trace.html) and for ui.perfetto.dev (trace.pftrace),
    /// on one line of time
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const JOIN: &str = "\
Examples:
  leeward profile join leeward-traces                   all recordings in this folder
  leeward profile join front/811 store/97 cache/4711    also of other hosts: copy their folders
  leeward profile join leeward-traces --out joined      then open joined/trace.html
  leeward profile join leeward-traces --trace 0af7651916cd43dd8448eb211c80319c";

fn parse_trace(text: &str) -> Result<u128, String> {
    let digits = if text.contains('-') { text.split('-').nth(1).unwrap_or_default() } else { text };
    match u128::from_str_radix(digits, 16) {
        Ok(number) if number != 0 && digits.len() == 32 && is_hex(digits) => Ok(number),
        _ => Err("accepted: 32 hexadecimal digits, not all 0".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_id_or_a_traceparent_is_accepted() {
        let id = "0af7651916cd43dd8448eb211c80319c";
        assert_eq!(parse_trace(id), parse_trace(&format!("00-{id}-b7ad6b7169203331-01")));
        assert!(parse_trace(id).is_ok());
        for wrong in ["", "7", "-", "+af7651916cd43dd8448eb211c80319c", "00000000000000000000000000000000", &id[1..]] {
            assert!(parse_trace(wrong).is_err(), "{wrong}");
        }
    }
}
