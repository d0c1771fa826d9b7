//! Tests of the wire format's public interface: one example of every kind, tables, properties, the
//! corpus and mutants of it. `support` has the shared parts. The reactions of a connection's ends
//! to frames are tested in server/session/tests.

mod corpus;
mod fuzz;
mod mutants;
mod properties;
mod support;
mod tables;
mod vectors;
