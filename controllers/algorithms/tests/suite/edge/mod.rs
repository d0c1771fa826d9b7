//! The controller `edge` in front of a server whose queue stands before the decision: outcomes of a run, and properties that
//! hold whatever the run, each with a controller that breaks it.

mod canaries;
mod outcomes;
mod plant;
mod properties;
