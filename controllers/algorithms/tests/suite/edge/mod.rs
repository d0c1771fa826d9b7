//! The controller `edge` in front of a server whose queue is before the decision: outcomes of runs,
//! and properties that hold for every run, each with a defective controller that breaks it.

mod canaries;
mod outcomes;
mod plant;
mod properties;
