//! A call of a traced function: from its beginning to its end, by the run-time's coarse clock.

use std::marker::PhantomData;

use crate::runtime;

/// A call that goes on; it ends when this is dropped. The attribute makes it.
#[derive(Debug)]
#[must_use = "the call ends when this is dropped"]
pub struct Call {
    start: u64,
    /// An address in the traced function.
    address: usize,
    /// Keeps the call in the thread in which it began.
    _thread: PhantomData<*const ()>,
}

impl Call {
    /// The function that this stands in begins.
    // Always: the address must be one in the function that is traced, also without optimisation.
    #[inline(always)]
    pub fn enter() -> Call {
        Call { start: runtime::now(), address: runtime::code_address(), _thread: PhantomData }
    }
}

impl Drop for Call {
    #[inline(always)]
    fn drop(&mut self) {
        let end = runtime::now();
        if end != self.start {
            runtime::call(self.start, end, self.address);
        }
    }
}
