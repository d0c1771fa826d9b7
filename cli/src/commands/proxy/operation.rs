//! The proxy while it runs: admin port, reloads, upgrades, the end. Does not contain the proxy.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use leeward_admin::{Admin, Sources};
use leeward_proxy::settings::file::FileSettings;
use leeward_proxy::{LocalAddress, Proxy};
use rustix::process::{Pid, Signal, kill_process};

use super::ProxyArgs;
use super::reload::{self, ReloadCounts};
use super::signals::Signals;
use super::sockets::Sockets;
use super::upgrade::Program;
use crate::failure::Failure;
use crate::{stdout, systemd};

/// Interval of looks at the signals; they also wake the thread.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running proxy, and what belongs to it.
pub(super) struct Operation<'a> {
    proxy: Proxy,
    args: &'a ProxyArgs,
    /// The settings that hold, as they were read.
    merged: FileSettings,
    /// Address of the admin port in the settings at the start.
    admin_setting: Option<String>,
    admin: Option<Admin>,
    sockets: Sockets,
    reloads: Arc<ReloadCounts>,
}

impl<'a> Operation<'a> {
    /// Starts the admin port, if there is one.
    pub(super) fn start(
        proxy: Proxy,
        args: &'a ProxyArgs,
        merged: FileSettings,
        sockets: Sockets,
        admin: Option<TcpListener>,
    ) -> Result<Self, Failure> {
        let reloads = Arc::new(ReloadCounts::default());
        let sources = Sources::default();
        let admission = proxy.admission().clone();
        sources.insert("proxy", Arc::new(admission.clone()));
        let (counts, log_metrics, transport) = (Arc::clone(&reloads), proxy.log_metrics(), proxy.transport().clone());
        sources.append_metrics(Box::new(move || {
            [admission.backend_metrics(), transport.metrics(), counts.metrics(), log_metrics()].concat()
        }));
        let config = config(&merged, &reloads);
        let admin = admin.map(|listener| Admin::start_on(listener, sources, config)).transpose();
        let admin = admin.context("the admin port").map_err(Failure::Runtime)?;
        Ok(Operation { proxy, args, admin_setting: merged.admin.clone(), merged, admin, sockets, reloads })
    }

    /// The address that the proxy listens on.
    pub(super) fn address(&self) -> &LocalAddress {
        self.proxy.address()
    }

    /// The address of the admin port.
    pub(super) fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Runs until a signal stops it, or another process has taken over.
    pub(super) fn run(mut self, signals: &Signals, program: &Program) -> Result<(), Failure> {
        while !signals.interrupt().is_requested() {
            if signals.take_reload() {
                self.reload();
            } else if signals.take_upgrade() {
                say("Starts the program anew.");
                match program.take_over(&self.sockets.descriptors(), signals.interrupt()) {
                    Ok(successor) => {
                        self.drain(successor, signals);
                        return Ok(());
                    }
                    Err(error) => {
                        let goes_on = if signals.interrupt().is_requested() { "" } else { ". This one goes on" };
                        say(&format!("The new process did not take over: {error:#}{goes_on}."));
                        // Signals that came meanwhile meant the same.
                        let _ = signals.take_upgrade();
                    }
                }
            } else {
                signals.wait(POLL_INTERVAL);
            }
        }
        say("Stops: waits for requests in progress. A second signal after half a second ends it at once.");
        systemd::notify_stopping();
        if let Some(admin) = &self.admin {
            admin.begin_stopping();
        }
        drop(self.sockets);
        self.proxy.stop();
        Ok(())
    }

    fn reload(&mut self) {
        match reload::reload(&self.proxy, self.args, self.admin_setting.as_deref()) {
            Ok(reloaded) => {
                self.reloads.record(true);
                let (kept, count) = (reloaded.kept.join("`, `"), reloaded.kept.len());
                say(&match count {
                    0 => "Settings reloaded.".into(),
                    _ => format!("Settings reloaded; not `{kept}`: SIGUSR2 or a restart applies that."),
                });
                systemd::notify_status("settings reloaded");
                self.merged = reloaded.merged;
            }
            Err(error) => {
                self.reloads.record(false);
                say(&format!("Settings unchanged: {error}"));
                systemd::notify_status("settings unchanged: the new ones have an error");
            }
        }
        if let Some(admin) = &self.admin {
            admin.set_config(config(&self.merged, &self.reloads));
        }
    }

    /// Leaves the sockets to the successor, and waits for the connections that there are.
    fn drain(self, successor: u32, signals: &Signals) {
        say(&format!("Process {successor} has taken over; this one waits for its connections."));
        systemd::notify_successor(successor, "another process has taken over");
        // It may have read the settings before the change that this asks for.
        let pid = i32::try_from(successor).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| signals.take_reload()) {
            let _ = kill_process(pid, Signal::HUP);
        }
        let Operation { proxy, admin, sockets, .. } = self;
        drop((admin, sockets));
        proxy.begin_draining();
        while !proxy.is_drained() && !signals.interrupt().is_requested() {
            // Requests to reload or upgrade are the successor's.
            let _ = (signals.take_reload(), signals.take_upgrade());
            signals.wait(POLL_INTERVAL);
        }
        proxy.stop();
    }
}

/// The text of `/debug/config`: a file for `--config`.
fn config(merged: &FileSettings, reloads: &ReloadCounts) -> String {
    let text = merged.to_text().unwrap_or_else(|error| format!("# {error}\n"));
    format!("# {}\n{text}", reloads.describe())
}

/// Says something on stderr, on one line.
fn say(text: &str) {
    let line: Vec<String> = stdout::sanitize(text).split_whitespace().map(String::from).collect();
    let _ = writeln!(std::io::stderr(), "leeward proxy: {}", line.join(" "));
}
