//! An allocator that counts. A test program declares it and asks:
//!
//! ```
//! use leeward_testkit::allocator::{Counting, allocations_in};
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//!
//! assert_eq!(allocations_in(|| drop(std::hint::black_box(Box::new(1)))), 1);
//! ```
//!
//! A global allocator is the whole program's, so such tests have a program of their own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

static BYTES: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator with each thread's calls and the program's bytes counted.
#[derive(Clone, Copy, Debug)]
pub struct CountingAllocator;

/// Calls of the allocator by this thread so far: allocations and reallocations.
pub fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// Calls of the allocator by this thread in `act`.
pub fn allocations_in(act: impl FnOnce()) -> u64 {
    let before = allocations();
    act();
    allocations() - before
}

/// The most bytes that the program had allocated at once since [`forget_most_bytes`].
pub fn peak_bytes() -> usize {
    MOST.load(Ordering::Relaxed)
}

/// Makes [`most_bytes`] begin with what is allocated now.
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

// SAFETY: every call goes to `System` unchanged, which keeps `GlobalAlloc`'s contract. Counting allocates nothing: the
// thread-local is const-initialised and needs no destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        called();
        grown(layout.size());
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `block` came from `System` with this `layout`, as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        called();
        // While it moves, both are there.
        grown(size);
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `block` came from `System` with this `layout`, and the caller promises a valid `size`.
        unsafe { System.realloc(block, layout, size) }
    }
}
