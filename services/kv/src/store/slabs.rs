//! The allocator: which pages belong to which class, and which chunks are free. All of it is under one lock, as in
//! memcached, and a page's memory is taken from the system and cleared under it.

use super::item::Item;
use super::memory::{Chunk, Memory};
use std::cmp::Reverse;

/// Under the allocator's lock.
pub(super) struct Slabs {
    classes: Vec<Class>,
    /// Pages that no class has: handed out from the last.
    free_pages: Vec<u32>,
    /// Pages in use.
    pages: usize,
}

#[derive(Clone)]
struct Class {
    /// Bytes per chunk.
    size: usize,
    /// The first free chunk; each leads to the next.
    free: Chunk,
    free_count: usize,
    used: usize,
    pages: Vec<u32>,
}

/// What the allocator knows of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassUse {
    /// Bytes per chunk.
    pub chunk: usize,
    /// Pages that it has.
    pub pages: usize,
    /// Chunks that hold an item, or are on their way to or from being one.
    pub used: usize,
    /// Chunks that are free.
    pub free: usize,
}

impl Slabs {
    pub(super) fn new(pages: usize, chunk_sizes: &[usize]) -> Self {
        let class = |size: &usize| Class { size: *size, free: Chunk::NONE, free_count: 0, used: 0, pages: Vec::new() };
        Slabs {
            classes: chunk_sizes.iter().map(class).collect(),
            free_pages: (0..pages as u32).rev().collect(),
            pages: 0,
        }
    }

    /// A chunk of `class`: a free one, or one of a new page; `None` if there is neither.
    pub(super) fn take(&mut self, memory: &Memory, class: usize) -> Option<Chunk> {
        if self.classes[class].free == Chunk::NONE {
            let page = self.free_pages.pop()?;
            self.give_page(memory, class, page);
        }
        let class = &mut self.classes[class];
        let chunk = class.free;
        class.free = Item::of(memory, chunk).links().1;
        class.free_count -= 1;
        class.used += 1;
        Some(chunk)
    }

    /// Gives a chunk back.
    pub(super) fn give(&mut self, memory: &Memory, chunk: Chunk) {
        let class = &mut self.classes[memory.class(chunk)];
        Item::of(memory, chunk).set_links(Chunk::NONE, class.free);
        class.free = chunk;
        class.free_count += 1;
        class.used -= 1;
    }

    fn give_page(&mut self, memory: &Memory, class: usize, page: u32) {
        let count = memory.open(page as usize, class);
        let class = &mut self.classes[class];
        class.pages.push(page);
        self.pages += 1;
        for index in (0..count).rev() {
            let chunk = Chunk::new(page as usize, index);
            Item::of(memory, chunk).set_links(Chunk::NONE, class.free);
            class.free = chunk;
        }
        class.free_count += count;
    }

    /// The class from which a page would be missed least: the one with the most; of several the one that has least in its.
    pub(super) fn richest(&self, except: usize) -> Option<usize> {
        let may_give = |index: &usize| *index != except && !self.classes[*index].pages.is_empty();
        let wealth = |index: &usize| {
            let class = &self.classes[*index];
            (class.pages.len(), Reverse(class.used * class.size))
        };
        (0..self.classes.len()).filter(may_give).max_by_key(wealth)
    }

    /// A page of `class` to be emptied: the one it has had the longest.
    pub(super) fn oldest_page(&self, class: usize) -> Option<u32> {
        self.classes[class].pages.first().copied()
    }

    /// Takes the free chunks of `page` out of the class's list, so that nobody gets them meanwhile. They count as used.
    pub(super) fn withdraw(&mut self, memory: &Memory, class: usize, page: u32) -> Vec<Chunk> {
        let class = &mut self.classes[class];
        let (mut kept, mut withdrawn) = (Chunk::NONE, Vec::new());
        let mut next = class.free;
        class.free_count = 0;
        while let Some(chunk) = next.some() {
            let item = Item::of(memory, chunk);
            next = item.links().1;
            if chunk.page() == page as usize {
                withdrawn.push(chunk);
            } else {
                item.set_links(Chunk::NONE, kept);
                kept = chunk;
                class.free_count += 1;
            }
        }
        class.free = kept;
        class.used += withdrawn.len();
        withdrawn
    }

    /// Takes a page away from `class`, all of whose chunks the caller has, and makes it one of `to`.
    pub(super) fn reassign(&mut self, memory: &Memory, class: usize, page: u32, chunks: usize, to: usize) {
        let from = &mut self.classes[class];
        from.used -= chunks;
        from.pages.retain(|other| *other != page);
        self.pages -= 1;
        self.give_page(memory, to, page);
    }

    pub(super) fn chunks_per_page(&self, class: usize) -> usize {
        super::config::PAGE / self.classes[class].size
    }

    pub(super) fn usage(&self) -> Vec<ClassUse> {
        let usage = |class: &Class| ClassUse {
            chunk: class.size,
            pages: class.pages.len(),
            used: class.used,
            free: class.free_count,
        };
        self.classes.iter().map(usage).collect()
    }

    pub(super) fn pages(&self) -> usize {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::PAGE;
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn chunks_are_handed_out_once_up_to_the_last_page() {
        let sizes = [1 << 17, PAGE];
        let (memory, mut slabs) = (Memory::new(2, &sizes), Slabs::new(2, &sizes));
        let taken: Vec<Chunk> = std::iter::from_fn(|| slabs.take(&memory, 0)).collect();
        assert_eq!(taken.iter().map(|chunk| chunk.0).collect::<HashSet<_>>().len(), 16);
        assert_eq!(slabs.take(&memory, 1), None);
        assert_eq!(slabs.usage()[0], ClassUse { chunk: 1 << 17, pages: 2, used: 16, free: 0 });
        slabs.give(&memory, taken[3]);
        assert_eq!(slabs.take(&memory, 0), Some(taken[3]));
    }

    #[test]
    fn a_page_changes_hands_when_all_its_chunks_are_there() {
        let sizes = [1 << 17, PAGE];
        let (memory, mut slabs) = (Memory::new(2, &sizes), Slabs::new(2, &sizes));
        let taken: Vec<Chunk> = std::iter::from_fn(|| slabs.take(&memory, 0)).collect();
        taken.iter().for_each(|chunk| slabs.give(&memory, *chunk));
        let class = slabs.richest(1).unwrap();
        let page = slabs.oldest_page(class).unwrap();
        let withdrawn = slabs.withdraw(&memory, class, page);
        assert_eq!(withdrawn.len(), slabs.chunks_per_page(class));
        slabs.reassign(&memory, class, page, withdrawn.len(), 1);
        assert_eq!(slabs.take(&memory, 1), Some(Chunk::new(page as usize, 0)));
        let left: Vec<Chunk> = std::iter::from_fn(|| slabs.take(&memory, 0)).collect();
        assert!(left.len() == 8 && left.iter().all(|chunk| chunk.page() != page as usize));
        assert_eq!(slabs.pages(), 2);
    }
}
