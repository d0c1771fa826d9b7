//! A configuration that is made of files and made anew when they change. Sessions that there are keep the one they began with.

use crate::files::{LoadError, WatchedFiles};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::thread;
use std::time::Duration;

/// Files are looked at so often.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// News that nobody asks for are kept up to so many.
const MESSAGES_MAX: usize = 16;

/// The newest configuration that could be made of some files.
pub(crate) struct ReloadableConfig<C> {
    current: RwLock<Arc<C>>,
    watched: Mutex<WatchedFiles>,
    load: Box<dyn Fn() -> Result<C, LoadError> + Send + Sync>,
    reloads: AtomicU64,
    /// Why the newest files are not used, if they are not.
    last_error: Mutex<Option<String>>,
    messages: Mutex<Vec<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<C: Send + Sync + 'static> ReloadableConfig<C> {
    /// Loads what `load` makes of `files`, and has a thread look after them for as long as there is an owner.
    pub(crate) fn open(
        files: Vec<PathBuf>,
        load: impl Fn() -> Result<C, LoadError> + Send + Sync + 'static,
    ) -> Result<Arc<Self>, LoadError> {
        let watched = Mutex::new(WatchedFiles::new(files));
        let current = RwLock::new(Arc::new(load()?));
        let (reloads, trouble, news) = (AtomicU64::new(0), Mutex::new(None), Mutex::new(Vec::new()));
        let live = Arc::new(ReloadableConfig {
            current,
            watched,
            load: Box::new(load),
            reloads,
            last_error: trouble,
            messages: news,
        });
        let weak = Arc::downgrade(&live);
        // Without a thread the files are read once.
        let _ = thread::Builder::new().name("leeward-tls".into()).spawn(move || watch_files(&weak));
        Ok(live)
    }

    /// The newest.
    pub(crate) fn current(&self) -> Arc<C> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at the files once; loads them if they have changed and settled.
    pub(crate) fn check_files(&self) {
        let mut watched = lock(&self.watched);
        if !watched.have_changed() {
            return;
        }
        match (self.load)() {
            Ok(new) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
                self.reloads.fetch_add(1, Ordering::Relaxed);
                *lock(&self.last_error) = None;
                self.push_message("new certificates are in use".into());
            }
            Err(error) => {
                *lock(&self.last_error) = Some(error.to_string());
                self.push_message(format!("the new files are not used, the old certificates stay: {error}"));
            }
        }
    }

    fn push_message(&self, words: String) {
        let mut news = lock(&self.messages);
        if news.len() < MESSAGES_MAX {
            news.push(words);
        }
    }

    /// How often new files were taken.
    pub(crate) fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }

    /// Why the newest files are not used, if they are not.
    pub(crate) fn last_error(&self) -> Option<String> {
        lock(&self.last_error).clone()
    }

    /// Words about files that have changed, since this was asked last.
    pub(crate) fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.messages))
    }
}

/// Looks at the files until nobody has them any more.
fn watch_files<C: Send + Sync + 'static>(live: &Weak<ReloadableConfig<C>>) {
    loop {
        thread::park_timeout(CHECK_INTERVAL);
        let Some(live) = live.upgrade() else { return };
        live.check_files();
    }
}
