//! Tests of the program `leeward` from outside, and of the rules of ARCHITECTURE.md. `alone/` has
//! the tests that depend on the clock.

mod admin;
mod architecture;
mod demo;
mod dependency_diagram;
mod exit_codes;
mod guides;
mod import_cycles;
mod limits;
mod make;
mod otlp;
mod packaging;
mod profile;
mod profile_join;
mod program;
mod prometheus;
mod prose;
mod proxy;
mod proxy_operation;
mod real;
mod recipes;
mod recording;
mod same_bytes;
mod serve_config;
mod server;
mod shadow;
mod terminal;
mod threading;
mod tiers;
mod tls;
mod vocabulary;
mod watch;
