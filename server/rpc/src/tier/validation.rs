//! Whether a leaf is the one that a tier needs: each connection asks its leaf what it serves before any call goes over it, for a leaf with
//! other data would answer as well, and wrongly. Never here: what a service needs ([`Fit`]), sockets (`link`).

use crate::statistics::ServiceInfo;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Judgement of a service on its leaves.
pub trait LeafValidator: Send + Sync {
    /// Whether the leaf at this place may be asked, which tells this of itself. The text is a warning about a leaf that may.
    ///
    /// # Errors
    /// Why the leaf must not be asked, in one line.
    fn validate(&self, leaf: usize, about: &ServiceInfo) -> Result<Option<String>, String>;
}

/// Judgements on a tier's leaves, and what there is to tell of them.
#[derive(Clone, Default)]
pub(super) struct LeafValidation(Option<Arc<ValidationState>>);

struct ValidationState {
    validator: Arc<dyn LeafValidator>,
    reports: Mutex<LeafReports>,
}

#[derive(Default)]
struct LeafReports {
    /// Last words about each leaf: nothing is told twice.
    latest: Vec<Option<String>>,
    /// Words that nobody has taken yet.
    unread: Vec<String>,
}

/// Words that wait to be taken at most; later ones are lost.
const NEWS_MAX: usize = 256;

impl fmt::Debug for LeafValidation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fitting").field(&self.0.is_some()).finish()
    }
}

impl LeafValidation {
    pub(super) fn new(fit: Arc<dyn LeafValidator>) -> Self {
        LeafValidation(Some(Arc::new(ValidationState { validator: fit, reports: Mutex::default() })))
    }

    /// Whether leaves are asked what they serve at all.
    pub(super) fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    /// Judges a leaf by what it tells; `None`: nothing that could be read.
    ///
    /// # Errors
    /// Why it must not be asked.
    pub(super) fn validate(&self, leaf: usize, about: Option<&ServiceInfo>) -> Result<(), String> {
        let Some(judge) = &self.0 else { return Ok(()) };
        let verdict = match about {
            Some(about) => judge.validator.validate(leaf, about),
            None => Err(format!("leaf {} does not tell what it serves", leaf + 1)),
        };
        let (words, verdict) = match verdict {
            Ok(warning) => (warning, Ok(())),
            Err(words) => (Some(words.clone()), Err(words)),
        };
        judge.report(leaf, words);
        verdict
    }

    /// Words about leaves since this was asked last.
    pub(super) fn take_reports(&self) -> Vec<String> {
        let lock = |judge: &Arc<ValidationState>| std::mem::take(&mut judge.lock().unread);
        self.0.as_ref().map(lock).unwrap_or_default()
    }
}

impl ValidationState {
    fn lock(&self) -> std::sync::MutexGuard<'_, LeafReports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, leaf: usize, words: Option<String>) {
        let mut told = self.lock();
        if told.latest.len() <= leaf {
            told.latest.resize(leaf + 1, None);
        }
        if told.latest[leaf] == words {
            return;
        }
        if let Some(words) = &words
            && told.unread.len() < NEWS_MAX
        {
            told.unread.push(words.clone());
        }
        told.latest[leaf] = words;
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
    fn the_same_is_told_once() {
        let fitting = LeafValidation::new(Arc::new(EvenLeaves));
        let about = |part| ServiceInfo { part: Some((part, 9)), ..ServiceInfo::default() };
        assert_eq!(fitting.validate(1, Some(&about(2))), Ok(()));
        assert!(fitting.take_reports().is_empty());
        for _ in 0..3 {
            assert_eq!(fitting.validate(1, Some(&about(3))), Err("leaf 1 is odd".into()));
            assert_eq!(fitting.validate(0, Some(&about(4))), Ok(()));
        }
        assert_eq!(fitting.take_reports(), ["leaf 1 is odd", "leaf 0 is four"]);
        assert!(fitting.validate(1, None).is_err() && fitting.validate(1, Some(&about(2))).is_ok());
        assert!(fitting.validate(1, Some(&about(3))).is_err());
        assert_eq!(fitting.take_reports(), ["leaf 2 does not tell what it serves", "leaf 1 is odd"]);
        assert!(LeafValidation::default().validate(7, None).is_ok() && !LeafValidation::default().is_enabled());
    }
}
