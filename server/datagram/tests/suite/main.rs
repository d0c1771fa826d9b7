//! Both ends of a link over a network that loses, doubles and reorders, in virtual time; and bytes that are no datagrams.

mod faults;
mod fuzz;
mod harness;
mod table;
