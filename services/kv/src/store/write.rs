//! Stores items: set, add, replace, append, prepend, each optionally with an expected CAS id.

use super::item::{self, Header, mark};
use super::memory::Chunk;
use super::stats::Counter;
use super::table::Stripe;
use super::{AllocationError, Congested, RequestContext, Store};

/// Condition and kind of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Always.
    #[default]
    Set,
    /// Only if the key is missing.
    Add,
    /// Only if the key exists.
    Replace,
    /// Appends to an existing value.
    Append,
    /// Prepends to an existing value.
    Prepend,
}

/// Options of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// See [`Mode`].
    pub mode: Mode,
    /// The client's flags. Appending keeps the existing ones.
    pub client_flags: u32,
    /// Expiry in seconds since 1970; 0: never. Appending keeps the existing one.
    pub expires: u32,
    /// Required CAS id; `None` for any.
    pub cas: Option<u64>,
    /// Accepts a CAS id lower than the item's, but marks the stored item stale.
    pub allow_stale: bool,
    /// The client sent the key as base64.
    pub binary_key: bool,
}

/// Outcome of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum WriteOutcome {
    /// The item is stored under this CAS id.
    Stored {
        /// CAS id of the new item.
        cas: u64,
    },
    /// The mode's condition does not hold.
    NotStored,
    /// The item has another CAS id.
    Exists,
    /// A CAS id was required, but the key is missing.
    NotFound,
    /// No class has chunks that large.
    ///
    /// An unconditional write has removed the old value, as in memcached: it would be out of date.
    TooLarge,
    /// No free chunk, and nothing to evict. An unconditional write has removed the old value.
    OutOfMemory,
}

/// Decision after checking the conditions.
enum Decision {
    Store { marks: u16, expires: u32 },
    Reject(WriteOutcome),
}

impl Store {
    /// Stores `value` under `key` with the options of `write`.
    ///
    /// # Errors
    /// A lock is congested; the old value is unchanged.
    pub fn write(
        &self,
        key: &[u8],
        value: &[u8],
        write: &Write,
        context: &RequestContext,
    ) -> Result<WriteOutcome, Congested> {
        debug_assert!(!key.is_empty() && key.len() <= super::KEY_MAX);
        self.stats.count(Counter::CmdSet);
        let outcome = if matches!(write.mode, Mode::Append | Mode::Prepend) {
            self.extend(key, value, write, context)
        } else {
            self.replace(key, value, write, context)
        };
        match outcome {
            Ok(outcome) => {
                if write.cas.is_some() {
                    self.count_cas(outcome);
                }
                Ok(outcome)
            }
            Err(AllocationError::Refused(congested)) => Err(congested),
            Err(AllocationError::TooLarge) => {
                self.stats.count(Counter::StoreTooLarge);
                self.discard_unless_conditional(key, write, context)?;
                Ok(WriteOutcome::TooLarge)
            }
            Err(AllocationError::OutOfMemory) => {
                self.stats.count(Counter::StoreNoMemory);
                self.discard_unless_conditional(key, write, context)?;
                Ok(WriteOutcome::OutOfMemory)
            }
        }
    }

    /// Returns whether some class has chunks for a value of this size.
    pub fn fits(&self, key: usize, value: usize) -> bool {
        value <= super::PAGE && self.class(item::size(key, value)).is_some()
    }

    /// Removes the old item after a failed unconditional write: it would be out of date.
    fn discard_unless_conditional(&self, key: &[u8], write: &Write, context: &RequestContext) -> Result<(), Congested> {
        if write.mode == Mode::Set && write.cas.is_none() { self.discard(key, context) } else { Ok(()) }
    }

    /// Removes an item that can't be replaced.
    pub(crate) fn discard(&self, key: &[u8], context: &RequestContext) -> Result<(), Congested> {
        let hash = self.hash(key);
        let mut stripe = self.lock_within_budget(self.stripe(hash))?;
        if let Ok(chunk) = self.find(&mut stripe, hash, key, context.now) {
            self.unlink(&mut stripe, chunk);
            drop(stripe);
            self.free(chunk);
        }
        Ok(())
    }

    /// Replaces the item; takes and fills the chunk before it locks the item.
    fn replace(
        &self,
        key: &[u8],
        value: &[u8],
        write: &Write,
        context: &RequestContext,
    ) -> Result<WriteOutcome, AllocationError> {
        let hash = self.hash(key);
        let chunk = self.allocate(item::size(key.len(), value.len()), context)?;
        let header = Header {
            hash,
            client_flags: write.client_flags,
            expires: write.expires,
            stored: context.now,
            marks: if write.binary_key { mark::KEY_BINARY } else { 0 },
        };
        self.item(chunk).write(&header, key, value);
        let outcome = self.replace_locked(hash, key, chunk, write, context);
        if !matches!(outcome, Ok(WriteOutcome::Stored { .. })) {
            // No other thread has seen the chunk.
            self.free(chunk);
        }
        outcome.map_err(AllocationError::Refused)
    }

