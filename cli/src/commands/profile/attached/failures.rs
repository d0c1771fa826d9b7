//! Failures of recordings from outside, and options that do not apply to them.
//!
//! Does not contain the recording.

use anyhow::anyhow;
use leeward_sampler::convert::recorder::RecorderError;
use leeward_sampler::convert::{KeepSlow, SlowRequests};
use leeward_sampler::record::SourceError;
use leeward_sampler::windows::CostLimit;

use super::super::args::Recording;
use super::super::control;
use crate::admission::parse_span;
use crate::failure::{Failure, file_failure};
use crate::stdout::sanitize;

/// Converts the failure of a source: what the user can change is wrong input.
pub(super) fn source_failure(error: SourceError) -> Failure {
    match error {
        SourceError::Io { .. } => Failure::Runtime(error.into()),
        _ => Failure::Input(error.into()),
    }
}

/// Converts the failure of a recording.
pub(super) fn recorder_failure(error: RecorderError) -> Failure {
    match error {
        RecorderError::Source(error) => source_failure(error),
        RecorderError::Write { folder, source } => {
            file_failure(anyhow::Error::new(source).context(folder.display().to_string()))
        }
        other => Failure::Runtime(other.into()),
    }
}

/// The failure of a recording without a call of the function that `--request-fn` names. `was_seen`:
/// samples fell into it. `in_windows`: nothing was recorded for a part of the time.
pub(super) fn no_call(name: &str, was_seen: bool, in_windows: bool) -> Failure {
    let why = match (was_seen, in_windows) {
        (false, _) => {
            "it was not called meanwhile: record while requests come, or name another function with --request-fn"
        }
        (true, true) => {
            "it ran, but no call of it began and ended within a window of the recording: record with `--overhead off`, or name a function that it calls for each request"
        }
        (true, false) => {
            "it ran, but no call of it began and ended meanwhile: record longer, or name a function that it calls for each request"
        }
    };
    Failure::Runtime(anyhow!("no call of `{name}` was recorded: {why}"))
}

/// Reads a size such as `1G`.
pub(super) fn parse_size(flag: &str, text: &str) -> Result<u64, Failure> {
    let refused = || Failure::Input(anyhow!("{flag} {}: a number with K, M or G, such as 1G", sanitize(text)));
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text[digits.len()..].trim_end_matches(['b', 'B', 'i']) {
        "" => 1.0,
        "k" | "K" => 1024.0,
        "m" | "M" => 1024.0 * 1024.0,
        "g" | "G" => 1024.0 * 1024.0 * 1024.0,
        "t" | "T" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return Err(refused()),
    };
    let bytes = digits.parse::<f64>().map_err(|_| refused())? * unit;
    // A trace needs a few segments.
    const LEAST: f64 = (1 << 20) as f64;
    if bytes.is_finite() && (LEAST..1e18).contains(&bytes) {
        Ok(bytes as u64)
    } else {
        Err(Failure::Input(anyhow!("{flag} {}: at least 1M", sanitize(text))))
    }
}

/// Reads the share of CPU time that recording may take, such as `5%`; `None` for `off`.
pub(super) fn parse_overhead(text: Option<&str>) -> Result<Option<CostLimit>, Failure> {
    let Some(text) = text else { return Ok(Some(CostLimit::DEFAULT)) };
    Ok(control::parse_overhead(text)?.map(|percent| CostLimit::share(percent / 100.0)))
}

/// Reads which requests are kept: `slow`, `slow=0.1%`, `slow=50ms`.
pub(super) fn parse_keep(text: Option<&str>, memory: &str) -> Result<Option<KeepSlow>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let memory = usize::try_from(parse_size("--keep-memory", memory)?).unwrap_or(usize::MAX);
    let refused =
        || Failure::Input(anyhow!("--keep {}: accepted: slow, slow=0.1% (up to 100%), slow=50ms", sanitize(text)));
    let slow = match text.strip_prefix("slow").ok_or_else(refused)? {
        "" => SlowRequests::Percent(1.0),
        what => {
            let what = what.strip_prefix('=').ok_or_else(refused)?;
            match what.strip_suffix('%') {
                Some(percent) => {
                    let percent = percent.parse::<f64>().ok().filter(|percent| *percent > 0.0 && *percent <= 100.0);
                    SlowRequests::Percent(percent.ok_or_else(refused)?)
                }
                None => SlowRequests::Longer(parse_span("--keep slow", what)?.0),
            }
        }
    };
    Ok(Some(KeepSlow { slow, memory }))
}

/// Names the options that were given and are for programs with the run-time only.
pub(super) fn run_time_options(recording: &Recording) -> Vec<&'static str> {
    let Recording { engine, tick, threshold, lock_threshold, ring, no_locks, no_sched, cpu, .. } = recording;
    [
        ("--engine", engine != "auto"),
        ("--tick", tick.is_some()),
        ("--threshold", threshold != "1us"),
        ("--lock-threshold", lock_threshold != "1us"),
        ("--ring", ring != "16M"),
        ("--no-locks", *no_locks),
        ("--no-sched", *no_sched),
        ("--cpu", cpu.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, is_given)| is_given.then_some(name))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_requests_are_a_share_or_a_span() {
        let slow = |text| parse_keep(Some(text), "64M").ok().flatten().map(|keep| keep.slow);
        assert_eq!(slow("slow"), Some(SlowRequests::Percent(1.0)));
        assert_eq!(slow("slow=0.1%"), Some(SlowRequests::Percent(0.1)));
        assert_eq!(slow("slow=50ms"), Some(SlowRequests::Longer(50_000_000)));
        for text in ["", "fast", "slow=", "slow=0%", "slow=5", "slow=nan%", "slower"] {
            assert_eq!(slow(text), None, "{text}");
        }
        assert_eq!(parse_keep(None, "64M").ok(), Some(None));
    }

    #[test]
    fn without_a_call_the_failure_says_what_to_do() {
        for (was_seen, in_windows, next) in [
            (false, false, "record while requests come"),
            (true, false, "record longer"),
            (true, true, "--overhead off"),
        ] {
            let failure = no_call("serve", was_seen, in_windows);
            assert!(matches!(failure, Failure::Runtime(_)));
            let text = failure.to_string();
            assert!(text.starts_with("no call of `serve` was recorded") && text.contains(next), "{text}");
        }
    }

    #[test]
    fn overheads_are_shares_or_off() {
        let limit = |text| parse_overhead(text).ok();
        assert_eq!(limit(Some("5%")), Some(Some(CostLimit::share(0.05))));
        assert_eq!(limit(Some("0.5")), Some(Some(CostLimit::share(0.005))));
        assert_eq!(limit(Some("off")), Some(None));
        assert_eq!(limit(None), Some(Some(CostLimit::DEFAULT)));
        for text in ["", "0%", "101%", "nan", "-1%", "some"] {
            assert_eq!(limit(Some(text)), None, "{text}");
        }
    }

    #[test]
    fn sizes_have_units() {
        let size = |text| parse_size("--disk", text).ok();
        assert_eq!(size("1G"), Some(1 << 30));
        assert_eq!(size("1.5MiB"), Some(3 << 19));
        assert_eq!(size("2097152"), Some(2 << 20));
        for text in ["", "G", "1X", "-1G", "1k", "nan", "inf", "1e300G", "1Gä"] {
            assert_eq!(size(text), None, "{text}");
        }
    }
}
