//! Requests on which a thread works.

use std::marker::PhantomData;

use crate::runtime;

/// Starts work of this thread on request `id`; dropping the returned guard ends the request.
///
/// A thread may work on several requests at a time, and several threads on one: then the first
/// dropped guard ends the request. The program chooses the ids; after a request's end its id may be
/// reused.
pub fn request(id: u64) -> Request {
    runtime::request_start(id);
    Request { id, _thread: PhantomData }
}

/// A request on which this thread works.
#[derive(Debug)]
#[must_use = "the request is over when this is dropped"]
pub struct Request {
    id: u64,
    /// Keeps the request in the thread that works on it.
    _thread: PhantomData<*const ()>,
}

impl Request {
    /// Returns the request's id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Sets the request's kind: a command's name, a route. `leeward profile tail --by label`
    /// compares requests with the same label.
    ///
    /// A label is cut to 63 bytes, and a program has up to a thousand different labels.
    pub fn label(&self, label: &str) {
        runtime::request_label(self.id, label);
    }

    /// Puts the request into a queue, from which another thread continues it. The queue's address
    /// identifies the queue.
    pub fn into_queue<Q: ?Sized>(self, queue: &Q) -> Queued {
        let id = self.id;
        // The request has not ended.
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

/// A request in a queue. Dropping it ends the request.
#[derive(Debug)]
#[must_use = "the request is over when this is dropped"]
pub struct Queued {
    id: u64,
    queue: usize,
}

impl Queued {
    /// Returns the request's id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Takes the request out of the queue and continues it on this thread.
    pub fn resume(self) -> Request {
        let (id, queue) = (self.id, self.queue);
        std::mem::forget(self);
        runtime::request_resume(id, queue);
        Request { id, _thread: PhantomData }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        runtime::request_end(self.id);
    }
}
