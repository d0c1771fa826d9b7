//! Tests of the C interface from outside: the header, C programs, the libraries and the package.

mod header;
mod package;
mod programs;
mod support;
mod symbols;
