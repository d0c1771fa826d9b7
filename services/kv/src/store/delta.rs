//! Increments and decrements of values that are decimal numbers.

use super::item::{Header, mark};
use super::stats::Counter;
use super::{AllocationError, Congested, RequestContext, Store};
use crate::number::unsigned;

/// Change of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Increment, wrapping at 64 bits; otherwise decrement, stopping at 0.
    pub increment: bool,
    /// Amount of the change.
    pub amount: u64,
    /// Required CAS id; `None` for any.
    pub cas: Option<u64>,
    /// New expiry in seconds since 1970; 0: never. `None` keeps the expiry.
    pub expires: Option<u32>,
}

/// Outcome of the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum DeltaOutcome {
    /// The number has changed.
    Updated {
        /// The new number.
        value: u64,
        /// The item's new CAS id.
        cas: u64,
        /// Expiry before this change, in seconds since 1970; 0: never.
        previous_expiry: u32,
    },
    /// No such item.
    NotFound,
    /// The value is not a decimal number of 64 bits.
    NotANumber,
    /// The item has another CAS id.
    Exists,
    /// The number became longer, and no memory is left.
    OutOfMemory,
}

/// Digits of the longest 64-bit decimal number.
const DIGITS: usize = 20;

impl Store {
    /// Adds to, or subtracts from, the number under `key`.
    ///
    /// As in memcached, a number that gets shorter is padded with spaces: the value keeps its
    /// length.
    ///
    /// # Errors
    /// A lock is congested; nothing has changed.
    pub fn add_delta(&self, key: &[u8], delta: &Delta, context: &RequestContext) -> Result<DeltaOutcome, Congested> {
        let hash = self.hash(key);
        let (hits, misses) = if delta.increment {
            (Counter::IncrHits, Counter::IncrMisses)
        } else {
            (Counter::DecrHits, Counter::DecrMisses)
        };
        let mut stripe = self.lock_within_budget(self.stripe(hash))?;
        let Ok(chunk) = self.find(&mut stripe, hash, key, context.now) else {
            self.stats.count(misses);
            return Ok(DeltaOutcome::NotFound);
        };
        let item = self.item(chunk);
        let length = item.value_len();
        // As in memcached, an empty value is not a number, for any CAS id.
        if length > 0 && delta.cas.is_some_and(|cas| cas != item.cas()) {
            return Ok(DeltaOutcome::Exists);
        }
        let mut text = Vec::new();
        item.read_start(4 * DIGITS, &mut text);
        // A number that continues beyond the read text is rejected.
        let continues = length > text.len() && text.last().is_some_and(u8::is_ascii_digit);
        let Some(old) = unsigned(&text).filter(|_| !continues) else { return Ok(DeltaOutcome::NotANumber) };
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
            item.set_stored(context.now);
            item.set_accessed(context.now);
            item.set_marks(item.marks() | mark::ACTIVE);
        } else {
            let header = Header {
                hash,
                client_flags: item.client_flags(),
                expires,
                stored: context.now,
                marks: item.marks() & mark::KEY_BINARY,
            };
            match self.put(&mut stripe, Some(chunk), &header, key, &digits, context) {
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
