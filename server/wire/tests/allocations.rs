//! No allocation per frame: a counting allocator observes decoding, and encoding into a reused
//! buffer, after a first round.

#[path = "wire/support.rs"]
mod support;

use std::hint::black_box;

use leeward_testkit::allocator::{CountingAllocator, allocations, allocations_in};
use leeward_wire::{Decoder, Encoder, PayloadLimit, Side, Version};
use support::{examples, sender};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn nothing_is_allocated_per_frame() {
    let frames: Vec<_> = examples().into_iter().map(|(_, frame)| frame).collect();
    let encoder = Encoder::new(PayloadLimit::DEFAULT).with_version(Version::NEWEST);
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
                decoder.advance(piece.len());
                while let Some(frame) = decoder.next_frame().unwrap() {
                    black_box(frame);
                }
            }
        };
        round(1_000);
        let before = allocations();
        for chunk in 1..500 {
            round(chunk);
        }
        assert_eq!(allocations(), before);
    }
    // The canary: the counter counts.
    assert_eq!(allocations_in(|| drop(black_box(vec![1]))), 1);
}
