//! New settings for the running proxy, and what became of them. Does not contain signals.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use leeward_observe::exposition::PrometheusText;
use leeward_proxy::Proxy;
use leeward_proxy::settings::file::FileSettings;

use super::files::{self, Loaded};
use super::{ProxyArgs, failure};
use crate::failure::Failure;

/// Reloads so far.
#[derive(Debug, Default)]
pub(super) struct ReloadCounts {
    applied: AtomicU64,
    rejected: AtomicU64,
    /// Time of the last one that was applied, in seconds since 1970; 0: there was none.
    last_applied: AtomicU64,
    /// 1 if the last one was rejected.
    is_last_rejected: AtomicU64,
}

impl ReloadCounts {
    /// Counts a reload.
    pub(super) fn record(&self, is_applied: bool) {
        self.is_last_rejected.store(u64::from(!is_applied), Ordering::Relaxed);
        if is_applied {
            self.applied.fetch_add(1, Ordering::Relaxed);
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            self.last_applied.store(now, Ordering::Relaxed);
        } else {
            self.rejected.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counts as Prometheus text.
    pub(super) fn metrics(&self) -> String {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut text = PrometheusText::new();
        let name = "leeward_proxy_reloads";
        text.begin_counter(name, "Reloads of the settings (SIGHUP).");
        text.counter(name, &[("result", "applied")], of(&self.applied));
        text.counter(name, &[("result", "rejected")], of(&self.rejected));
        text.gauge(
            "leeward_proxy_last_reload_successful",
            "1 if the last reload was applied, or there was none.",
            1.0 - of(&self.is_last_rejected) as f64,
        );
        text.gauge(
            "leeward_proxy_last_reload_timestamp_seconds",
            "Time of the last reload that was applied; 0: none.",
            of(&self.last_applied) as f64,
        );
        text.finish()
    }

    /// What `/debug/config` says of them.
    pub(super) fn describe(&self) -> String {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        format!(
            "reloads: {} applied (the last one at {} s since 1970), {} rejected",
            of(&self.applied),
            of(&self.last_applied),
            of(&self.rejected)
        )
    }
}

/// Result of a reload.
pub(super) struct Reloaded {
    pub(super) merged: FileSettings,
    /// Keys that keep their old values.
    pub(super) kept: Vec<&'static str>,
}

/// Reads the settings anew and gives them to the proxy; `admin`: the admin port as it is. If they
/// have an error, nothing changes.
pub(super) fn reload(proxy: &Proxy, args: &ProxyArgs, admin: Option<&str>) -> Result<Reloaded, Failure> {
    let Loaded { merged, settings } = files::load(args)?;
    let mut kept = proxy.reload(settings).map_err(failure)?;
    if merged.admin.as_deref() != admin {
        kept.push("admin");
    }
    Ok(Reloaded { merged, kept })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reloads_are_counted_by_result() {
        let counts = ReloadCounts::default();
        counts.record(true);
        counts.record(false);
        let text = counts.metrics();
        for line in [
            "# TYPE leeward_proxy_reloads_total counter",
            "leeward_proxy_reloads_total{result=\"applied\"} 1",
            "leeward_proxy_reloads_total{result=\"rejected\"} 1",
            "# TYPE leeward_proxy_last_reload_successful gauge",
            "leeward_proxy_last_reload_successful 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        let time = text.lines().find_map(|line| line.strip_prefix("leeward_proxy_last_reload_timestamp_seconds "));
        assert_eq!(time, Some(&*counts.last_applied.load(Ordering::Relaxed).to_string()), "a whole number");
    }
}
