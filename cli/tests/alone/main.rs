//! Programs that the profiler records. Its clock needs a CPU, so nothing else may run beside them:
//! these tests are a separate binary, and run one after the other.

mod cargo;
mod profile;
