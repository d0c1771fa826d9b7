//! Whether a leaf is the one that a tier needs: each connection asks its leaf what it serves before any call goes over it, for a leaf with
//! other data would answer as well, and wrongly. Never here: what a service needs ([`Fit`]), sockets (`link`).

use crate::statistics::About;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Judgement of a service on its leaves.
pub trait Fit: Send + Sync {
    /// Whether the leaf at this place may be asked, which tells this of itself. The text is a warning about a leaf that may.
    ///
    /// # Errors
    /// Why the leaf must not be asked, in one line.
    fn judge(&self, leaf: usize, about: &About) -> Result<Option<String>, String>;
}

/// Judgements on a tier's leaves, and what there is to tell of them.
#[derive(Clone, Default)]
pub(super) struct Fitting(Option<Arc<Judge>>);

struct Judge {
    fit: Arc<dyn Fit>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    /// Last words about each leaf: nothing is told twice.
    last: Vec<Option<String>>,
    /// Words that nobody has taken yet.
    news: Vec<String>,
}

/// Words that wait to be taken at most; later ones are lost.
const NEWS_MAX: usize = 256;

impl fmt::Debug for Fitting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fitting").field(&self.0.is_some()).finish()
    }
}

impl Fitting {
    pub(super) fn by(fit: Arc<dyn Fit>) -> Self {
        Fitting(Some(Arc::new(Judge { fit, told: Mutex::default() })))
    }

    /// Whether leaves are asked what they serve at all.
    pub(super) fn asks(&self) -> bool {
        self.0.is_some()
    }

    /// Judges a leaf by what it tells; `None`: nothing that could be read.
    ///
    /// # Errors
    /// Why it must not be asked.
    pub(super) fn judge(&self, leaf: usize, about: Option<&About>) -> Result<(), String> {
        let Some(judge) = &self.0 else { return Ok(()) };
        let verdict = match about {
            Some(about) => judge.fit.judge(leaf, about),
            None => Err(format!("leaf {} does not tell what it serves", leaf + 1)),
        };
        let (words, verdict) = match verdict {
            Ok(warning) => (warning, Ok(())),
            Err(words) => (Some(words.clone()), Err(words)),
        };
        judge.tell(leaf, words);
        verdict
    }

    /// Words about leaves since this was asked last.
    pub(super) fn news(&self) -> Vec<String> {
        let lock = |judge: &Arc<Judge>| std::mem::take(&mut judge.lock().news);
        self.0.as_ref().map(lock).unwrap_or_default()
    }
}

impl Judge {
    fn lock(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, leaf: usize, words: Option<String>) {
        let mut told = self.lock();
        if told.last.len() <= leaf {
            told.last.resize(leaf + 1, None);
        }
        if told.last[leaf] == words {
            return;
        }
        if let Some(words) = &words
            && told.news.len() < NEWS_MAX
        {
            told.news.push(words.clone());
        }
        told.last[leaf] = words;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Even;

    impl Fit for Even {
        fn judge(&self, leaf: usize, about: &About) -> Result<Option<String>, String> {
            match about.part {
                Some((part, _)) if part % 2 == 0 => Ok((part == 4).then(|| format!("leaf {leaf} is four"))),
                _ => Err(format!("leaf {leaf} is odd")),
            }
        }
    }

    #[test]
    fn the_same_is_told_once() {
        let fitting = Fitting::by(Arc::new(Even));
        let about = |part| About { part: Some((part, 9)), ..About::default() };
        assert_eq!(fitting.judge(1, Some(&about(2))), Ok(()));
        assert!(fitting.news().is_empty());
        for _ in 0..3 {
            assert_eq!(fitting.judge(1, Some(&about(3))), Err("leaf 1 is odd".into()));
            assert_eq!(fitting.judge(0, Some(&about(4))), Ok(()));
        }
        assert_eq!(fitting.news(), ["leaf 1 is odd", "leaf 0 is four"]);
        assert!(fitting.judge(1, None).is_err() && fitting.judge(1, Some(&about(2))).is_ok());
        assert!(fitting.judge(1, Some(&about(3))).is_err());
        assert_eq!(fitting.news(), ["leaf 2 does not tell what it serves", "leaf 1 is odd"]);
        assert!(Fitting::default().judge(7, None).is_ok() && !Fitting::default().asks());
    }
}
