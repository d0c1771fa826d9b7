//! Pages from results, in one program.

mod any_results;
mod render;
mod samples;
mod verdicts;
