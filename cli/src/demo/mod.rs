//! Output of `leeward demo`: the live view, the lines where there is no terminal, the table at the end and its meaning.
//!
//! - `news`: what the runs tell, small enough to be sent from the clients' CPU without disturbing them.
//! - `state`: what has been told so far.
//! - `screen`: the terminal, and the thread that draws on it; `view`, `charts`: what it draws.
//! - `plain`: lines instead.
//! - `table`, `meaning`: the end.
//! - `tiers`: the same of a service with leaves.

pub(crate) mod charts;
pub(crate) mod events;
pub(crate) mod explanation;
pub(crate) mod format;
pub(crate) mod plain;
pub(crate) mod screen;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod tiers;
pub(crate) mod view;
