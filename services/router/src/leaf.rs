//! A leaf: the key-value service's store under the router's arguments.

use crate::wire::{GET, Pair, SET, check};
use leeward_kv::service::Kv;
use leeward_rpc::server::{Handler, HandlerError, Request};

/// A leaf of the router.
#[derive(Clone)]
pub struct RouterLeaf {
    kv: Kv,
}

impl RouterLeaf {
    /// Creates a leaf on the store of `kv`.
    pub fn new(kv: Kv) -> Self {
        RouterLeaf { kv }
    }
}

impl Handler for RouterLeaf {
    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
        match request.method {
            GET => self.kv.get(check(request.payload)?, reply),
            SET => {
                let Pair { key, value } = Pair::read(request.payload)?;
                self.kv.set(key, value, reply)
            }
            _ => Err(HandlerError::UnknownMethod),
        }
    }
}
