//! Frees memory: takes a chunk, evicts an item, moves a page from one class to another.

use super::item::Item;
use super::memory::Chunk;
use super::stats::Counter;
use super::{AllocationError, Congested, RequestContext, Store, item::mark};

/// Items that one search for a victim examines. Locked items are skipped.
const SCAN_MAX: usize = 50;
/// Recently read items that one search moves back to the head.
const SECOND_CHANCES: usize = 16;
/// Attempts to free memory before a request fails: other requests may take the freed chunks.
const ATTEMPTS: usize = 8;

impl Store {
    /// Allocates a chunk for an item of `size` bytes: a free one, or a victim's.
    pub(super) fn allocate(&self, size: usize, context: &RequestContext) -> Result<Chunk, AllocationError> {
        let class = self.class(size).ok_or(AllocationError::TooLarge)?;
        for _ in 0..ATTEMPTS {
            let mut slabs = self.lock_within_budget(&self.slabs)?;
            if let Some(chunk) = slabs.allocate(&self.memory, class) {
                return Ok(chunk);
            }
            drop(slabs);
            if let Some(chunk) = self.evict(class, context)? {
                return Ok(chunk);
            }
            if !self.move_page_to(class) {
                break;
            }
        }
        Err(AllocationError::OutOfMemory)
    }

    /// Evicts the oldest item of `class` that was not read since, and returns its chunk.
    fn evict(&self, class: usize, context: &RequestContext) -> Result<Option<Chunk>, Congested> {
        let mut lru = self.lock_within_budget(&self.lrus[class])?;
        let mut next = lru.tail();
        let mut chances = 0;
        for _ in 0..SCAN_MAX {
            let Some(chunk) = next else { break };
            next = lru.before(&self.memory, chunk);
            // The hash of a listed item doesn't change. Only `try_lock`: the item's owner may be
            // waiting for this list.
            let Some(mut stripe) = self.stripe(self.item(chunk).hash()).try_lock() else { continue };
            let item = self.item(chunk);
            let is_dead = self.miss_reason(item, context.now).is_some();
            if !is_dead && item.marks() & mark::ACTIVE != 0 && chances < SECOND_CHANCES {
                chances += 1;
                item.set_marks(item.marks() & !mark::ACTIVE);
                lru.remove(&self.memory, chunk);
                lru.push(&self.memory, chunk);
                // All items of the list are active: the item that was moved first is at the tail
                // again.
                next = next.or(lru.tail());
                continue;
            }
            lru.remove(&self.memory, chunk);
            lru.evicted += u64::from(!is_dead);
            stripe.remove(&self.memory, chunk);
            self.stats.count(if is_dead { Counter::Reclaimed } else { Counter::Evictions });
            if item.marks() & mark::FETCHED == 0 {
                self.stats.count(if is_dead { Counter::ExpiredUnfetched } else { Counter::EvictedUnfetched });
            }
            return Ok(Some(chunk));
        }
        Ok(None)
    }

    /// Empties a page of the class with the most pages and gives it to `class`, which has nothing
    /// to evict.
    ///
    /// This is rare and stalls the request that needs it. memcached has a thread for this; here the
    /// request does it.
    fn move_page_to(&self, class: usize) -> bool {
        let Some(_moving) = self.moving.try_lock() else {
            // Another request frees memory. The caller's next attempt shows if that was enough.
            drop(self.moving.lock());
            return true;
        };
        let (from, page, mut in_use, all) = {
            let mut slabs = self.slabs.lock();
            let Some(from) = slabs.donor_class(class) else { return false };
            let Some(page) = slabs.oldest_page(from) else { return false };
            (from, page, slabs.close(from, page), slabs.chunks_per_page(from))
        };
        for chunk in (0..all).map(|index| Chunk::new(page as usize, index)) {
            if in_use == 0 {
                break;
            }
            if self.take_out(chunk) {
                self.free(chunk);
                in_use -= 1;
            }
        }
        // A remaining chunk is being written or locked by this request, or its owner has freed it
        // meanwhile.
        let moved = self.slabs.lock().reassign(&self.memory, from, page, class);
        if moved {
            self.stats.count(Counter::SlabsMoved);
        }
        moved
    }

    /// Evicts the item in `chunk`, if the chunk holds an item that is not in use.
    fn take_out(&self, chunk: Chunk) -> bool {
        // Only the table shows if the chunk is an item: the hash may be half-written.
        let hash = Item::new(&self.memory, chunk).hash();
        let Some(mut stripe) = self.stripe(hash).try_lock() else { return false };
        if !stripe.remove(&self.memory, chunk) {
            return false;
        }
        self.lrus[self.memory.class(chunk)].lock().remove(&self.memory, chunk);
        self.stats.count(Counter::Evictions);
        true
    }
}
