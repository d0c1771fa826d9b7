//! Arguments of requests, for services whose requests are more than a service time.

use crate::wire::Method;
use std::fmt::Debug;

/// Makes requests out of random bits: the same bits, the same request, so that a seed draws all of a run's.
pub trait RequestGenerator: Debug + Send + Sync {
    /// Writes a request's payload to `payload`, which is empty, and returns the procedure to call. Called while
    /// requests are due: must be quick. `random` is the request's own; nothing else draws from it.
    fn generate(&self, random: u64, payload: &mut Vec<u8>) -> Method;

    /// Whether `answer` answers the request that `random` stands for, which called `method`. A wrong answer counts as failed.
    /// Told of every answer, on the clients' CPU: must be quick.
    fn is_answer(&self, random: u64, method: Method, answer: &[u8]) -> bool {
        let _ = (random, method, answer);
        true
    }
}