    fn replace_locked(
        &self,
        hash: u32,
        key: &[u8],
        chunk: Chunk,
        write: &Write,
        context: &RequestContext,
    ) -> Result<WriteOutcome, Congested> {
        let mut stripe = self.lock_within_budget(self.stripe(hash))?;
        let old = self.find(&mut stripe, hash, key, context.now).ok();
        let (marks, expires) = match self.decide(old, write) {
            Decision::Store { marks, expires } => (marks, expires),
            Decision::Reject(outcome) => return Ok(outcome),
        };
        let item = self.item(chunk);
        item.set_marks(item.marks() | marks);
        item.set_expires(expires);
        let cas = self.link(&mut stripe, old, chunk)?;
        drop(stripe);
        if let Some(old) = old {
            self.free(old);
        }
        Ok(WriteOutcome::Stored { cas })
    }

    fn decide(&self, old: Option<Chunk>, write: &Write) -> Decision {
        let unconditional = Decision::Store { marks: 0, expires: write.expires };
        match (write.mode, old, write.cas) {
            (Mode::Add, Some(old), _) => {
                // As in memcached, asking for it counts as use.
                let item = self.item(old);
                item.set_marks(item.marks() | mark::ACTIVE);
                Decision::Reject(WriteOutcome::NotStored)
            }
            (Mode::Add, None, _) => unconditional,
            (_, None, Some(_)) => Decision::Reject(WriteOutcome::NotFound),
            (Mode::Replace, None, None) => Decision::Reject(WriteOutcome::NotStored),
            (_, Some(old), Some(cas)) => {
                let item = self.item(old);
                if cas == item.cas() {
                    unconditional
                } else if write.allow_stale && cas < item.cas() {
                    let marks = mark::STALE | item.marks() & mark::TOKEN_SENT;
                    Decision::Store { marks, expires: item.expires() }
                } else {
                    Decision::Reject(WriteOutcome::Exists)
                }
            }
            (_, _, None) => unconditional,
        }
    }

    /// Appends or prepends. Holds the item lock throughout: the item's length must be known before
    /// the allocation.
    fn extend(
        &self,
        key: &[u8],
        value: &[u8],
        write: &Write,
        context: &RequestContext,
    ) -> Result<WriteOutcome, AllocationError> {
        let hash = self.hash(key);
        let mut stripe = self.lock_within_budget(self.stripe(hash))?;
        let Ok(old) = self.find(&mut stripe, hash, key, context.now) else {
            return Ok(WriteOutcome::NotStored);
        };
        let item = self.item(old);
        if write.cas.is_some_and(|cas| cas != item.cas()) {
            return Ok(WriteOutcome::Exists);
        }
        let mut whole = Vec::with_capacity(item.value_len() + value.len());
        if write.mode == Mode::Append {
            item.read_value(&mut whole);
            whole.extend_from_slice(value);
        } else {
            whole.extend_from_slice(value);
            item.read_value(&mut whole);
        }
        let header = Header {
            hash,
            client_flags: item.client_flags(),
            expires: item.expires(),
            stored: context.now,
            marks: item.marks() & mark::KEY_BINARY,
        };
        let cas = match self.put(&mut stripe, Some(old), &header, key, &whole, context) {
            // The old value stays; memcached reports no more about it either.
            Err(AllocationError::TooLarge | AllocationError::OutOfMemory) => {
                self.stats.count(Counter::StoreNoMemory);
                return Ok(WriteOutcome::NotStored);
            }
            outcome => outcome?,
        };
        drop(stripe);
        self.free(old);
        Ok(WriteOutcome::Stored { cas })
    }

    /// Creates a new item in place of `old`; the caller frees `old` after it has unlocked the item.
    pub(super) fn put(
        &self,
        stripe: &mut Stripe,
        old: Option<Chunk>,
        header: &Header,
        key: &[u8],
        value: &[u8],
        context: &RequestContext,
    ) -> Result<u64, AllocationError> {
        let chunk = self.allocate(item::size(key.len(), value.len()), context)?;
        self.item(chunk).write(header, key, value);
        let linked = self.link(stripe, old, chunk);
        if linked.is_err() {
            self.free(chunk);
        }
        linked.map_err(AllocationError::Refused)
    }

    /// Makes `chunk` the item of its key, in place of `old`.
    ///
    /// Takes the last lock that may be congested; after it nothing fails.
    fn link(&self, stripe: &mut Stripe, old: Option<Chunk>, chunk: Chunk) -> Result<u64, Congested> {
        let class = self.memory.class(chunk);
        let mut lru = self.lock_within_budget(&self.lrus[class])?;
        lru.push(&self.memory, chunk);
        lru.stored += 1;
        let old_class = old.map(|old| self.memory.class(old));
        if let (Some(old), true) = (old, old_class == Some(class)) {
            lru.remove(&self.memory, old);
        }
        drop(lru);
        if let (Some(old), Some(other)) = (old, old_class.filter(|other| *other != class)) {
            self.lrus[other].lock().remove(&self.memory, old);
        }
        if let Some(old) = old {
            stripe.remove(&self.memory, old);
        }
        let cas = self.next_cas();
        self.item(chunk).set_cas(cas);
        stripe.insert(&self.memory, chunk);
        self.stats.count(Counter::TotalItems);
        Ok(cas)
    }

    fn count_cas(&self, outcome: WriteOutcome) {
        match outcome {
            WriteOutcome::Stored { .. } => self.stats.count(Counter::CasHits),
            WriteOutcome::Exists => self.stats.count(Counter::CasBadval),
            WriteOutcome::NotFound => self.stats.count(Counter::CasMisses),
            _ => {}
        }
    }
}
