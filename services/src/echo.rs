//! Sends the argument back: what the server itself costs.

use leeward_rpc::server::{Failed, Handler, Request};

/// The echo service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Handler for Echo {
    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), Failed> {
        reply.extend_from_slice(request.payload);
        Ok(())
    }
}
