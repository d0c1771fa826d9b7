//! Commands, a file for each. A command reads its input, calls the libraries and prints the outcome.

mod ask_admin;
pub(crate) mod calibrate;
pub(crate) mod cargo;
pub(crate) mod compile;
pub(crate) mod completions;
pub(crate) mod corpus;
pub(crate) mod data;
pub(crate) mod demo;
mod demo_tiers;
pub(crate) mod league;
pub(crate) mod list;
pub(crate) mod load;
pub(crate) mod profile;
pub(crate) mod record;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod serve;
mod source;
mod summary;
mod sweep;
mod target;
pub(crate) mod top;
pub(crate) mod train;
pub(crate) mod tune;
pub(crate) mod verdicts;
pub(crate) mod why;
