//! What the queue goes by and a reload changes: objective, mode, names. Does not contain requests.

use crate::settings::rules::Rule;
use crate::settings::{LimitChoice, Settings};
use leeward_concurrency::dispatch::{DispatchSettings, Dispatcher};
use leeward_core::units::Nanos;
use leeward_gate::Mode;
use leeward_observe::ROUTE_SLOTS;

/// Settings of the queue.
pub(super) struct Policy {
    pub(super) slo: Nanos,
    pub(super) mode: Mode,
    pub(super) limit: LimitChoice,
    /// Names of routes 1 and up. They never change their numbers, by which answers are counted.
    routes: Vec<String>,
}

impl Policy {
    pub(super) fn new(settings: &Settings) -> Self {
        let mut policy =
            Policy { slo: Nanos::ZERO, mode: settings.mode, limit: settings.limit.clone(), routes: Vec::new() };
        policy.update(settings);
        policy
    }

    /// Takes new settings, without their rules.
    pub(super) fn update(&mut self, settings: &Settings) {
        (self.slo, self.mode, self.limit) = (settings.slo.into(), settings.mode, settings.limit.clone());
    }

    /// Gives each rule the number of its name.
    pub(super) fn number(&mut self, rules: &mut [Rule]) {
        for (index, rule) in rules.iter_mut().enumerate() {
            let name = rule.name.clone().unwrap_or_else(|| format!("rule {}", index + 1));
            let known = self.routes.iter().position(|route| *route == name);
            let number = known.unwrap_or(self.routes.len()) + 1;
            if number >= ROUTE_SLOTS {
                rule.route = 0;
                continue;
            }
            if known.is_none() {
                self.routes.push(name);
            }
            rule.route = number as u8;
        }
    }

    /// Name of a route.
    pub(super) fn route(&self, number: usize) -> Option<&str> {
        self.routes.get(number.checked_sub(1)?).map(String::as_str)
    }
}

/// What the dispatcher must know of settings.
pub(super) fn dispatch_settings(settings: &Settings) -> DispatchSettings {
    DispatchSettings {
        objective: settings.slo.into(),
        capacity: settings.queue_requests,
        capacity_bytes: settings.queue_bytes,
    }
}

/// A dispatcher without requests, under settings.
pub(super) fn dispatcher<T>(settings: &Settings) -> Dispatcher<T> {
    let (of, count) = (dispatch_settings(settings), settings.backends.len());
    if settings.is_shared {
        return Dispatcher::shared(of, settings.limit.build(settings.slo, 0), count);
    }
    let limits = (0..count).map(|index| settings.limit.build(settings.slo, index as u64));
    Dispatcher::new(of, limits.collect())
}
