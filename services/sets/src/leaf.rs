//! A leaf: intersects the lists of its share of the documents.

use crate::postings::Postings;
use crate::wire::{ALL, append_result, read_words};
use leeward_rpc::server::{Handler, HandlerError, Request};
use std::cell::RefCell;
use std::sync::Arc;

/// A leaf.
#[derive(Clone, Debug)]
pub struct SetsLeaf {
    postings: Arc<Postings>,
}

thread_local! {
    /// Matching documents, in memory that the thread's next request reuses.
    static FOUND: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

impl SetsLeaf {
    /// Creates a leaf with these lists.
    pub fn new(postings: Postings) -> Self {
        SetsLeaf { postings: Arc::new(postings) }
    }
}

impl Handler for SetsLeaf {
    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
        if request.method != ALL {
            return Err(HandlerError::UnknownMethod);
        }
        let words = read_words(request.payload)?;
        FOUND.with_borrow_mut(|found| {
            self.postings.with_all(words, found);
            // Documents have 32-bit numbers.
            append_result(found.len() as u32, found, reply);
        });
        Ok(())
    }
}
