//! Decoding on several threads: one thread reads, the others decode.
//!
//! Results return in the order of the file, and the number of blocks in flight is limited, so that
//! memory is bounded. Does not contain the format of a block, or the use of the results.

use std::collections::VecDeque;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Result, Scope, ScopedJoinHandle};

use super::block_decoder::BlockDecoder;
use super::decoded::{BlockLocation, DecodedBlock};
use crate::format::event::{Decoder, Sink};

/// Bytes per batch: enough to make the exchange cheap, and few enough to keep all threads busy.
const BATCH: usize = 1 << 18;
/// Limit of blocks per batch, for small or empty blocks.
const BLOCKS: usize = 1 << 10;
/// Batches in flight per thread; 2.5 MB with the longest blocks.
const IN_FLIGHT: usize = 2;

/// Consecutive blocks, and later their results.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Location of each block, and its end in `bytes`.
    blocks: Vec<(BlockLocation, usize)>,
    decoded: Vec<DecodedBlock>,
}

impl Batch {
    fn decode(&mut self, decoder: &mut Decoder, sink: &mut impl Sink) {
        let mut begin = 0;
        for (location, end) in self.blocks.drain(..) {
            self.decoded.push(DecodedBlock::decode(location, &self.bytes[begin..end], decoder, sink));
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
    /// The batch that is being filled.
    current: Batch,
    /// Batches in flight, the oldest first. Decoded ones wait for earlier ones.
    in_flight: VecDeque<Option<Batch>>,
    /// Number of the oldest batch in flight.
    oldest: u64,
    empty: Vec<Batch>,
}

impl<'scope, S: Sink + Send + 'scope> DecoderPool<'scope, S> {
    /// Starts up to `threads` threads, or as many as the system allows, each with a sink from
    /// `new`; `None` for no thread.
    pub(super) fn start(
        scope: &'scope Scope<'scope, '_>,
        threads: usize,
        decoder: &Decoder,
        new: impl Fn() -> S,
    ) -> Option<DecoderPool<'scope, S>> {
        let (work, jobs) = channel();
        let (results, done) = channel();
        let jobs = Arc::new(Mutex::new(jobs));
        let start = |_| {
            let (decoder, sink, jobs, results) = (decoder.clone(), new(), Arc::clone(&jobs), results.clone());
            Builder::new().spawn_scoped(scope, move || run_worker(decoder, sink, &jobs, &results)).ok()
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

    /// Ends the threads, and returns their sinks.
    pub(super) fn finish(self) -> Vec<S> {
        drop(self.work);
        let join = |thread: ScopedJoinHandle<'_, S>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        self.threads.into_iter().map(join).collect()
    }

    fn hand_over(&mut self) {
        let batch = mem::replace(&mut self.current, self.empty.pop().unwrap_or_default());
        let number = self.oldest + self.in_flight.len() as u64;
        self.in_flight.push_back(None);
        // The send fails if all threads have panicked; the next receive then gets the first panic.
        let _ = self.work.send((number, batch));
    }

    /// Waits for one batch; passes on results with no earlier batch in flight.
    fn wait(&mut self, each: &mut impl FnMut(DecodedBlock)) {
        let Ok((number, batch)) = self.done.recv() else { unreachable!("a thread lives until it has answered") };
        let batch = batch.unwrap_or_else(|panic| resume_unwind(panic));
        if let Some(slot) = self.in_flight.get_mut((number - self.oldest) as usize) {
            *slot = Some(batch);
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
    fn push(&mut self, location: BlockLocation, payload: &[u8], mut each: impl FnMut(DecodedBlock)) {
        self.current.bytes.extend_from_slice(payload);
        self.current.blocks.push((location, self.current.bytes.len()));
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
    jobs: &Mutex<Receiver<(u64, Batch)>>,
    results: &Sender<(u64, Result<Batch>)>,
) -> S {
    loop {
        // One thread waits for work; the others wait for the lock.
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, mut batch)) = next else { return sink };
        let decoded = catch_unwind(AssertUnwindSafe(|| {
            batch.decode(&mut decoder, &mut sink);
            batch
        }));
        // The receiver is gone: the thread ends.
        if results.send((number, decoded)).is_err() {
            return sink;
        }
    }
}
