//! The store under Leeward's own protocol, with credits. `docs/kv.md` describes arguments and
//! results.

use crate::server::unix_seconds;
use crate::store::{KEY_MAX, RequestContext, Store, Write, WriteOutcome};
use leeward_rpc::server::{Handler, HandlerError, Request};
use leeward_rpc::wire::Method;
use std::sync::Arc;

/// `get`: the argument is a key. The result is one byte, 1 and then the value, or 0 for a missing
/// key.
pub const GET: Method = Method(0);
/// `set`: a byte with the key's length, the key, the value. The result is one byte, 1.
pub const SET: Method = Method(1);
/// `delete`: the argument is a key. The result is one byte: 1 if the key existed, otherwise 0.
pub const DELETE: Method = Method(2);
/// `get` of several keys: for each a byte with its length, and the key.
///
/// The result has for each key, in order: 1, the value's length in four bytes (little-endian) and
/// the value; or 0 for a missing key.
pub const GET_MANY: Method = Method(3);

/// The key-value service.
#[derive(Clone)]
pub struct Kv {
    store: Arc<Store>,
}

impl Kv {
    /// Creates the service on `store`; several services may share a store.
    pub fn new(store: Arc<Store>) -> Self {
        Kv { store }
    }

    /// Appends a byte, 1 and then the value of `key`, or 0 for a missing key.
    ///
    /// # Errors
    /// The request can't wait for a lock.
    pub fn get(&self, key: &[u8], reply: &mut Vec<u8>) -> Result<(), HandlerError> {
        let context = RequestContext::at(unix_seconds());
        Ok(self.store.read(key, &context, |found| match found {
            None => reply.push(0),
            Some(found) => {
                reply.push(1);
                found.append_value(reply);
                found.mark_fetched();
            }
        })?)
    }

    /// Stores `value`, and appends a byte, 1.
    ///
    /// # Errors
    /// No memory for the value, or the request can't wait for a lock.
    pub fn set(&self, key: &[u8], value: &[u8], reply: &mut Vec<u8>) -> Result<(), HandlerError> {
        match self.store.write(key, value, &Write::default(), &RequestContext::at(unix_seconds()))? {
            WriteOutcome::Stored { .. } => {
                reply.push(1);
                Ok(())
            }
            WriteOutcome::TooLarge => Err(HandlerError::Message("the value is too large".into())),
            _ => Err(HandlerError::Message("out of memory".into())),
        }
    }
}

impl Handler for Kv {
    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
        let context = RequestContext::at(unix_seconds());
        match request.method {
            GET => self.get(key(request.payload)?, reply),
            GET_MANY => {
                let mut rest = request.payload;
                while !rest.is_empty() {
                    let (key, after_key) = key_and_rest(rest)?;
                    rest = after_key;
                    self.store.read(key, &context, |found| match found {
                        None => reply.push(0),
                        Some(found) => {
                            reply.push(1);
                            // A value is shorter than a page.
                            reply.extend_from_slice(&(found.value_len() as u32).to_le_bytes());
                            found.append_value(reply);
                            found.mark_fetched();
                        }
                    })?;
                }
                Ok(())
            }
            SET => {
                let (key, value) = key_and_rest(request.payload)?;
                self.set(key, value, reply)
            }
            DELETE => {
                let there = self.store.delete(key(request.payload)?, &context)?;
                reply.push(there.into());
                Ok(())
            }
            _ => Err(HandlerError::UnknownMethod),
        }
    }
}

fn key(bytes: &[u8]) -> Result<&[u8], HandlerError> {
    if (1..=KEY_MAX).contains(&bytes.len()) {
        Ok(bytes)
    } else {
        Err(HandlerError::Message(format!("a key has 1 to {KEY_MAX} bytes, not {}", bytes.len())))
    }
}

/// Splits a payload into a key with a length byte before it, and the rest.
fn key_and_rest(payload: &[u8]) -> Result<(&[u8], &[u8]), HandlerError> {
    let too_short = || HandlerError::Message("expected a byte with the key's length, and the key".into());
    let (length, rest) = payload.split_first().ok_or_else(too_short)?;
    let (first, after_key) = rest.split_at_checked(usize::from(*length)).ok_or_else(too_short)?;
    Ok((key(first)?, after_key))
}
