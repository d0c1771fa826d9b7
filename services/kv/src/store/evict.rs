//! Making room: taking a chunk, evicting for one, moving a page from one class to another.

use super::item::Item;
use super::memory::Chunk;
use super::stats::Counter;
use super::{AllocationError, Congested, RequestContext, Store, item::mark};

/// Items that one search for a victim looks at. Those that are locked are passed over.
const SCAN_MAX: usize = 50;
/// Items that one search sends back to the head because they have been read.
const SECOND_CHANCES: usize = 16;
/// Times that room is made before a request is told that there is none: others may take what was made.
const ATTEMPTS: usize = 8;

impl Store {
    /// A chunk for an item of `size` bytes: a free one, or a victim's.
    pub(super) fn allocate(&self, size: usize, visit: &RequestContext) -> Result<Chunk, AllocationError> {
        let class = self.class(size).ok_or(AllocationError::TooLarge)?;
        for _ in 0..ATTEMPTS {
            let mut slabs = self.lock_within_budget(&self.slabs)?;
            if let Some(chunk) = slabs.allocate(&self.memory, class) {
                return Ok(chunk);
            }
            drop(slabs);
            if let Some(chunk) = self.evict(class, visit)? {
                return Ok(chunk);
            }
            if !self.move_page_to(class) {
                break;
            }
        }
        Err(AllocationError::OutOfMemory)
    }

    /// Evicts the item of `class` that was stored first and not read since, and takes its chunk.
    fn evict(&self, class: usize, visit: &RequestContext) -> Result<Option<Chunk>, Congested> {
        let mut lru = self.lock_within_budget(&self.lrus[class])?;
        let mut next = lru.tail();
        let mut chances = 0;
        for _ in 0..SCAN_MAX {
            let Some(chunk) = next else { break };
            next = lru.before(&self.memory, chunk);
            // The hash of what is in the list doesn't change. Only tried: its owner may be waiting for this list.
            let Some(mut stripe) = self.stripe(self.item(chunk).hash()).try_lock() else { continue };
            let item = self.item(chunk);
            let is_dead = self.miss_reason(item, visit.now).is_some();
            if !is_dead && item.marks() & mark::ACTIVE != 0 && chances < SECOND_CHANCES {
                chances += 1;
                item.set_marks(item.marks() & !mark::ACTIVE);
                lru.remove(&self.memory, chunk);
                lru.push(&self.memory, chunk);
                // A list of active items only: what was sent back first is at the tail again.
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

    /// Empties a page of the class that has the most and gives it to `class`, which has nothing to evict. Rare, and it
    /// stalls the request that needs it: memcached has a thread for this, we do it where it is needed.
    fn move_page_to(&self, class: usize) -> bool {
        let Some(_moving) = self.moving.try_lock() else {
            // Another request makes room. Whether it is enough shows when it is done.
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
        // What was not taken out is being written, or locked by this very request; or its owner has given it back meanwhile.
        let moved = self.slabs.lock().reassign(&self.memory, from, page, class);
        if moved {
            self.stats.count(Counter::SlabsMoved);
        }
        moved
    }

    /// Evicts the item in `chunk`, if there is one and it is unused.
    fn take_out(&self, chunk: Chunk) -> bool {
        // Whether it is an item at all shows only in the table: this hash may be one that is just being written.
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
