//! A configuration from files, rebuilt when they change. Existing sessions keep their
//! configuration.

use crate::files::{LoadError, WatchedFiles};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::thread;
use std::time::{Duration, SystemTime};

/// Interval of the file check.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Limit of messages that wait for [`ReloadableConfig::take_messages`]; further ones are lost.
const MESSAGES_MAX: usize = 16;

/// The newest usable configuration of some files.
pub(crate) struct ReloadableConfig<C> {
    current: RwLock<Arc<C>>,
    watched: Mutex<WatchedFiles>,
    /// Loads the files. Given a time, it refuses certificates that are not valid then.
    load: Box<dyn Fn(Option<SystemTime>) -> Result<C, LoadError> + Send + Sync>,
    reloads: AtomicU64,
    /// Error of the newest files, if they are unusable.
    last_error: Mutex<Option<String>>,
    messages: Mutex<Vec<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<C: Send + Sync + 'static> ReloadableConfig<C> {
    /// Loads the configuration by `load`. A thread checks `files` as long as the configuration has
    /// an owner.
    pub(crate) fn open(
        files: Vec<PathBuf>,
        load: impl Fn(Option<SystemTime>) -> Result<C, LoadError> + Send + Sync + 'static,
    ) -> Result<Arc<Self>, LoadError> {
        let watched = Mutex::new(WatchedFiles::new(files));
        // At the start there is no better certificate than an expired one.
        let current = RwLock::new(Arc::new(load(None)?));
        let (reloads, last_failure, queue) = (AtomicU64::new(0), Mutex::new(None), Mutex::new(Vec::new()));
        let config = Arc::new(ReloadableConfig {
            current,
            watched,
            load: Box::new(load),
            reloads,
            last_error: last_failure,
            messages: queue,
        });
        let weak = Arc::downgrade(&config);
        // Without the thread, the files are only read once.
        let _ = thread::Builder::new().name("leeward-tls".into()).spawn(move || watch_files(&weak));
        Ok(config)
    }

    /// The newest configuration.
    pub(crate) fn current(&self) -> Arc<C> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Checks the files once; loads them if they have changed and settled.
    pub(crate) fn check_files(&self) {
        let mut watched = lock(&self.watched);
        if !watched.have_changed() {
            return;
        }
        // The error stays for [`ReloadableConfig::last_error`].
        let _ = self.load_files();
    }

    /// Loads the files, changed or not.
    pub(crate) fn reload(&self) -> Result<(), LoadError> {
        let mut watched = lock(&self.watched);
        watched.mark_loaded();
        self.load_files()
    }

    fn load_files(&self) -> Result<(), LoadError> {
        match (self.load)(Some(SystemTime::now())) {
            Ok(new) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
                self.reloads.fetch_add(1, Ordering::Relaxed);
                *lock(&self.last_error) = None;
                self.push_message("new certificates are in use".into());
                Ok(())
            }
            Err(error) => {
                *lock(&self.last_error) = Some(error.to_string());
                self.push_message(format!("the new files are not used, the old certificates stay: {error}"));
                Err(error)
            }
        }
    }

    fn push_message(&self, message: String) {
        let mut messages = lock(&self.messages);
        if messages.len() < MESSAGES_MAX {
            messages.push(message);
        }
    }

    /// Number of reloads.
    pub(crate) fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }

    /// Error of the newest files, if they are unusable.
    pub(crate) fn last_error(&self) -> Option<String> {
        lock(&self.last_error).clone()
    }

    /// Takes the messages about changed files since the last call.
    pub(crate) fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.messages))
    }
}

/// Checks the files until the configuration has no owner.
fn watch_files<C: Send + Sync + 'static>(config: &Weak<ReloadableConfig<C>>) {
    loop {
        thread::park_timeout(CHECK_INTERVAL);
        let Some(config) = config.upgrade() else { return };
        config.check_files();
    }
}
