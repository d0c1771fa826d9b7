//! Decoding on several threads: one reads, the others decode. Findings come back in the order of the file, and only so
//! many blocks are under way that memory stays bounded. Never here: the format of a block, and the use of findings.

use std::collections::VecDeque;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Result, Scope, ScopedJoinHandle};

use super::block_decoder::BlockDecoder;
use super::decoded::{BlockLocation, DecodedBlock};
use crate::format::event::{Decoder, Sink};

/// Bytes that are handed over together: enough that handing over costs nothing, and little enough that everybody has something to do.
const BATCH: usize = 1 << 18;
/// Blocks that are handed over together, should they be small or empty.
const BLOCKS: usize = 1 << 10;
/// Batches on their way per thread. With the longest blocks 2.5 MB.
const IN_FLIGHT: usize = 2;

/// Some blocks that follow each other, and later what is in them.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where each was, and where it ends in `bytes`.
    blocks: Vec<(BlockLocation, usize)>,
    decoded: Vec<DecodedBlock>,
}

impl Batch {
    fn decode(&mut self, decoder: &mut Decoder, sink: &mut impl Sink) {
        let mut begin = 0;
        for (place, end) in self.blocks.drain(..) {
            self.decoded.push(DecodedBlock::decode(place, &self.bytes[begin..end], decoder, sink));
            begin = end;
        }
        self.bytes.clear();
    }
}

/// Threads that decode blocks.
pub(super) struct DecoderPool<'scope, S> {
    work: Sender<(u64, Batch)>,
    done: Receiver<(u64, Result<Batch>)>,
    threads: Vec<ScopedJoinHandle<'scope, S>>,
    /// The next one to be handed over.
    current: Batch,
    /// Batches on their way, the oldest first. Decoded ones wait for the ones before them.
    in_flight: VecDeque<Option<Batch>>,
    /// The number of the oldest.
    oldest: u64,
    empty: Vec<Batch>,
}

impl<'scope, S: Sink + Send + 'scope> DecoderPool<'scope, S> {
    /// Starts so many threads, or as many as the system allows, each with a sink that `new` makes; `None` if it allows none.
    pub(super) fn start(
        scope: &'scope Scope<'scope, '_>,
        threads: usize,
        decoder: &Decoder,
        new: impl Fn() -> S,
    ) -> Option<DecoderPool<'scope, S>> {
        let (work, wanted) = channel();
        let (found, done) = channel();
        let wanted = Arc::new(Mutex::new(wanted));
        let start = |_| {
            let (decoder, sink, wanted, found) = (decoder.clone(), new(), Arc::clone(&wanted), found.clone());
            Builder::new().spawn_scoped(scope, move || run_worker(decoder, sink, &wanted, &found)).ok()
        };
        let threads: Vec<_> = (0..threads).map_while(start).collect();
        if threads.is_empty() {
            return None;
        }
        Some(DecoderPool {
            work,
            done,
            threads,
            current: Batch::default(),
            in_flight: VecDeque::new(),
            oldest: 0,
            empty: Vec::new(),
        })
    }

    /// Ends the threads; their sinks.
    pub(super) fn finish(self) -> Vec<S> {
        drop(self.work);
        let join = |thread: ScopedJoinHandle<'_, S>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        self.threads.into_iter().map(join).collect()
    }

    fn hand_over(&mut self) {
        let batch = mem::replace(&mut self.current, self.empty.pop().unwrap_or_default());
        let number = self.oldest + self.in_flight.len() as u64;
        self.in_flight.push_back(None);
        // Nobody takes it if all threads have panicked: the first to do so has said so, and is heard next.
        let _ = self.work.send((number, batch));
    }

    /// Waits for one batch; hands out what has nothing before it any more.
    fn wait(&mut self, each: &mut impl FnMut(DecodedBlock)) {
        let Ok((number, batch)) = self.done.recv() else { unreachable!("a thread lives until it has answered") };
        let batch = batch.unwrap_or_else(|panic| resume_unwind(panic));
        if let Some(place) = self.in_flight.get_mut((number - self.oldest) as usize) {
            *place = Some(batch);
        }
        while let Some(Some(batch)) = self.in_flight.front_mut() {
            let mut batch = mem::take(batch);
            batch.decoded.drain(..).for_each(&mut *each);
            self.empty.push(batch);
            self.in_flight.pop_front();
            self.oldest += 1;
        }
    }
}

impl<'scope, S: Sink + Send + 'scope> BlockDecoder for DecoderPool<'scope, S> {
    fn push(&mut self, place: BlockLocation, payload: &[u8], mut each: impl FnMut(DecodedBlock)) {
        self.current.bytes.extend_from_slice(payload);
        self.current.blocks.push((place, self.current.bytes.len()));
        if self.current.bytes.len() >= BATCH || self.current.blocks.len() >= BLOCKS {
            while self.in_flight.len() >= IN_FLIGHT * self.threads.len() {
                self.wait(&mut each);
            }
            self.hand_over();
        }
    }

    fn flush(&mut self, mut each: impl FnMut(DecodedBlock)) {
        if !self.current.blocks.is_empty() {
            self.hand_over();
        }
        while !self.in_flight.is_empty() {
            self.wait(&mut each);
        }
    }
}

/// Decodes until there is no more work; returns the thread's sink.
fn run_worker<S: Sink>(
    mut decoder: Decoder,
    mut sink: S,
    wanted: &Mutex<Receiver<(u64, Batch)>>,
    found: &Sender<(u64, Result<Batch>)>,
) -> S {
    loop {
        // One waits for work, the others for their turn to wait.
        let next = wanted.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, mut batch)) = next else { return sink };
        let decoded = catch_unwind(AssertUnwindSafe(|| {
            batch.decode(&mut decoder, &mut sink);
            batch
        }));
        // Whoever asked has gone: so does this.
        if found.send((number, decoded)).is_err() {
            return sink;
        }
    }
}
