//! New settings for the queue while it is in use. Does not contain files.

use super::policy::{dispatch_settings, dispatcher};
use super::{Admission, BackendSlot, State};
use crate::backend::report::BackendReport;
use crate::settings::Settings;
use leeward_core::units::Time;
use leeward_gate::Mode;
use leeward_host::sync::lock;

impl Admission {
    /// Takes new settings, and numbers their rules. Requests that wait keep their deadlines; a
    /// backend that stays keeps its limit and its requests; one that goes gets no more.
    ///
    /// `replace` is called with the settings and the backends by their numbers before a request is
    /// sent to a new backend.
    pub(crate) fn reload(&self, settings: &mut Settings, replace: impl FnOnce(&Settings, &[BackendSlot])) {
        let now = self.now();
        let mut done = Vec::new();
        let mut guard = lock(&self.0.state);
        let state = &mut *guard;
        state.policy.number(&mut settings.rules);
        let has_new_limit = settings.limit != state.policy.limit || settings.is_shared != state.is_shared;
        state.replace_backends(now, settings);
        if has_new_limit {
            let build = |index: usize| settings.limit.build(settings.slo, index as u64);
            state.dispatcher.set_limits(now, settings.is_shared, build);
            state.is_shared = settings.is_shared;
        }
        let was_enforced = state.policy.mode == Mode::Enforce;
        let dispatch = dispatch_settings(settings);
        let has_other_queue = dispatch != *state.dispatcher.settings() || state.backends.iter().any(|slot| slot.is_new);
        state.policy.update(settings);
        if was_enforced != (settings.mode == Mode::Enforce) || has_new_limit || has_other_queue {
            state.shadow.restart(dispatcher(settings));
        }
        replace(settings, &state.backends);
        if was_enforced && settings.mode != Mode::Enforce {
            // Nothing is held back any more, and the places that these wait for may never be free.
            state.dispatcher.send_all(now, &mut done);
        }
        state.dispatcher.set_settings(now, dispatch, &mut done);
        drop(guard);
        self.deliver(now, done);
    }
}

impl State {
    fn replace_backends(&mut self, now: Time, settings: &Settings) {
        let build = |index: usize| settings.limit.build(settings.slo, index as u64);
        for (index, slot) in self.backends.iter_mut().enumerate() {
            let is_wanted = settings.backends.contains(&slot.address);
            slot.is_new = is_wanted == slot.is_removed;
            if is_wanted && slot.is_removed {
                self.dispatcher.restore_backend(now, index, build(index));
                slot.is_removed = false;
                slot.report = BackendReport::default();
            }
        }
        for address in &settings.backends {
            if self.backends.iter().any(|slot| slot.address == *address) {
                continue;
            }
            let index = self.dispatcher.add_backend(now, build(self.backends.len()));
            let slot = BackendSlot::new(address);
            match self.backends.get_mut(index) {
                Some(vacant) => *vacant = slot,
                None => self.backends.push(slot),
            }
        }
        // At last, so that there is a backend at any time.
        for (index, slot) in self.backends.iter_mut().enumerate() {
            if !slot.is_removed && !settings.backends.contains(&slot.address) {
                self.dispatcher.remove_backend(index);
                slot.is_removed = true;
            }
        }
    }
}
