//! Heads and framing by tables, and by mutants of those.

mod heads;
mod requests;
