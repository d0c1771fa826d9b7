//! Perf events: samples and switches with stacks.
//!
//! Does not contain unwinding, and no requests.

mod attach;
mod attr;
mod budget;
mod common_stacks;
mod cpus;
mod parse;
mod rights;
mod ring;
mod source;
mod switches;
mod sys;
mod translate;

pub use source::PerfSource;

/// How stacks are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StackMethod {
    /// By frame pointers if the program is Go's, otherwise by copies.
    #[default]
    Automatic,
    /// The kernel follows frame pointers. Cheapest; the callers of functions without a frame are
    /// missing.
    FramePointers,
    /// The kernel copies the innermost part of the stack, and the recorder unwinds the copy.
    Copies,
}

/// How often threads are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SampleRate {
    /// A thousand samples per second of CPU time, or fewer: as many as the limit of the cost
    /// allows.
    #[default]
    Automatic,
    /// So many samples per second of CPU time.
    Hertz(u32),
}

/// Which events the kernel is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventScope {
    /// Events of whole CPUs, of which BPF programs keep those of the process, where the recorder
    /// may ask for them (root, or `CAP_PERFMON` and `CAP_BPF`); otherwise events of threads.
    #[default]
    Automatic,
    /// Events of each thread. A switch costs the process more, by about 3 µs.
    Threads,
}

/// Options of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerfOptions {
    /// How often threads are sampled.
    pub rate: SampleRate,
    /// How stacks are taken.
    pub stacks: StackMethod,
    /// Children that the process forks are recorded, too.
    pub children: bool,
    /// Which events the kernel is asked for.
    pub scope: EventScope,
}

/// What a source has recorded, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfReport {
    /// Samples per second of CPU time, at present.
    pub rate: u32,
    /// How stacks are taken; never `Automatic`.
    pub stacks: StackMethod,
    /// Time in system calls is sampled, and switches have stacks. Both need more rights than
    /// samples of the program itself.
    pub sees_kernel: bool,
    /// The events are of whole CPUs: only then are stacks at switches chosen by their place.
    pub whole_cpus: bool,
    /// Waits shorter than this, in nanoseconds, are left out unless their stack was taken.
    pub shortest_wait: u64,
    /// Each so-manieth switch away from the CPU has its stack taken, at present; 0: none has.
    /// Others get the last stack of the thread at the same place.
    pub switch_period: u64,
    /// Samples.
    pub samples: u64,
    /// Switches away from the CPU that were reported.
    pub switches: u64,
    /// Those whose stack was taken.
    pub switches_with_stacks: u64,
    /// Stacks that the copy was too short for.
    pub truncated_stacks: u64,
    /// Records that the kernel lost.
    pub lost: u64,
    /// How often the kernel held samples back as there were too many.
    pub throttled: u64,
    /// CPU time of the recorder in nanoseconds.
    pub own_time: u64,
}
