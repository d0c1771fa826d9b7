//! Parts that several test programs share.

#![allow(dead_code)] // every test program uses another part of it

pub(crate) mod checker;
pub(crate) mod queueing;
pub(crate) mod scenario;
