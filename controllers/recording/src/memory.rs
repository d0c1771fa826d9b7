//! A recording in memory: for tests, and for plants that have no disk.

use super::block::Block;
use super::recorder::{Recorder, Sink, SinkFull};
use leeward_core::sync::{Arc, Mutex};

/// Keeps a recording in memory, up to a bound. Clones share it.
#[derive(Clone, Debug)]
pub struct MemorySink {
    bytes: Arc<Mutex<Vec<u8>>>,
    capacity: usize,
}

impl MemorySink {
    /// Room for `most` bytes; then the recording ends as incomplete.
    pub fn new(most: usize) -> Self {
        MemorySink { bytes: Arc::new(Mutex::new(Vec::new())), capacity: most }
    }

    /// Ends the recording; all its bytes.
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
