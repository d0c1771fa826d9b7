//! Tests of both ends of a link in virtual time, over a network that loses, duplicates and reorders
//! datagrams, and with invalid datagrams.

mod faults;
mod fuzz;
mod harness;
mod table;
