//! Looking at an item, touching it, deleting it.

use super::item::{Header, Item, mark};
use super::memory::Chunk;
use super::stats::Counter;
use super::table::Stripe;
use super::{AllocationError, Congested, RequestContext, Store, expires};
use std::cell::Cell;

/// An item that is there, under its lock.
pub struct ItemRef<'a> {
    pub(super) store: &'a Store,
    pub(super) item: Item<'a>,
    pub(super) now: u32,
    pub(super) marks: Cell<u16>,
}

impl ItemRef<'_> {
    /// The client's flags.
    pub fn client_flags(&self) -> u32 {
        self.item.client_flags()
    }

    /// Bytes of its value.
    pub fn value_len(&self) -> usize {
        self.item.value_len()
    }

    /// Appends its value.
    pub fn append_value(&self, into: &mut Vec<u8>) {
        self.item.read_value(into);
    }

    /// Its CAS id.
    pub fn cas(&self) -> u64 {
        self.item.cas()
    }

    /// Seconds until it expires; `None`: never does.
    pub fn ttl(&self) -> Option<u32> {
        let expires = self.item.expires();
        (expires != 0).then(|| expires.saturating_sub(self.now))
    }

    /// Seconds since it was last read or stored.
    pub fn seconds_since_access(&self) -> u32 {
        self.now.saturating_sub(self.item.accessed())
    }

    /// Whether it has been read since it was stored.
    pub fn was_fetched(&self) -> bool {
        self.marks.get() & mark::FETCHED != 0
    }

    /// Whether it is out of date, but still served.
    pub fn is_stale(&self) -> bool {
        self.marks.get() & mark::STALE != 0
    }

    /// Whether some client has been told to make it anew.
    pub fn is_being_renewed(&self) -> bool {
        self.marks.get() & mark::TOKEN_SENT != 0
    }

    /// Whether its key came as base64.
    pub fn has_binary_key(&self) -> bool {
        self.marks.get() & mark::KEY_BINARY != 0
    }

    /// Its class, from 1 as memcached counts.
    pub fn class(&self) -> usize {
        self.store.class_number(self.item.key_len(), self.item.value_len()).unwrap_or(0)
    }

    /// Bytes that it takes.
    pub fn size(&self) -> usize {
        super::item::size(self.item.key_len(), self.item.value_len())
    }

    /// Notes that it has been read.
    pub fn mark_fetched(&self) {
        self.item.set_accessed(self.now);
        self.mark(mark::FETCHED | mark::ACTIVE);
    }

    /// Whether it expires before the second that a client writes as `exptime`.
    pub(crate) fn expires_before(&self, exptime: i64) -> bool {
        let expires_at = self.item.expires();
        expires_at != 0 && expires_at < expires(exptime, self.now)
    }

    /// Lets it expire another time, as a client writes it.
    pub fn touch(&self, exptime: i64) {
        self.item.set_expires(expires(exptime, self.now));
    }

    /// Some client has been told to make it anew.
    pub fn mark_renewing(&self) {
        self.mark(mark::TOKEN_SENT);
    }

    fn mark(&self, marks: u16) {
        if self.marks.get() & marks != marks {
            self.marks.set(self.marks.get() | marks);
            self.item.set_marks(self.marks.get());
        }
    }
}

/// Way of deleting an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// The item goes.
    Delete,
    /// The item stays, but is out of date from now on.
    Invalidate,
    /// The item stays as it is.
    Keep,
}

