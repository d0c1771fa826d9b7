//! Tiers: servers that answer by asking leaves, under any of the paper's threading models (µTune, OSDI'18), which may change while they serve.
//!
//! - [`MidTier`]: the service, one code for sync and async models. [`Leaves`]: whom it asks.
//! - [`Options`], [`Tier`], [`Switch`]: starting, stopping, changing the model. [`crate::server::Builder::start_tier`] starts one.
//! - `duties`: what the crew's threads do. `shard`, `link`: connections to the leaves. `gather`, `calls`, `replies`, `slab`, `pool`: a
//!   request on its way.
//! - `credits`: requests that wait for credits before they begin. `purses`: credits at the leaves. `governor`: a policy's senses, and when it is asked; [`Governed`]: how it is made. `meter`: CPU time.
//! - [`Fit`]: which leaves may be asked. `inquiry`: what they serve, asked before a tier starts.
//! - `on_cores`: the same service on today's server, the ninth model.
//!
//! Never here: which model fits the load (`leeward-core`), threads and how they switch (`leeward-runtime`), clients' sockets
//! (`leeward-engine`).

mod backend_credits;
mod calls;
mod credits;
mod gather;
mod governor;
mod leaf_connections;
mod leaves;
mod link;
mod meter;
mod on_cores;
mod policy_factory;
mod pool;
mod replies;
mod runtime;
mod server;
mod service;
mod shard;
mod slab;
mod source;
mod startup_check;
mod validation;

use crate::server::Builder;

/// Starts a tier with the model that its options name.
pub(crate) fn start<M: MidTier>(
    builder: Builder,
    address: &str,
    options: Options,
    service: M,
) -> Result<Tier, TierError> {
    let options = options.or_policy(builder.policy_factory.as_ref());
    startup_check::check(&options.leaves.0)?;
    match options.threading {
        ThreadingSetup::Setup(setup) => server::start(builder, address, options, setup, service),
        ThreadingSetup::Cores(cores) => on_cores::start(builder, address, options, cores, service),
    }
}

pub use backend_credits::LeafCounts;
pub use leaves::{LEAVES_MAX, Leaves, LeavesError, Links};
pub use leeward_runtime::thread_pool::ThreadCounts;
pub use leeward_threading::{Setup, ThreadingSetup};
pub use policy_factory::PolicyFactory;
pub use server::{Options, Switch, Tier, TierCounts, TierError};
pub use service::{
    CALLS_MAX, CallBuilder, Calls, GatherCondition, LeafError, LeafId, MidTier, Replies, Reply, RequiredLeaves, Step,
};
pub use validation::LeafValidator;
