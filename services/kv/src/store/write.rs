//! Storing: set, add, replace, append, prepend, each also only if the CAS id is the expected one.

use super::item::{self, Header, mark};
use super::memory::Chunk;
use super::stats::Counter;
use super::table::Stripe;
use super::{AllocationError, Congested, RequestContext, Store};

/// When a value is stored and what of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In any case.
    #[default]
    Set,
    /// If there is none yet.
    Add,
    /// If there is one.
    Replace,
    /// Behind the one that is there.
    Append,
    /// Before the one that is there.
    Prepend,
}

/// How something is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// See [`Mode`].
    pub mode: Mode,
    /// The client's flags. Appending keeps those that are there.
    pub client_flags: u32,
    /// When it expires, in seconds since 1970; 0: never. Appending keeps what is there.
    pub expires: u32,
    /// Only if the item's CAS id is this one.
    pub cas: Option<u64>,
    /// A lower CAS id than the item's is enough, but then what is stored counts as out of date.
    pub allow_stale: bool,
    /// The client sent the key as base64.
    pub binary_key: bool,
}

/// Outcome of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum WriteOutcome {
    /// The item is stored, under this CAS id.
    Stored {
        /// Of the new item.
        cas: u64,
    },
    /// The mode's condition does not hold.
    NotStored,
    /// The item has another CAS id.
    Exists,
    /// There is no item with any CAS id.
    NotFound,
    /// No class has chunks that large. A value that was to be replaced in any case is gone, as with memcached: it would be
    /// out of date.
    TooLarge,
    /// Nothing is free and nothing can be evicted. A value that was to be replaced in any case is gone, too.
    OutOfMemory,
}

/// Decision by the conditions.
enum Decision {
    Store { marks: u16, expires: u32 },
    Reject(WriteOutcome),
}

impl Store {
    /// Stores `value` under `key` as `write` says.
    ///
    /// # Errors
    /// Refused for a lock: what was there is there as before.
    pub fn write(
        &self,
        key: &[u8],
        value: &[u8],
        write: &Write,
        visit: &RequestContext,
    ) -> Result<WriteOutcome, Congested> {
        debug_assert!(!key.is_empty() && key.len() <= super::KEY_MAX);
        self.stats.count(Counter::CmdSet);
        let outcome = if matches!(write.mode, Mode::Append | Mode::Prepend) {
            self.extend(key, value, write, visit)
        } else {
            self.replace(key, value, write, visit)
        };
        match outcome {
            Ok(outcome) => {
                if write.cas.is_some() {
                    self.count_cas(outcome);
                }
                Ok(outcome)
            }
            Err(AllocationError::Refused(refused)) => Err(refused),
            Err(AllocationError::TooLarge) => {
                self.stats.count(Counter::StoreTooLarge);
                self.discard_unless_conditional(key, write, visit)?;
                Ok(WriteOutcome::TooLarge)
            }
            Err(AllocationError::OutOfMemory) => {
                self.stats.count(Counter::StoreNoMemory);
                self.discard_unless_conditional(key, write, visit)?;
                Ok(WriteOutcome::OutOfMemory)
            }
        }
    }

    /// Whether a value of this size has a place in some class.
    pub fn fits(&self, key: usize, value: usize) -> bool {
        value <= super::PAGE && self.class(item::size(key, value)).is_some()
    }

    /// Removes the item that is there, which would be out of date if this was to be stored in any case.
    fn discard_unless_conditional(&self, key: &[u8], write: &Write, visit: &RequestContext) -> Result<(), Congested> {
        if write.mode == Mode::Set && write.cas.is_none() { self.discard(key, visit) } else { Ok(()) }
    }

    /// Removes what is there and can't be replaced.
    pub(crate) fn discard(&self, key: &[u8], visit: &RequestContext) -> Result<(), Congested> {
        let hash = self.hash(key);
        let mut stripe = self.lock_within_budget(self.stripe(hash))?;
        if let Ok(chunk) = self.find(&mut stripe, hash, key, visit.now) {
            self.unlink(&mut stripe, chunk);
            drop(stripe);
            self.free(chunk);
        }
        Ok(())
    }

    /// The chunk is taken and filled before the item is locked.
    fn replace(
        &self,
        key: &[u8],
        value: &[u8],
        write: &Write,
        visit: &RequestContext,
    ) -> Result<WriteOutcome, AllocationError> {
        let hash = self.hash(key);
        let chunk = self.allocate(item::size(key.len(), value.len()), visit)?;
        let header = Header {
            hash,
            client_flags: write.client_flags,
            expires: write.expires,
            stored: visit.now,
            marks: if write.binary_key { mark::KEY_BINARY } else { 0 },
        };
        self.item(chunk).write(&header, key, value);
        let outcome = self.replace_locked(hash, key, chunk, write, visit);
        if !matches!(outcome, Ok(WriteOutcome::Stored { .. })) {
            // Nobody has seen it.
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
        visit: &RequestContext,
    ) -> Result<WriteOutcome, Congested> {
        let mut stripe = self.lock_within_budget(self.stripe(hash))?;
        let old = self.find(&mut stripe, hash, key, visit.now).ok();
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
        let plainly = Decision::Store { marks: 0, expires: write.expires };
        match (write.mode, old, write.cas) {
            (Mode::Add, Some(old), _) => {
                // As with memcached, asking for it counts as using it.
                let item = self.item(old);
                item.set_marks(item.marks() | mark::ACTIVE);
                Decision::Reject(WriteOutcome::NotStored)
            }
            (Mode::Add, None, _) => plainly,
            (_, None, Some(_)) => Decision::Reject(WriteOutcome::NotFound),
            (Mode::Replace, None, None) => Decision::Reject(WriteOutcome::NotStored),
            (_, Some(old), Some(cas)) => {
                let item = self.item(old);
                if cas == item.cas() {
                    plainly
                } else if write.allow_stale && cas < item.cas() {
                    let marks = mark::STALE | item.marks() & mark::TOKEN_SENT;
                    Decision::Store { marks, expires: item.expires() }
                } else {
                    Decision::Reject(WriteOutcome::Exists)
                }
            }
            (_, _, None) => plainly,
        }
    }

    /// Appending needs the item's length before it can ask for memory: all of it is under the item lock.
    fn extend(
        &self,
        key: &[u8],
        value: &[u8],
        write: &Write,
        visit: &RequestContext,
    ) -> Result<WriteOutcome, AllocationError> {
        let hash = self.hash(key);
        let mut stripe = self.lock_within_budget(self.stripe(hash))?;
        let Ok(old) = self.find(&mut stripe, hash, key, visit.now) else {
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
            stored: visit.now,
            marks: item.marks() & mark::KEY_BINARY,
        };
        let cas = match self.put(&mut stripe, Some(old), &header, key, &whole, visit) {
            // What is there stays; memcached says no more about it either.
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

    /// Makes a new item, in the place of `old`, which the caller frees when it has unlocked the item.
    pub(super) fn put(
        &self,
        stripe: &mut Stripe,
        old: Option<Chunk>,
        header: &Header,
        key: &[u8],
        value: &[u8],
        visit: &RequestContext,
    ) -> Result<u64, AllocationError> {
        let chunk = self.allocate(item::size(key.len(), value.len()), visit)?;
        self.item(chunk).write(header, key, value);
        let linked = self.link(stripe, old, chunk);
        if linked.is_err() {
            self.free(chunk);
        }
        linked.map_err(AllocationError::Refused)
    }

    /// Makes `chunk` the item of its key, in the place of `old`. The last lock that may refuse: after it nothing does.
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
