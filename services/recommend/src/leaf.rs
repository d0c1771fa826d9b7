//! A leaf: predicts from its share of the ratings.

use crate::neighbours::Model;
use crate::wire::{self, PREDICT, Query};
use leeward_rpc::server::{Handler, HandlerError, Request};
use std::sync::Arc;

/// Work of a leaf per request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Work {
    /// Only the work that depends on the request.
    #[default]
    Needed,
    /// As in the published service: also recomputes the users' embeddings.
    Published,
}

/// A leaf.
#[derive(Clone, Debug)]
pub struct RecommendLeaf {
    model: Arc<Model>,
    work: Work,
}

impl RecommendLeaf {
    /// Creates a leaf that predicts by `model`.
    pub fn new(model: Model, work: Work) -> Self {
        RecommendLeaf { model: Arc::new(model), work }
    }
}

impl Handler for RecommendLeaf {
    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
        if request.method != PREDICT {
            return Err(HandlerError::UnknownMethod);
        }
        let Query { user, item } = Query::read(request.payload)?;
        let prediction = match self.work {
            Work::Needed => self.model.predict(user, item),
            Work::Published => self.model.predict_uncached(user, item),
        };
        wire::append(prediction, reply);
        Ok(())
    }
}
