//! Programs in the kernel: an assembler, maps, the kernel's types, probes. Everything belongs to a
//! file descriptor and ends with it.
//!
//! Contains no knowledge of requests.

mod assembler;
mod btf;
mod call;
mod map;
mod program;
mod ring;

pub use assembler::{Assembler, AssemblyError, Condition, Helper, Label, Operand, Operation, Register, Width};
pub use btf::{Field, KernelTypes};
pub use map::{Map, MapKind};
pub use program::{Probe, Program, ProgramError, ProgramKind, Uprobe, UprobePmu};
pub use ring::Ring;
