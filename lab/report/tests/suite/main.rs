//! Tests of the report's pages, in one binary.

mod any_results;
mod render;
mod samples;
mod verdicts;
