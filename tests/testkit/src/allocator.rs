//! An allocator that counts. A test program declares it and reads the counts:
//!
//! ```
//! use leeward_testkit::allocator::{CountingAllocator, allocations_in};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! assert_eq!(allocations_in(|| drop(std::hint::black_box(Box::new(1)))), 1);
//! ```
//!
//! A global allocator belongs to a whole program, so such tests have a separate program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

static BYTES: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with counters for each thread's calls and the program's bytes.
#[derive(Clone, Copy, Debug)]
pub struct CountingAllocator;

/// Returns the number of this thread's allocations and reallocations so far.
pub fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// Returns the number of this thread's allocations and reallocations in `act`.
pub fn allocations_in(act: impl FnOnce()) -> u64 {
    let before = allocations();
    act();
    allocations() - before
}

/// Returns the most bytes that were allocated at once since [`reset_peak_bytes`].
pub fn peak_bytes() -> usize {
    MOST.load(Ordering::Relaxed)
}

/// Resets [`peak_bytes`] to the currently allocated bytes.
pub fn reset_peak_bytes() {
    MOST.store(BYTES.load(Ordering::Relaxed), Ordering::Relaxed);
}

fn called() {
    ALLOCATIONS.with(|count| count.set(count.get() + 1));
}

fn grown(bytes: usize) {
    let now = BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call goes unchanged to `System`, which keeps `GlobalAlloc`'s contract. Counting
// allocates nothing: the thread-local is const-initialised and needs no destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        called();
        grown(layout.size());
        // SAFETY: the caller's guarantees for `layout` are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller guarantees that `block` came from `System` with this `layout`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        called();
        // During the move both blocks exist.
        grown(size);
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller guarantees that `block` came from `System` with this `layout`, and
        // that `size` is valid.
        unsafe { System.realloc(block, layout, size) }
    }
}
