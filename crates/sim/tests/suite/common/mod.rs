//! Scenarios, models and checks that several tests share.

pub(crate) mod checker;
pub(crate) mod graphs;
pub(crate) mod lockout;
pub(crate) mod queueing;
pub(crate) mod scenario;
pub(crate) mod tier;
