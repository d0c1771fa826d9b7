//! Tests of heads and framing by tables, and by mutants of their rows.

mod heads;
mod requests;
