//! No allocation per frame: a counting allocator watches encoding into a buffer of one's own and decoding, once both
//! are warm.

#[path = "wire/support.rs"]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use leeward_wire::{Decoder, Encoder, PayloadLimit, Side};
use support::{examples, sender};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with each thread's calls counted.
struct Counting;

#[allow(unsafe_code, reason = "the allocator's interface is unsafe")]
// SAFETY: every call goes to `System` unchanged, which keeps `GlobalAlloc`'s contract. Counting allocates nothing: the
// thread-local is const-initialised and needs no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` with this `layout`, as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn nothing_is_allocated_per_frame() {
    let frames: Vec<_> = examples().into_iter().map(|(_, frame)| frame).collect();
    let encoder = Encoder::new(PayloadLimit::DEFAULT);
    for from in [Side::Client, Side::Server] {
        let mut decoder = Decoder::new(from, PayloadLimit::DEFAULT);
        let mut out = Vec::with_capacity(4096);
        let mut round = |chunk: usize| {
            out.clear();
            for frame in frames.iter().filter(|frame| sender(frame) == from) {
                encoder.append(frame, &mut out).unwrap();
            }
            for piece in out.chunks(chunk) {
                decoder.spare()[..piece.len()].copy_from_slice(piece);
                decoder.filled(piece.len());
                while let Some(frame) = decoder.next_frame().unwrap() {
                    black_box(frame);
                }
            }
        };
        round(1_000);
        let before = ALLOCATIONS.with(Cell::get);
        for chunk in 1..500 {
            round(chunk);
        }
        assert_eq!(ALLOCATIONS.with(Cell::get), before);
    }
    // The canary: the counter counts.
    let before = ALLOCATIONS.with(Cell::get);
    black_box(vec![1]);
    assert!(ALLOCATIONS.with(Cell::get) > before);
}
