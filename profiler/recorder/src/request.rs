//! Which request a thread works on.

use std::marker::PhantomData;

use crate::runtime;

/// This thread works on request `id` until the returned guard is dropped; then the request is over.
///
/// A thread may work on several requests at a time, and several threads on one: then the first guard that is dropped ends it.
/// What ids mean is the program's business; after its end an id may be used again.
pub fn request(id: u64) -> Request {
    runtime::request_start(id, 0);
    Request { id, _thread: PhantomData }
}

/// A request that this thread works on.
#[derive(Debug)]
#[must_use = "the request is over when this is dropped"]
pub struct Request {
    id: u64,
    /// Keeps the request in the thread that works on it.
    _thread: PhantomData<*const ()>,
}

impl Request {
    /// Its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Says of what kind the request is: a command's name, a route. 63 bytes of it count, and a program has up to a thousand different ones.
    /// `leeward profile tail --by label` compares requests with the same label.
    pub fn label(&self, label: &str) {
        runtime::request_label(self.id, label);
    }

    /// Puts the request into a queue, for another thread to go on with it. The queue's address tells queues apart.
    pub fn into_queue<Q: ?Sized>(self, queue: &Q) -> Queued {
        let id = self.id;
        // It isn't over.
        std::mem::forget(self);
        let queue = std::ptr::from_ref(queue).addr();
        runtime::request_block(id, queue);
        Queued { id, queue }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        runtime::request_end(self.id);
    }
}

/// A request in a queue. Dropped there, it is over.
#[derive(Debug)]
#[must_use = "the request is over when this is dropped"]
pub struct Queued {
    id: u64,
    queue: usize,
}

impl Queued {
    /// Its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// This thread takes it out of the queue and works on it.
    pub fn resume(self) -> Request {
        let (id, queue) = (self.id, self.queue);
        std::mem::forget(self);
        runtime::request_start(id, queue);
        Request { id, _thread: PhantomData }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        runtime::request_end(self.id);
    }
}
