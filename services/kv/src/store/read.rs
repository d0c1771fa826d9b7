//! Reads, touches and deletes items.

use super::item::{Header, Item, mark};
use super::memory::Chunk;
use super::stats::Counter;
use super::table::Stripe;
use super::{AllocationError, Congested, RequestContext, Store, expires};
use std::cell::Cell;

/// An existing item, under its lock.
pub struct ItemRef<'a> {
    pub(super) store: &'a Store,
    pub(super) item: Item<'a>,
    pub(super) now: u32,
    pub(super) marks: Cell<u16>,
}

impl ItemRef<'_> {
    /// Returns the client's flags.
    pub fn client_flags(&self) -> u32 {
        self.item.client_flags()
    }

    /// Returns the length of the value, in bytes.
    pub fn value_len(&self) -> usize {
        self.item.value_len()
    }

    /// Appends the value.
    pub fn append_value(&self, into: &mut Vec<u8>) {
        self.item.read_value(into);
    }

    /// Returns the CAS id.
    pub fn cas(&self) -> u64 {
        self.item.cas()
    }

    /// Returns the seconds until the item expires; `None`: never.
    pub fn ttl(&self) -> Option<u32> {
        let expires = self.item.expires();
        (expires != 0).then(|| expires.saturating_sub(self.now))
    }

    /// Returns the seconds since the item was last read or stored.
    pub fn seconds_since_access(&self) -> u32 {
        self.now.saturating_sub(self.item.accessed())
    }

    /// Returns whether the item has been read since it was stored.
    pub fn was_fetched(&self) -> bool {
        self.marks.get() & mark::FETCHED != 0
    }

    /// Returns whether the item is stale, but still served.
    pub fn is_stale(&self) -> bool {
        self.marks.get() & mark::STALE != 0
    }

    /// Returns whether one client was asked to renew the item.
    pub fn is_being_renewed(&self) -> bool {
        self.marks.get() & mark::TOKEN_SENT != 0
    }

    /// Returns whether the client sent the key as base64.
    pub fn has_binary_key(&self) -> bool {
        self.marks.get() & mark::KEY_BINARY != 0
    }

    /// Returns the class, from 1 as in memcached.
    pub fn class(&self) -> usize {
        self.store.class_number(self.item.key_len(), self.item.value_len()).unwrap_or(0)
    }

    /// Returns the item's size, in bytes.
    pub fn size(&self) -> usize {
        super::item::size(self.item.key_len(), self.item.value_len())
    }

    /// Records a read.
    pub fn mark_fetched(&self) {
        self.item.set_accessed(self.now);
        self.mark(mark::FETCHED | mark::ACTIVE);
    }

    /// Returns whether the item expires before a client's `exptime`.
    pub(crate) fn expires_before(&self, exptime: i64) -> bool {
        let expires_at = self.item.expires();
        expires_at != 0 && expires_at < expires(exptime, self.now)
    }

    /// Sets the expiry to a client's `exptime`.
    pub fn touch(&self, exptime: i64) {
        self.item.set_expires(expires(exptime, self.now));
    }

    /// Records that one client was asked to renew the item.
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

/// Ways of deleting an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// Removes the item.
    Delete,
    /// Keeps the item and marks it stale.
    Invalidate,
    /// Keeps the item unchanged.
    Keep,
}

impl Store {
    /// Calls `look` with the item of `key`, under its lock.
    ///
    /// # Errors
    /// The lock is congested; `look` was not called.
    pub fn read<R>(
        &self,
        key: &[u8],
        context: &RequestContext,
        look: impl FnOnce(Option<&ItemRef<'_>>) -> R,
    ) -> Result<R, Congested> {
        let hash = self.hash(key);
        let mut stripe = self.lock_within_budget(self.stripe(hash))?;
        let found = self.find_counted(&mut stripe, hash, key, context).map(|chunk| self.item_ref(chunk, context.now));
        Ok(look(found.as_ref()))
    }

    /// Calls `look` with the item of `key`, under its lock; creates a missing item first, empty.
    ///
    /// `look` also gets whether the item was created. Returns `None` without memory for a new item.
    ///
    /// # Errors
    /// A lock is congested; nothing has changed, and `look` was not called.
    pub(crate) fn read_or_create<R>(
        &self,
        key: &[u8],
        is_binary: bool,
        context: &RequestContext,
        look: impl FnOnce(&ItemRef<'_>, bool) -> R,
    ) -> Result<Option<R>, Congested> {
        let hash = self.hash(key);
        let mut stripe = self.lock_within_budget(self.stripe(hash))?;
        if let Some(chunk) = self.find_counted(&mut stripe, hash, key, context) {
            return Ok(Some(look(&self.item_ref(chunk, context.now), false)));
        }
        let marks = if is_binary { mark::KEY_BINARY } else { 0 };
        let header = Header { hash, client_flags: 0, expires: 0, stored: context.now, marks };
        match self.put(&mut stripe, None, &header, key, b"", context) {
            Ok(_) => {}
            Err(AllocationError::Refused(congested)) => return Err(congested),
            Err(AllocationError::TooLarge | AllocationError::OutOfMemory) => return Ok(None),
        }
        let made = stripe.find(&self.memory, hash, key);
        Ok(made.map(|chunk| look(&self.item_ref(chunk, context.now), true)))
    }

    /// Finds the item of `key`, if it may be served; counts the reason otherwise.
    fn find_counted(&self, stripe: &mut Stripe, hash: u32, key: &[u8], context: &RequestContext) -> Option<Chunk> {
        let found = self.find(stripe, hash, key, context.now);
        if let Err(Some(reason)) = found {
            self.stats.count(reason);
        }
        found.ok()
    }

    /// Deletes the item of `key` if `decide`, called under its lock, decides so.
    ///
    /// Returns the second result of `decide`; `None` for a missing item.
    ///
    /// # Errors
    /// A lock is congested; nothing has changed. If it was the LRU lock, `decide` was called.
    pub(crate) fn delete_if<R>(
        &self,
        key: &[u8],
        context: &RequestContext,
        decide: impl FnOnce(&ItemRef<'_>) -> (Deletion, R),
    ) -> Result<Option<R>, Congested> {
        let hash = self.hash(key);
        let mut stripe = self.lock_within_budget(self.stripe(hash))?;
        let Ok(chunk) = self.find(&mut stripe, hash, key, context.now) else {
            self.stats.count(Counter::DeleteMisses);
            return Ok(None);
        };
        let found = self.item_ref(chunk, context.now);
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

    /// Deletes the item of `key`; returns whether it existed.
    ///
    /// # Errors
    /// A lock is congested; nothing has changed.
    pub fn delete(&self, key: &[u8], context: &RequestContext) -> Result<bool, Congested> {
        Ok(self.delete_if(key, context, |_| (Deletion::Delete, ()))?.is_some())
    }

    pub(super) fn item_ref(&self, chunk: super::Chunk, now: u32) -> ItemRef<'_> {
        let item = self.item(chunk);
        ItemRef { store: self, item, now, marks: Cell::new(item.marks()) }
    }
}
