//! Experiments as data: scenario files, the runs they ask for, their results, and the papers' claims held against them.

#![forbid(unsafe_code)]

pub mod results;
