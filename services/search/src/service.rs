//! The RPC handler: parses requests, queries the index, and writes answers.

use super::index::{AddError, Index};
use super::wire::{self, ADD, SEARCH, SIZE, VOCABULARY};
use leeward_rpc::server::{AsyncHandler, HandlerError, OwnedRequest};
use std::sync::Arc;

/// The search service.
#[derive(Clone)]
pub struct Search {
    index: Arc<Index>,
}

impl Search {
    /// Serves this index.
    pub fn new(index: Arc<Index>) -> Self {
        Search { index }
    }
}

impl AsyncHandler for Search {
    async fn call(&self, request: OwnedRequest) -> Result<Vec<u8>, HandlerError> {
        let OwnedRequest { method, payload, .. } = request;
        let mut reply = Vec::new();
        match method {
            SEARCH => {
                let query = wire::read_query(&payload).map_err(because)?;
                let found = self.index.search(&query).await?;
                wire::write_result(&found, &mut reply);
            }
            VOCABULARY => {
                let rank = wire::read_rank(&payload).map_err(because)?;
                wire::write_page(self.index.vocabulary(), self.index.initial_documents(), rank, &mut reply);
            }
            ADD => {
                let document = wire::read_document(&payload).map_err(because)?;
                let number = self.index.add(&document).await.map_err(|error| match error {
                    AddError::Refused(congested) => HandlerError::Congested(congested),
                    error => because(error),
                })?;
                reply.extend_from_slice(&number.to_le_bytes());
            }
            SIZE => wire::write_size(&self.index.size(), &mut reply),
            _ => return Err(HandlerError::UnknownMethod),
        }
        Ok(reply)
    }
}

fn because(error: impl std::fmt::Display) -> HandlerError {
    HandlerError::Message(error.to_string())
}