impl Store {
    /// Looks at the item of `key` under its lock.
    ///
    /// # Errors
    /// Refused for the lock; `look` was not called.
    pub fn read<R>(
        &self,
        key: &[u8],
        visit: &RequestContext,
        look: impl FnOnce(Option<&ItemRef<'_>>) -> R,
    ) -> Result<R, Congested> {
        let hash = self.hash(key);
        let mut stripe = self.lock_within_budget(self.stripe(hash))?;
        let found = self.find_counted(&mut stripe, hash, key, visit).map(|chunk| self.item_ref(chunk, visit.now));
        Ok(look(found.as_ref()))
    }

    /// Looks at the item of `key` under its lock. A missing one is made first, empty; `look` learns whether it was.
    /// `None`: there is no memory for that.
    ///
    /// # Errors
    /// Refused for a lock; nothing has changed, and `look` was not called.
    pub(crate) fn read_or_create<R>(
        &self,
        key: &[u8],
        is_binary: bool,
        visit: &RequestContext,
        look: impl FnOnce(&ItemRef<'_>, bool) -> R,
    ) -> Result<Option<R>, Congested> {
        let hash = self.hash(key);
        let mut stripe = self.lock_within_budget(self.stripe(hash))?;
        if let Some(chunk) = self.find_counted(&mut stripe, hash, key, visit) {
            return Ok(Some(look(&self.item_ref(chunk, visit.now), false)));
        }
        let marks = if is_binary { mark::KEY_BINARY } else { 0 };
        let header = Header { hash, client_flags: 0, expires: 0, stored: visit.now, marks };
        match self.put(&mut stripe, None, &header, key, b"", visit) {
            Ok(_) => {}
            Err(AllocationError::Refused(refused)) => return Err(refused),
            Err(AllocationError::TooLarge | AllocationError::OutOfMemory) => return Ok(None),
        }
        let made = stripe.find(&self.memory, hash, key);
        Ok(made.map(|chunk| look(&self.item_ref(chunk, visit.now), true)))
    }

    /// The item of `key` if it may be served. Otherwise the reason is counted.
    fn find_counted(&self, stripe: &mut Stripe, hash: u32, key: &[u8], visit: &RequestContext) -> Option<Chunk> {
        let found = self.find(stripe, hash, key, visit.now);
        if let Err(Some(fate)) = found {
            self.stats.count(fate);
        }
        found.ok()
    }

    /// Deletes the item of `key` if `decide`, under its lock, says so. What `decide` has said beside that is returned;
    /// `None` if there is no such item.
    ///
    /// # Errors
    /// Refused for a lock. If that was the LRU's, `decide` was called, but nothing has changed.
    pub(crate) fn delete_if<R>(
        &self,
        key: &[u8],
        visit: &RequestContext,
        decide: impl FnOnce(&ItemRef<'_>) -> (Deletion, R),
    ) -> Result<Option<R>, Congested> {
        let hash = self.hash(key);
        let mut stripe = self.lock_within_budget(self.stripe(hash))?;
        let Ok(chunk) = self.find(&mut stripe, hash, key, visit.now) else {
            self.stats.count(Counter::DeleteMisses);
            return Ok(None);
        };
        let found = self.item_ref(chunk, visit.now);
        let (deletion, answer) = decide(&found);
        match deletion {
            Deletion::Keep => {}
            Deletion::Invalidate => {
                found.marks.set(found.marks.get() & !mark::TOKEN_SENT);
                found.item.set_marks(found.marks.get() | mark::STALE);
                found.item.set_cas(self.next_cas());
                self.stats.count(Counter::DeleteHits);
            }
            Deletion::Delete => {
                let mut lru = self.lock_within_budget(&self.lrus[self.memory.class(chunk)])?;
                lru.remove(&self.memory, chunk);
                drop(lru);
                stripe.remove(&self.memory, chunk);
                drop(stripe);
                self.free(chunk);
                self.stats.count(Counter::DeleteHits);
            }
        }
        Ok(Some(answer))
    }

    /// Deletes the item of `key`; whether there was one.
    ///
    /// # Errors
    /// Refused for a lock; nothing has changed.
    pub fn delete(&self, key: &[u8], visit: &RequestContext) -> Result<bool, Congested> {
        Ok(self.delete_if(key, visit, |_| (Deletion::Delete, ()))?.is_some())
    }

    pub(super) fn item_ref(&self, chunk: super::Chunk, now: u32) -> ItemRef<'_> {
        let item = self.item(chunk);
        ItemRef { store: self, item, now, marks: Cell::new(item.marks()) }
    }
}
