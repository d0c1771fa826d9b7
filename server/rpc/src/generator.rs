//! Generators of request arguments, for services whose requests are more than a service time.

use crate::wire::Method;
use std::fmt::Debug;

/// Generates requests from random bits.
///
/// The same bits give the same request, so one seed determines all requests of a run.
pub trait RequestGenerator: Debug + Send + Sync {
    /// Writes a request's payload to `payload`, which is empty, and returns the method to call.
    ///
    /// The caller runs this while requests are due, so it must be fast. `random` belongs to this
    /// request alone.
    fn generate(&self, random: u64, payload: &mut Vec<u8>) -> Method;

    /// Whether `answer` is correct for the request of `random`, which called `method`.
    ///
    /// A wrong answer counts as failed. The caller runs this for every answer on the clients' CPU,
    /// so it must be fast.
    fn is_answer(&self, random: u64, method: Method, answer: &[u8]) -> bool {
        let _ = (random, method, answer);
        true
    }
}
