//! Recordings from outside: written and replayed, of admission and of threading, and those that earlier versions made.

#![cfg(not(loom))]

mod golden;
#[path = "../../../threading/tests/suite/plant.rs"]
#[expect(dead_code, reason = "the tests of threading need more of it")]
mod plant;
mod recording;
mod threading;
