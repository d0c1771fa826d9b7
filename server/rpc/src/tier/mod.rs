//! Tiers: servers that call leaves before they respond, under any of the threading models of µTune
//! (OSDI'18). The model may change at run time.
//!
//! - [`MidTier`]: the service, one code for sync and async models. [`Leaves`]: the servers that it
//!   calls.
//! - [`Options`], [`Tier`], [`Switch`]: start, stop and change the model.
//!   [`crate::server::Builder::start_tier`] starts a tier.
//! - `runtime`: roles of the pool's threads. `shard`, `link`: connections to the leaves. `gather`,
//!   `calls`, `replies`, `slab`, `pool`: a request on its way.
//! - `credits`: requests that wait for credits before they begin. `backend_credits`: credits at the
//!   leaves.
//! - `governor`: inputs of a policy and the times of its decisions. [`PolicyFactory`]: makes a
//!   policy. `meter`: CPU time.
//! - [`LeafValidator`]: accepts or rejects leaves. `startup_check`: asks the leaves before a tier
//!   starts.
//! - `on_cores`: the same service on the server's cores, the ninth model.
//!
//! Does not contain the choice of the model (`leeward-threading`), threads and their switching
//! (`leeward-runtime`), or clients' sockets (`leeward-engine`).

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

/// Starts a tier with the model of its options.
pub(crate) fn start<M: MidTier>(
    builder: Builder,
    address: &str,
    options: Options,
    service: M,
) -> Result<Tier, TierError> {
    let options = options.or_policy(builder.policy_factory.as_ref());
    startup_check::check_for_itself(&options.leaves.0, address)?;
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
