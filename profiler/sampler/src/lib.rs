//! Records a running program from outside, with nothing rebuilt, restarted or loaded into it.
//!
//! For `leeward profile record --pid`. Entry points: [`process::Process`],
//! [`record::RecordSource`] and [`convert`].
//!
//! The kernel tells of a process what the profiler's run-time tells of itself: samples of stacks,
//! switches away from the CPU and back, the begin and the end of requests. This crate asks the
//! kernel for these, and writes them as a trace that `leeward-profile` reads.
//!
//! | module | |
//! |---|---|
//! | [`record`] | what sources report: the seam between the other modules |
//! | [`process`] | threads and modules of the recorded process |
//! | [`perf`] | perf events: samples and switches with stacks |
//! | [`unwind`] | stacks of programs without frame pointers |
//! | [`probe`] | requests: uprobes and system calls, filtered in the kernel by BPF |
//! | [`windows`] | a limit of what recording costs: windows of time in which sources record |
//! | [`convert`] | records to a trace: calls from samples |
//! | [`clock`] | times |
//!
//! Everything in the kernel that this crate uses belongs to a file descriptor, so nothing is left
//! behind when the process ends, by `kill -9` or otherwise.
//!
//! # Example
//! ```
//! use leeward_sampler::process::Process;
//!
//! // Threads and executable mappings of this process.
//! let process = Process::open(std::process::id())?;
//! assert!(process.is_running());
//! assert!(!process.threads()?.is_empty());
//! assert!(!process.mappings()?.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Contains no analysis of a trace, and no command line.

pub mod clock;
pub mod convert;
pub mod perf;
pub mod probe;
pub mod process;
pub mod record;
pub mod unwind;
pub mod windows;
