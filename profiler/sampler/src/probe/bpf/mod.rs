//! Programs in the kernel: an assembler, maps, the kernel's types, probes. Everything belongs to a
//! file descriptor and ends with it.
//!
//! Contains no knowledge of requests.

mod assembler;
mod btf;
mod call;
mod map;
mod meter;
mod program;
mod ring;

pub use assembler::{Assembler, AssemblyError, Condition, Helper, Label, Operand, Operation, Register, Width};
pub use btf::{Field, KernelTypes};
pub use map::{Map, MapKind};
pub use meter::{ProgramMeter, RETURN_PROBE, RunningProgram, TRACEPOINT, UPROBE};
pub use program::{Probe, Program, ProgramError, ProgramKind, Runs, Statistics, Uprobe, UprobePmu};
pub use ring::Ring;
