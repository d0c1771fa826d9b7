//! A plant in miniature for tests: connections, messages in flight, cores and clients, driven step
//! by step through the public interface only, and a checker that watches it. Each test crate uses a
//! part of it.

#![allow(dead_code, reason = "each test crate uses its part")]

pub(crate) mod canary;
pub(crate) mod cases;
pub(crate) mod checker;
pub(crate) mod plant;
pub(crate) mod run;
pub(crate) mod step;
