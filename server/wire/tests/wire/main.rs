//! The wire format from outside: one example of every kind, tables, properties, the kept corpus and mutants of it. `support`
//! has what they share. Never here: what an end of a connection makes of frames (server/session/tests).

mod corpus;
mod fuzz;
mod mutants;
mod properties;
mod support;
mod tables;
mod vectors;
