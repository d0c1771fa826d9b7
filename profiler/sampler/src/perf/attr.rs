//! Attributes of perf events, as `linux/perf_event.h` defines them.
//!
//! Does not contain system calls.

/// Fields of a sample, and of the end of all other records.
pub(crate) const SAMPLE_TID: u64 = 1 << 1;
pub(crate) const SAMPLE_TIME: u64 = 1 << 2;
pub(crate) const SAMPLE_CALLCHAIN: u64 = 1 << 5;
pub(crate) const SAMPLE_CPU: u64 = 1 << 7;
pub(crate) const SAMPLE_RAW: u64 = 1 << 10;
pub(crate) const SAMPLE_REGS_USER: u64 = 1 << 12;
pub(crate) const SAMPLE_STACK_USER: u64 = 1 << 13;
pub(crate) const SAMPLE_IDENTIFIER: u64 = 1 << 16;

/// Fields that each event has, so that records can be told apart and ordered.
pub(crate) const SAMPLE_COMMON: u64 = SAMPLE_IDENTIFIER | SAMPLE_TID | SAMPLE_TIME | SAMPLE_CPU;

/// Registers that the unwinder needs, in the order of their bits.
#[cfg(target_arch = "x86_64")]
pub(crate) const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;
#[cfg(target_arch = "aarch64")]
pub(crate) const REGISTERS: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;

/// Type and numbers of the kernel's software events.
const TYPE_SOFTWARE: u32 = 1;
const CPU_CLOCK: u64 = 0;
const CONTEXT_SWITCHES: u64 = 3;
const DUMMY: u64 = 9;

const BPF_OUTPUT: u64 = 10;

const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const EXCLUDE_IDLE: u64 = 1 << 7;
const MMAP: u64 = 1 << 8;
const COMM: u64 = 1 << 9;
const TASK: u64 = 1 << 13;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const EXCLUDE_CALLCHAIN_KERNEL: u64 = 1 << 21;
const MMAP2: u64 = 1 << 23;
const COMM_EXEC: u64 = 1 << 24;
const USE_CLOCKID: u64 = 1 << 25;
const CONTEXT_SWITCH: u64 = 1 << 26;
const INHERIT_THREAD: u64 = 1 << 35;

/// Attributes of an event: the structure of version 5 (Linux 4.1).
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(crate) struct EventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

/// How a sample's stack is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StackCapture {
    /// The kernel follows frame pointers.
    FramePointers,
    /// The kernel copies registers and so many bytes of the stack.
    Copy(u32),
}

/// Threads and children born later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inheritance {
    /// Threads of the process are recorded.
    Threads,
    /// Threads and children are recorded.
    ThreadsAndChildren,
}

impl EventAttr {
    /// A record of each change of threads and mappings, and no samples.
    pub(crate) fn changes() -> EventAttr {
        let mut attr = EventAttr::software(DUMMY);
        attr.flags |= MMAP | MMAP2 | COMM | COMM_EXEC | TASK;
        attr
    }

    /// Samples of the CPU clock, each `period` nanoseconds.
    pub(crate) fn cpu_clock(period: u64, capture: StackCapture) -> EventAttr {
        EventAttr { sample_period: period, ..EventAttr::software(CPU_CLOCK) }.with_stack(capture)
    }

    /// Samples at each `period`th switch away from the CPU.
    pub(crate) fn context_switches(period: u64, capture: StackCapture) -> EventAttr {
        EventAttr { sample_period: period, ..EventAttr::software(CONTEXT_SWITCHES) }.with_stack(capture)
    }

    /// What BPF programs write, with the stack of the thread that they run in if asked.
    pub(crate) fn bpf_output(capture: Option<StackCapture>) -> EventAttr {
        let mut attr = EventAttr { sample_period: 1, ..EventAttr::software(BPF_OUTPUT) };
        attr.sample_type |= SAMPLE_RAW;
        match capture {
            Some(capture) => attr.with_stack(capture),
            None => attr,
        }
    }

    /// Leaves out CPUs without work.
    pub(crate) fn without_idle(mut self) -> EventAttr {
        self.flags |= EXCLUDE_IDLE;
        self
    }

    /// Adds a record of each switch.
    pub(crate) fn with_switches(mut self) -> EventAttr {
        self.flags |= CONTEXT_SWITCH;
        self
    }

    /// Leaves out what happens in the kernel.
    pub(crate) fn without_kernel(mut self) -> EventAttr {
        self.flags |= EXCLUDE_KERNEL;
        self
    }

    /// Sets which threads are recorded, too.
    pub(crate) fn inherited(mut self, inheritance: Inheritance) -> EventAttr {
        self.flags |= match inheritance {
            Inheritance::Threads => INHERIT | INHERIT_THREAD,
            Inheritance::ThreadsAndChildren => INHERIT,
        };
        self
    }

    fn software(config: u64) -> EventAttr {
        EventAttr {
            kind: TYPE_SOFTWARE,
            size: size_of::<EventAttr>() as u32,
            config,
            sample_type: SAMPLE_COMMON,
            flags: DISABLED | SAMPLE_ID_ALL | USE_CLOCKID | EXCLUDE_HYPERVISOR | EXCLUDE_CALLCHAIN_KERNEL,
            clock: libc::CLOCK_MONOTONIC,
            ..EventAttr::default()
        }
    }

    fn with_stack(mut self, capture: StackCapture) -> EventAttr {
        match capture {
            StackCapture::FramePointers => self.sample_type |= SAMPLE_CALLCHAIN,
            StackCapture::Copy(bytes) => {
                self.sample_type |= SAMPLE_REGS_USER | SAMPLE_STACK_USER;
                self.sample_regs_user = REGISTERS;
                self.sample_stack_user = bytes;
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_is_that_of_version_5() {
        assert_eq!(size_of::<EventAttr>(), 112);
        assert_eq!(std::mem::offset_of!(EventAttr, sample_regs_user), 80);
        assert_eq!(std::mem::offset_of!(EventAttr, clock), 92);
    }
}
