//! Layout of an item in a chunk: six words of header, the key, the value.
//!
//! The comment at each word names the lock that covers it: two locks never share a word.

use super::memory::{self, Chunk, Memory};
use std::sync::atomic::{AtomicU64, Ordering};

const HEADER: usize = 6;

/// LRU neighbours: towards the head, towards the tail. Under the class's LRU lock.
///
/// In a free chunk: the next free one, under the allocator's lock.
const LINKS: usize = 0;
/// Next item in the bucket, marks, length of the key. Under the item lock, like all words that
/// follow.
const CHAIN: usize = 1;
const CAS: usize = 2;
/// Time of storing and time of the last read, in seconds since 1970.
const TIMES: usize = 3;
/// Length of the value and the client's flags.
const VALUE: usize = 4;
/// Expiry in seconds since 1970, and the hash of the key.
const EXPIRY: usize = 5;

/// Marks of an item.
pub(super) mod mark {
    /// Read since it was stored.
    pub(in super::super) const FETCHED: u16 = 1;
    /// Read since it was last considered for eviction.
    pub(in super::super) const ACTIVE: u16 = 2;
    /// Stale, but still served.
    pub(in super::super) const STALE: u16 = 4;
    /// One client was asked to renew the item.
    pub(in super::super) const TOKEN_SENT: u16 = 8;
    /// The client sent the key as base64.
    pub(in super::super) const KEY_BINARY: u16 = 16;
}

/// Returns the size of an item, in bytes.
pub(super) fn size(key: usize, value: usize) -> usize {
    8 * HEADER + key.next_multiple_of(8) + value.next_multiple_of(8)
}

/// Header of a new item.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) hash: u32,
    pub(super) client_flags: u32,
    pub(super) expires: u32,
    pub(super) stored: u32,
    pub(super) marks: u16,
}

/// An item, viewed through its chunk's words.
#[derive(Clone, Copy)]
pub(super) struct Item<'a>(&'a [AtomicU64]);

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn word(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

impl<'a> Item<'a> {
    pub(super) fn new(memory: &'a Memory, chunk: Chunk) -> Self {
        Item(memory.words(chunk))
    }

    fn get(self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
    }

    fn set(self, index: usize, word: u64) {
        self.0[index].store(word, Ordering::Relaxed);
    }

    /// Turns a chunk that no other thread knows into an item.
    pub(super) fn write(self, header: &Header, key: &[u8], value: &[u8]) {
        self.set(CHAIN, word(Chunk::NONE.0, u32::from(header.marks) << 16 | key.len() as u32));
        self.set(CAS, 0);
        self.set(TIMES, word(header.stored, header.stored));
        self.set(VALUE, word(value.len() as u32, header.client_flags));
        self.set(EXPIRY, word(header.expires, header.hash));
        memory::write(&self.0[HEADER..], key);
        memory::write(self.value_words(), value);
    }

    // ---- under the LRU lock ----

    pub(super) fn links(self) -> (Chunk, Chunk) {
        let (towards_head, towards_tail) = halves(self.get(LINKS));
        (Chunk(towards_head), Chunk(towards_tail))
    }

    pub(super) fn set_links(self, towards_head: Chunk, towards_tail: Chunk) {
        self.set(LINKS, word(towards_head.0, towards_tail.0));
    }

    // ---- never changed while the item is linked ----

    pub(super) fn hash(self) -> u32 {
        halves(self.get(EXPIRY)).1
    }

    pub(super) fn key_len(self) -> usize {
        (self.get(CHAIN) >> 32 & 0xFF) as usize
    }

    pub(super) fn has_key(self, key: &[u8]) -> bool {
        self.key_len() == key.len() && memory::equal(&self.0[HEADER..], key)
    }

    pub(super) fn client_flags(self) -> u32 {
        halves(self.get(VALUE)).1
    }

    pub(super) fn value_len(self) -> usize {
        halves(self.get(VALUE)).0 as usize
    }

    pub(super) fn stored(self) -> u32 {
        halves(self.get(TIMES)).0
    }

    fn value_words(self) -> &'a [AtomicU64] {
        &self.0[HEADER + self.key_len().div_ceil(8)..]
    }

    // ---- under the item lock ----

    pub(super) fn next(self) -> Chunk {
        Chunk(halves(self.get(CHAIN)).0)
    }

    pub(super) fn set_next(self, next: Chunk) {
        self.set(CHAIN, word(next.0, halves(self.get(CHAIN)).1));
    }

    pub(super) fn marks(self) -> u16 {
        (self.get(CHAIN) >> 48) as u16
    }

    pub(super) fn set_marks(self, marks: u16) {
        self.set(CHAIN, self.get(CHAIN) & 0xFFFF_FFFF_FFFF | u64::from(marks) << 48);
    }

    pub(super) fn cas(self) -> u64 {
        self.get(CAS)
    }

    pub(super) fn set_cas(self, cas: u64) {
        self.set(CAS, cas);
    }

    pub(super) fn accessed(self) -> u32 {
        halves(self.get(TIMES)).1
    }

    pub(super) fn set_accessed(self, now: u32) {
        self.set(TIMES, word(halves(self.get(TIMES)).0, now));
    }

    pub(super) fn set_stored(self, now: u32) {
        self.set(TIMES, word(now, halves(self.get(TIMES)).1));
    }

    pub(super) fn expires(self) -> u32 {
        halves(self.get(EXPIRY)).0
    }

    pub(super) fn set_expires(self, at: u32) {
        self.set(EXPIRY, word(at, halves(self.get(EXPIRY)).1));
    }

    pub(super) fn read_value(self, into: &mut Vec<u8>) {
        memory::read(self.value_words(), self.value_len(), into);
    }

    /// Appends up to `most` first bytes of the value.
    pub(super) fn read_start(self, most: usize, into: &mut Vec<u8>) {
        memory::read(self.value_words(), self.value_len().min(most), into);
    }

    /// Replaces the value by one of the same length.
    pub(super) fn overwrite_value(self, value: &[u8]) {
        debug_assert_eq!(value.len(), self.value_len());
        memory::write(self.value_words(), value);
    }
}
