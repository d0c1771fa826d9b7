//! Buffers that are used again: one request's memory is the next one's.

/// Buffers kept per core, at most.
const COUNT: usize = 1024;
/// A buffer that has grown beyond this is given back, bytes.
pub(crate) const LARGEST: usize = 16 * 1024;

/// Spare buffers of a core, all empty.
#[derive(Debug, Default)]
pub struct FreeBuffers(Vec<Vec<u8>>);

impl FreeBuffers {
    /// An empty buffer.
    pub fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    /// Keeps a buffer for the next request, if it is one and no giant.
    pub fn keep(&mut self, mut buffer: Vec<u8>) {
        if self.0.len() < COUNT && (1..=LARGEST).contains(&buffer.capacity()) {
            buffer.clear();
            self.0.push(buffer);
        }
    }
}
