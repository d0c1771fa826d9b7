//! The allocator: the pages of each class, and the free chunks.
//!
//! As in memcached, one lock covers all of it; under it a page's memory is allocated and cleared.

use super::item::Item;
use super::memory::{Chunk, Memory};
use std::cmp::Reverse;

/// State under the allocator's lock.
///
/// No operation takes longer with more chunks: each page lists its own free chunks, and chunks that
/// were never used are only counted.
pub(super) struct Slabs {
    classes: Vec<Class>,
    /// State of each page that was ever in use.
    page_states: Vec<PageState>,
    /// Pages without a class; the last one is handed out first.
    free_pages: Vec<u32>,
    /// Pages in use.
    pages: usize,
}

#[derive(Clone)]
struct Class {
    /// Bytes per chunk.
    size: usize,
    /// Pages with free chunks, except a page that is being emptied.
    open: Vec<u32>,
    free: usize,
    used: usize,
    pages: Vec<u32>,
}

/// A page's free chunks.
#[derive(Clone, Copy)]
struct PageState {
    /// Most recently freed chunk; each links to the next.
    freed: Chunk,
    /// Index of the first chunk that the page's class never used.
    fresh: usize,
    free: usize,
    /// The page is being emptied: its chunks are not handed out.
    closed: bool,
}

/// Use of a class, from the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassUsage {
    /// Bytes per chunk.
    pub chunk: usize,
    /// Pages of the class.
    pub pages: usize,
    /// Chunks that hold an item, or are about to, or were just unlinked.
    pub used: usize,
    /// Free chunks.
    pub free: usize,
}

impl Slabs {
    pub(super) fn new(pages: usize, chunk_sizes: &[usize]) -> Self {
        let class = |size: &usize| Class { size: *size, open: Vec::new(), free: 0, used: 0, pages: Vec::new() };
        Slabs {
            classes: chunk_sizes.iter().map(class).collect(),
            page_states: Vec::new(),
            free_pages: (0..pages as u32).rev().collect(),
            pages: 0,
        }
    }

    /// Allocates a chunk of `class`: a free one, or one of a new page; `None` if there is neither.
    pub(super) fn allocate(&mut self, memory: &Memory, class: usize) -> Option<Chunk> {
        if self.classes[class].open.is_empty() {
            let page = self.free_pages.pop()?;
            self.give_page(memory, class, page);
        }
        let class = &mut self.classes[class];
        let page = *class.open.last()? as usize;
        let page_state = &mut self.page_states[page];
        let chunk = match page_state.freed.some() {
            Some(chunk) => {
                page_state.freed = Item::new(memory, chunk).links().1;
                chunk
            }
            None => {
                page_state.fresh += 1;
                Chunk::new(page, page_state.fresh - 1)
            }
        };
        page_state.free -= 1;
        if page_state.free == 0 {
            class.open.pop();
        }
        class.free -= 1;
        class.used += 1;
        Some(chunk)
    }

    /// Frees a chunk.
    pub(super) fn free(&mut self, memory: &Memory, chunk: Chunk) {
        let class = &mut self.classes[memory.class(chunk)];
        let page_state = &mut self.page_states[chunk.page()];
        Item::new(memory, chunk).set_links(Chunk::NONE, page_state.freed);
        page_state.freed = chunk;
        page_state.free += 1;
        if page_state.free == 1 && !page_state.closed {
            class.open.push(chunk.page() as u32);
        }
        class.free += 1;
        class.used -= 1;
    }

    fn give_page(&mut self, memory: &Memory, class: usize, page: u32) {
        let count = memory.open(page as usize, class);
        let page_state = PageState { freed: Chunk::NONE, fresh: 0, free: count, closed: false };
        if self.page_states.len() <= page as usize {
            self.page_states.resize(page as usize + 1, PageState { free: 0, ..page_state });
        }
        self.page_states[page as usize] = page_state;
        let class = &mut self.classes[class];
        class.pages.push(page);
        class.open.push(page);
        class.free += count;
        self.pages += 1;
    }

    /// Returns the class to take a page from: the one with most pages; among equals the one that
    /// uses fewest bytes.
    pub(super) fn donor_class(&self, except: usize) -> Option<usize> {
        let has_page = |index: &usize| *index != except && !self.classes[*index].pages.is_empty();
        let wealth = |index: &usize| {
            let class = &self.classes[*index];
            (class.pages.len(), Reverse(class.used * class.size))
        };
        (0..self.classes.len()).filter(has_page).max_by_key(wealth)
    }

    /// Returns the page of `class` that is emptied first: its oldest.
    pub(super) fn oldest_page(&self, class: usize) -> Option<u32> {
        self.classes[class].pages.first().copied()
    }

    /// Closes `page`, so that its free chunks are not handed out, and returns the number of used
    /// chunks.
    ///
    /// Chunks that are freed later stay closed, too.
    pub(super) fn close(&mut self, class: usize, page: u32) -> usize {
        self.classes[class].open.retain(|other| *other != page);
        let all = self.chunks_per_page(class);
        let page_state = &mut self.page_states[page as usize];
        page_state.closed = true;
        all - page_state.free
    }

