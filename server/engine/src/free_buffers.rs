//! Free buffers: one request's memory is reused by the next.

/// Maximum buffers kept per core.
const COUNT: usize = 1024;
/// A buffer that has grown beyond this is freed, bytes.
pub(crate) const LARGEST: usize = 16 * 1024;

/// Free buffers of a core, all empty.
#[derive(Debug, Default)]
pub struct FreeBuffers(Vec<Vec<u8>>);

impl FreeBuffers {
    /// Takes an empty buffer.
    pub fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    /// Keeps a buffer for the next request, if it has capacity and is not too large.
    pub fn keep(&mut self, mut buffer: Vec<u8>) {
        if self.0.len() < COUNT && (1..=LARGEST).contains(&buffer.capacity()) {
            buffer.clear();
            self.0.push(buffer);
        }
    }
}
