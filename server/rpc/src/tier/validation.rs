//! Checks that a leaf is the one that a tier needs, before any call goes to it.
//!
//! Each connection asks its leaf for a description first: a leaf with other data would return wrong
//! results. Does not contain the service's requirements ([`LeafValidator`]), or sockets (`link`).

use crate::statistics::ServiceInfo;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Accepts or rejects a service's leaves.
pub trait LeafValidator: Send + Sync {
    /// Checks the description of the leaf at this index. The returned text is a warning about an
    /// accepted leaf.
    ///
    /// # Errors
    /// The leaf is rejected: the reason, in one line.
    fn validate(&self, leaf: usize, about: &ServiceInfo) -> Result<Option<String>, String>;
}

/// Validator of a tier's leaves, with its reports.
#[derive(Clone, Default)]
pub(super) struct LeafValidation(Option<Arc<ValidationState>>);

struct ValidationState {
    validator: Arc<dyn LeafValidator>,
    reports: Mutex<LeafReports>,
}

#[derive(Default)]
struct LeafReports {
    /// Last message about each leaf; a repeated message is not reported again.
    latest: Vec<Option<String>>,
    /// Messages not yet taken.
    unread: Vec<String>,
}

/// Messages that wait to be taken at most; later ones are lost.
const NEWS_MAX: usize = 256;

impl fmt::Debug for LeafValidation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LeafValidation").field(&self.0.is_some()).finish()
    }
}

impl LeafValidation {
    pub(super) fn new(leaf_validator: Arc<dyn LeafValidator>) -> Self {
        LeafValidation(Some(Arc::new(ValidationState { validator: leaf_validator, reports: Mutex::default() })))
    }

    /// Whether leaves are validated at all.
    pub(super) fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    /// Validates a leaf by its description; `None`: the description was unreadable.
    ///
    /// # Errors
    /// The leaf is rejected: the reason.
    pub(super) fn validate(&self, leaf: usize, about: Option<&ServiceInfo>) -> Result<(), String> {
        let Some(state) = &self.0 else { return Ok(()) };
        let verdict = match about {
            Some(about) => state.validator.validate(leaf, about),
            None => Err(format!("leaf {} does not report its service", leaf + 1)),
        };
        let (message, verdict) = match verdict {
            Ok(warning) => (warning, Ok(())),
            Err(message) => (Some(message.clone()), Err(message)),
        };
        state.report(leaf, message);
        verdict
    }

    /// Takes the messages about leaves since the last call.
    pub(super) fn take_reports(&self) -> Vec<String> {
        let lock = |state: &Arc<ValidationState>| std::mem::take(&mut state.lock().unread);
        self.0.as_ref().map(lock).unwrap_or_default()
    }
}

impl ValidationState {
    fn lock(&self) -> std::sync::MutexGuard<'_, LeafReports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, leaf: usize, message: Option<String>) {
        let mut reports = self.lock();
        if reports.latest.len() <= leaf {
            reports.latest.resize(leaf + 1, None);
        }
        if reports.latest[leaf] == message {
            return;
        }
        if let Some(message) = &message
            && reports.unread.len() < NEWS_MAX
        {
            reports.unread.push(message.clone());
        }
        reports.latest[leaf] = message;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct EvenLeaves;

    impl LeafValidator for EvenLeaves {
        fn validate(&self, leaf: usize, about: &ServiceInfo) -> Result<Option<String>, String> {
            match about.part {
                Some((part, _)) if part % 2 == 0 => Ok((part == 4).then(|| format!("leaf {leaf} is four"))),
                _ => Err(format!("leaf {leaf} is odd")),
            }
        }
    }

    #[test]
    fn an_unchanged_validation_report_is_given_once() {
        let validation = LeafValidation::new(Arc::new(EvenLeaves));
        let about = |part| ServiceInfo { part: Some((part, 9)), ..ServiceInfo::default() };
        assert_eq!(validation.validate(1, Some(&about(2))), Ok(()));
        assert!(validation.take_reports().is_empty());
        for _ in 0..3 {
            assert_eq!(validation.validate(1, Some(&about(3))), Err("leaf 1 is odd".into()));
            assert_eq!(validation.validate(0, Some(&about(4))), Ok(()));
        }
        assert_eq!(validation.take_reports(), ["leaf 1 is odd", "leaf 0 is four"]);
        assert!(validation.validate(1, None).is_err() && validation.validate(1, Some(&about(2))).is_ok());
        assert!(validation.validate(1, Some(&about(3))).is_err());
        assert_eq!(validation.take_reports(), ["leaf 2 does not report its service", "leaf 1 is odd"]);
        assert!(LeafValidation::default().validate(7, None).is_ok() && !LeafValidation::default().is_enabled());
    }
}
