//! Counting up and down in values that are decimal numbers.

use super::item::{Header, mark};
use super::stats::Counter;
use super::{AllocationError, Congested, RequestContext, Store};
use crate::number::unsigned;

/// How a number changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Up, over the end of 64 bits to 0; else down, to 0 at most.
    pub increment: bool,
    /// By how much.
    pub amount: u64,
    /// Only if the item's CAS id is this one.
    pub cas: Option<u64>,
    /// Another time to expire, in seconds since 1970; 0: never.
    pub expires: Option<u32>,
}

/// Outcome of the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum DeltaOutcome {
    /// The number is this now.
    Updated {
        /// The number.
        value: u64,
        /// The item's new CAS id.
        cas: u64,
        /// When it was to expire before this change, in seconds since 1970; 0: never.
        previous_expiry: u32,
    },
    /// There is no such item.
    NotFound,
    /// Its value is no decimal number of 64 bits.
    NotANumber,
    /// The item has another CAS id.
    Exists,
    /// The number is longer than before, and there is no room for that.
    OutOfMemory,
}

/// The longest decimal number of 64 bits.
const DIGITS: usize = 20;

impl Store {
    /// Adds to, or subtracts from, the number under `key`. A number that gets shorter is followed by spaces, as with
    /// memcached: the value keeps its length.
    ///
    /// # Errors
    /// Refused for a lock; nothing has changed.
    pub fn add_delta(&self, key: &[u8], delta: &Delta, visit: &RequestContext) -> Result<DeltaOutcome, Congested> {
        let hash = self.hash(key);
        let (hits, misses) = if delta.increment {
            (Counter::IncrHits, Counter::IncrMisses)
        } else {
            (Counter::DecrHits, Counter::DecrMisses)
        };
        let mut stripe = self.lock_within_budget(self.stripe(hash))?;
        let Ok(chunk) = self.find(&mut stripe, hash, key, visit.now) else {
            self.stats.count(misses);
            return Ok(DeltaOutcome::NotFound);
        };
        let item = self.item(chunk);
        let length = item.value_len();
        // As in memcached an empty value is no number, whatever its CAS id.
        if length > 0 && delta.cas.is_some_and(|cas| cas != item.cas()) {
            return Ok(DeltaOutcome::Exists);
        }
        let mut text = Vec::new();
        item.read_start(4 * DIGITS, &mut text);
        // A number that does not end there is none for us.
        let goes_on = length > text.len() && text.last().is_some_and(u8::is_ascii_digit);
        let Some(old) = unsigned(&text).filter(|_| !goes_on) else { return Ok(DeltaOutcome::NotANumber) };
        let value = if delta.increment { old.wrapping_add(delta.amount) } else { old.saturating_sub(delta.amount) };
        let mut digits = value.to_string().into_bytes();
        let expired = item.expires();
        let expires = delta.expires.unwrap_or(expired);
        let cas;
        if digits.len() <= length {
            digits.resize(length, b' ');
            item.overwrite_value(&digits);
            cas = self.next_cas();
            item.set_cas(cas);
            item.set_expires(expires);
            item.set_stored(visit.now);
            item.set_accessed(visit.now);
            item.set_marks(item.marks() | mark::ACTIVE);
        } else {
            let header = Header {
                hash,
                client_flags: item.client_flags(),
                expires,
                stored: visit.now,
                marks: item.marks() & mark::KEY_BINARY,
            };
            match self.put(&mut stripe, Some(chunk), &header, key, &digits, visit) {
                Ok(new) => cas = new,
                Err(AllocationError::Refused(refused)) => return Err(refused),
                Err(AllocationError::TooLarge | AllocationError::OutOfMemory) => return Ok(DeltaOutcome::OutOfMemory),
            }
            drop(stripe);
            self.free(chunk);
        }
        self.stats.count(hits);
        Ok(DeltaOutcome::Updated { value, cas, previous_expiry: expired })
    }
}
