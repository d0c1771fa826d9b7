//! Commands, one file for each. A command reads its input, calls the libraries and prints the
//! result.

mod admin_client;
pub(crate) mod calibrate;
pub(crate) mod cargo;
pub(crate) mod compile;
pub(crate) mod completions;
pub(crate) mod corpus;
pub(crate) mod data;
pub(crate) mod demo;
pub(crate) mod demo_proxy;
pub(crate) mod demo_tiers;
pub(crate) mod league;
mod league_proxy;
pub(crate) mod list;
pub(crate) mod load;
mod output_files;
mod peer;
pub(crate) mod profile;
pub(crate) mod proxy;
pub(crate) mod record;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod serve;
mod statistics_source;
mod summary;
pub(crate) mod sweep;
pub(crate) mod top;
pub(crate) mod train;
pub(crate) mod tune;
pub(crate) mod twin;
pub(crate) mod verdicts;
pub(crate) mod watch;
pub(crate) mod why;
