//! A recording in memory: for tests, and for plants without a disk.

use super::block::Block;
use super::recorder::{Recorder, Sink, SinkFull};
use leeward_core::sync::{Arc, Mutex};

/// Sink that keeps a recording in memory, up to a limit. Clones share it.
#[derive(Clone, Debug)]
pub struct MemorySink {
    bytes: Arc<Mutex<Vec<u8>>>,
    capacity: usize,
}

impl MemorySink {
    /// Creates a sink for `max_bytes` bytes; beyond them the recording ends as incomplete.
    pub fn new(max_bytes: usize) -> Self {
        MemorySink { bytes: Arc::new(Mutex::new(Vec::new())), capacity: max_bytes }
    }

    /// Ends the recording; returns all its bytes.
    pub fn finish(&self, recorder: &Recorder) -> Vec<u8> {
        let finished = recorder.finish();
        let mut bytes = self.bytes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for block in finished.blocks {
            append(&mut bytes, &block);
        }
        std::mem::take(&mut bytes)
    }
}

fn append(bytes: &mut Vec<u8>, block: &Block) {
    bytes.extend_from_slice(&block.prefix());
    bytes.extend_from_slice(block.payload());
}

impl Sink for MemorySink {
    fn take(&mut self, block: Block) -> Result<Vec<u8>, SinkFull> {
        let mut bytes = self.bytes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if bytes.len() + block.payload().len() > self.capacity {
            return Err(SinkFull);
        }
        append(&mut bytes, &block);
        Ok(block.into_buffer())
    }
}