    /// Moves the closed `page` to class `to` if all its chunks are free; otherwise reopens it for
    /// its class.
    pub(super) fn reassign(&mut self, memory: &Memory, class: usize, page: u32, to: usize) -> bool {
        let all = self.chunks_per_page(class);
        let page_state = &mut self.page_states[page as usize];
        page_state.closed = false;
        let from = &mut self.classes[class];
        if page_state.free < all {
            if page_state.free > 0 {
                from.open.push(page);
            }
            return false;
        }
        from.free -= all;
        from.pages.retain(|other| *other != page);
        self.pages -= 1;
        self.give_page(memory, to, page);
        true
    }

    pub(super) fn chunks_per_page(&self, class: usize) -> usize {
        super::config::PAGE / self.classes[class].size
    }

    pub(super) fn usage(&self) -> Vec<ClassUsage> {
        let usage = |class: &Class| ClassUsage {
            chunk: class.size,
            pages: class.pages.len(),
            used: class.used,
            free: class.free,
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
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn chunks_are_handed_out_once_up_to_the_last_page() {
        let sizes = [1 << 17, PAGE];
        let (memory, mut slabs) = (Memory::new(2, &sizes), Slabs::new(2, &sizes));
        let taken: Vec<Chunk> = std::iter::from_fn(|| slabs.allocate(&memory, 0)).collect();
        assert_eq!(taken.iter().map(|chunk| chunk.0).collect::<HashSet<_>>().len(), 16);
        assert_eq!(slabs.allocate(&memory, 1), None);
        assert_eq!(slabs.usage()[0], ClassUsage { chunk: 1 << 17, pages: 2, used: 16, free: 0 });
        slabs.free(&memory, taken[3]);
        assert_eq!(slabs.allocate(&memory, 0), Some(taken[3]));
    }

    #[test]
    fn a_page_moves_to_another_class_when_all_its_chunks_are_free() {
        let sizes = [1 << 17, PAGE];
        let (memory, mut slabs) = (Memory::new(2, &sizes), Slabs::new(2, &sizes));
        let taken: Vec<Chunk> = std::iter::from_fn(|| slabs.allocate(&memory, 0)).collect();
        let class = slabs.donor_class(1).unwrap();
        let page = slabs.oldest_page(class).unwrap();
        let (on_it, others): (Vec<Chunk>, Vec<Chunk>) =
            taken.into_iter().partition(|chunk| chunk.page() == page as usize);
        slabs.free(&memory, on_it[0]);
        assert_eq!(slabs.close(class, page), 7);
        on_it[1..7].iter().for_each(|chunk| slabs.free(&memory, *chunk));
        assert_eq!(slabs.allocate(&memory, 0), None, "what is free there is nobody's");
        assert!(!slabs.reassign(&memory, class, page, 1), "one is in use");
        assert_eq!(slabs.allocate(&memory, 0), Some(on_it[6]), "what is free there is its class's again");
        assert_eq!(slabs.close(class, page), 2);
        on_it[6..].iter().for_each(|chunk| slabs.free(&memory, *chunk));
        assert!(slabs.reassign(&memory, class, page, 1));
        assert_eq!(slabs.allocate(&memory, 1), Some(Chunk::new(page as usize, 0)));
        assert_eq!(slabs.allocate(&memory, 0), None);
        others.iter().for_each(|chunk| slabs.free(&memory, *chunk));
        let left: Vec<Chunk> = std::iter::from_fn(|| slabs.allocate(&memory, 0)).collect();
        assert!(left.len() == 8 && left.iter().all(|chunk| chunk.page() != page as usize));
        assert_eq!(slabs.pages(), 2);
    }

    proptest! {
        /// Compares with a model: every chunk is held or free, never both, and the counts agree.
        #[test]
        fn no_chunk_is_lost_or_handed_out_twice(steps in prop::collection::vec((0u8..6, any::<u16>()), 0..300)) {
            let sizes = [1 << 17, 1 << 18, PAGE];
            let (memory, mut slabs) = (Memory::new(4, &sizes), Slabs::new(4, &sizes));
            let mut held: Vec<Chunk> = Vec::new();
            let mut closed: Option<(usize, u32)> = None;
            for (step, number) in steps {
                let number = usize::from(number);
                match step {
                    0..=2 => if let Some(chunk) = slabs.allocate(&memory, number % 3) {
                        prop_assert_eq!(memory.class(chunk), number % 3);
                        prop_assert!(!held.contains(&chunk));
                        prop_assert!(closed.is_none_or(|(_, page)| page as usize != chunk.page()));
                        held.push(chunk);
                    },
                    3 if !held.is_empty() => slabs.free(&memory, held.swap_remove(number % held.len())),
                    4 if closed.is_none() => {
                        if let Some((class, page)) = slabs.donor_class(number % 3).and_then(|class| Some((class, slabs.oldest_page(class)?))) {
                            let in_use = slabs.close(class, page);
                            prop_assert_eq!(in_use, held.iter().filter(|chunk| chunk.page() == page as usize).count());
                            closed = Some((class, page));
                        }
                    }
                    5 => if let Some((class, page)) = closed.take() {
                        let is_empty = held.iter().all(|chunk| chunk.page() != page as usize);
                        prop_assert_eq!(slabs.reassign(&memory, class, page, number % 3), is_empty);
                    },
                    _ => {}
                }
                for (index, class) in slabs.usage().iter().enumerate() {
                    prop_assert_eq!(class.used, held.iter().filter(|chunk| memory.class(**chunk) == index).count());
                    prop_assert_eq!(class.used + class.free, class.pages * (PAGE / class.chunk));
                }
            }
        }
    }
}
