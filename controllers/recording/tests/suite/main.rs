//! Recordings from outside: of admission and of threading, written and replayed, and those of
//! earlier versions.

#![cfg(not(loom))]

mod golden;
#[path = "../../../threading/tests/suite/plant.rs"]
#[expect(dead_code, reason = "the tests of threading need more of it")]
mod plant;
mod recording;
mod threading;
