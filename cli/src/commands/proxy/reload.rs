//! New settings for the running proxy, and what became of them. Does not contain signals.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

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
        let mut text = String::from(
            "# HELP leeward_proxy_reloads_total Reloads of the settings (SIGHUP).\n\
             # TYPE leeward_proxy_reloads_total counter\n",
        );
        for (result, count) in [("applied", of(&self.applied)), ("rejected", of(&self.rejected))] {
            let _ = writeln!(text, "leeward_proxy_reloads_total{{result=\"{result}\"}} {count}");
        }
        let gauges = [
            ("successful", "1 if the last reload was applied, or there was none.", 1 - of(&self.is_last_rejected)),
            ("timestamp_seconds", "Time of the last reload that was applied; 0: none.", of(&self.last_applied)),
        ];
        for (name, help, value) in gauges {
            let name = format!("leeward_proxy_last_reload_{name}");
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
        }
        text
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
