//! Output of `leeward demo`: the live view, plain lines without a terminal, the final table and its
//! explanation.
//!
//! - `events`: events of the runs, small enough to be sent from the clients' CPU without disturbing
//!   them.
//! - `state`: state that the events make up.
//! - `screen`: the terminal and its drawing thread; `view`, `charts`: its contents; `format`:
//!   numbers and names.
//! - `plain`: plain lines.
//! - `table`, `explanation`: the final output.
//! - `tiers`: the demo of a service with leaves. `proxy`: the demo of `leeward proxy`.

pub(crate) mod charts;
pub(crate) mod events;
pub(crate) mod explanation;
pub(crate) mod format;
pub(crate) mod plain;
pub(crate) mod proxy;
pub(crate) mod screen;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod tiers;
pub(crate) mod view;
