//! Pages of words and the chunks in them.
//!
//! A word is an atomic with relaxed access. The locks decide which thread may use a chunk; the
//! atomics keep the rest defined without unsafe code.

use super::config::PAGE;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORDS: usize = PAGE / 8;
/// Bits of a chunk's number for its index in the page: enough for chunks of 64 bytes.
const INDEX_BITS: u32 = 14;

/// A chunk's number: its page and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk(pub(super) u32);

impl Chunk {
    /// Represents "none" in links.
    pub(super) const NONE: Chunk = Chunk(u32::MAX);

    pub(super) fn new(page: usize, index: usize) -> Self {
        Chunk((page as u32) << INDEX_BITS | index as u32)
    }

    pub(super) fn page(self) -> usize {
        (self.0 >> INDEX_BITS) as usize
    }

    fn index(self) -> usize {
        (self.0 & ((1 << INDEX_BITS) - 1)) as usize
    }

    pub(super) fn some(self) -> Option<Chunk> {
        (self != Chunk::NONE).then_some(self)
    }
}

/// All pages; unused pages take no memory.
pub(super) struct Memory {
    pages: Box<[Page]>,
    /// Words per chunk, by class.
    chunk_words: Box<[usize]>,
}

struct Page {
    words: OnceLock<Box<[AtomicU64]>>,
    class: AtomicU8,
}

impl Memory {
    pub(super) fn new(pages: usize, chunk_sizes: &[usize]) -> Self {
        let page = |_| Page { words: OnceLock::new(), class: AtomicU8::new(0) };
        Memory { pages: (0..pages).map(page).collect(), chunk_words: chunk_sizes.iter().map(|size| size / 8).collect() }
    }

    /// Assigns a page to `class` and returns its number of chunks.
    ///
    /// The first call allocates the page's memory.
    pub(super) fn open(&self, page: usize, class: usize) -> usize {
        let page_slot = &self.pages[page];
        page_slot.class.store(class as u8, Ordering::Relaxed);
        page_slot.words.get_or_init(|| (0..WORDS).map(|_| AtomicU64::new(0)).collect());
        WORDS / self.chunk_words[class]
    }

    /// Returns the class of a chunk's page.
    pub(super) fn class(&self, chunk: Chunk) -> usize {
        self.pages[chunk.page()].class.load(Ordering::Relaxed).into()
    }

    /// Returns a chunk's words.
    pub(super) fn words(&self, chunk: Chunk) -> &[AtomicU64] {
        let page = &self.pages[chunk.page()];
        let length = self.chunk_words[usize::from(page.class.load(Ordering::Relaxed))];
        let all = page.words.get().map_or(&[][..], |words| words);
        &all[chunk.index() * length..][..length]
    }
}

/// Writes `bytes` from the first word on, and fills the last word with zeros.
pub(super) fn write(words: &[AtomicU64], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<8>();
    for (word, bytes) in words.iter().zip(whole) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        words[whole.len()].store(u64::from_le_bytes(last), Ordering::Relaxed);
    }
}

/// Appends `length` bytes of words to `into`.
pub(super) fn read(words: &[AtomicU64], length: usize, into: &mut Vec<u8>) {
    let end = into.len() + length;
    into.reserve(length.next_multiple_of(8));
    for word in &words[..length.div_ceil(8)] {
        into.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    into.truncate(end);
}

/// Returns whether the words begin with `bytes`, as [`write`] leaves them.
pub(super) fn equal(words: &[AtomicU64], bytes: &[u8]) -> bool {
    let (whole, rest) = bytes.as_chunks::<8>();
    let is_same = |(word, bytes): (&AtomicU64, &[u8; 8])| word.load(Ordering::Relaxed) == u64::from_le_bytes(*bytes);
    if !words.iter().zip(whole).all(is_same) {
        return false;
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    rest.is_empty() || words[whole.len()].load(Ordering::Relaxed) == u64::from_le_bytes(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn written_words_are_read_back(bytes in prop::collection::vec(any::<u8>(), 0..90), other in any::<u8>()) {
            let memory = Memory::new(1, &[96, PAGE]);
            memory.open(0, 0);
            let words = memory.words(Chunk::new(0, 7));
            words.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
            write(words, &bytes);
            let mut read_back = vec![1];
            read(words, bytes.len(), &mut read_back);
            prop_assert_eq!(&read_back[1..], &bytes[..]);
            prop_assert!(equal(words, &bytes));
            if let Some(last) = bytes.last() {
                let mut changed = bytes.clone();
                *changed.last_mut().unwrap() = other;
                prop_assert_eq!(equal(words, &changed), *last == other);
            }
        }
    }

    #[test]
    fn chunks_of_a_page_do_not_overlap() {
        let memory = Memory::new(2, &[104, PAGE]);
        let count = memory.open(1, 0);
        for index in 0..count {
            memory.words(Chunk::new(1, index)).iter().for_each(|word| word.store(index as u64, Ordering::Relaxed));
        }
        for index in 0..count {
            let words = memory.words(Chunk::new(1, index));
            assert!(words.len() == 13 && words.iter().all(|word| word.load(Ordering::Relaxed) == index as u64));
        }
    }
}
