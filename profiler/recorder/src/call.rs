//! A call of a traced function: from its start to its end, by the run-time's coarse clock.

use std::marker::PhantomData;

use crate::runtime;

/// A running call; dropping it ends the call. The attribute creates it.
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
    /// Starts a call of the surrounding function.
    // Always inlined: the address must lie in the traced function, also without optimisation.
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
