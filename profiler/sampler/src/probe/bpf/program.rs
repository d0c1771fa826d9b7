//! Loads programs into the kernel, and lets them run at tracepoints and uprobes.
//!
//! Contains no program.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::assembler::{Assembler, AssemblyError};
use super::btf::KernelTypes;
use super::call::{Arguments, Command, bpf, bpf_descriptor, perf_event_open, perf_event_run};

/// Where a program will run.
#[derive(Clone, Copy, Debug)]
pub enum ProgramKind<'a> {
    /// At a uprobe. The argument is the thread's registers.
    Uprobe,
    /// At a sample of a perf event; the result 0 drops the sample.
    Sample,
    /// At the tracepoint with this name. The argument is an array of the tracepoint's.
    Tracepoint(&'a KernelTypes, &'a str),
}

/// Why a program doesn't run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The assembler refuses it.
    #[error(transparent)]
    Assembly(#[from] AssemblyError),
    /// The kernel has no such tracepoint.
    #[error("the kernel has no tracepoint {0}")]
    NoTracepoint(String),
    /// The kernel refuses to load it.
    #[error("the kernel refuses a program: {source}{log}")]
    Load {
        /// The kernel's reason.
        source: io::Error,
        /// The end of the verifier's report, on lines of its own; empty without one.
        log: String,
    },
    /// The kernel refuses to run it there.
    #[error("the kernel refuses a probe at {place}: {source}")]
    Attach {
        /// Where.
        place: String,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl ProgramError {
    /// Returns whether the right is missing.
    pub fn is_forbidden(&self) -> bool {
        match self {
            // `EACCES` is the verifier's verdict.
            ProgramError::Load { source, .. } => source.raw_os_error() == Some(libc::EPERM),
            ProgramError::Attach { source, .. } => matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES)),
            _ => false,
        }
    }
}

/// A program in the kernel, which ends with this value and its probes.
#[derive(Debug)]
pub struct Program {
    descriptor: OwnedFd,
    name: String,
}

impl Program {
    /// Loads a program.
    ///
    /// # Errors
    /// The program is wrong, or the kernel refuses it.
    pub fn load(kind: ProgramKind<'_>, name: &str, assembler: Assembler) -> Result<Program, ProgramError> {
        /// What is needed of a helper's licence; ours allow it.
        const LICENCE: &[u8] = b"Dual MIT/GPL\0";
        let code = assembler.finish()?;
        let (number, attach, tracepoint) = match kind {
            ProgramKind::Uprobe => (2, 0, 0),
            ProgramKind::Sample => (7, 0, 0),
            ProgramKind::Tracepoint(types, name) => {
                let type_id = types.tracepoint(name).ok_or_else(|| ProgramError::NoTracepoint(name.to_string()))?;
                (26, 23, type_id)
            }
        };
        let arguments = || {
            Arguments::new()
                .word(0, number)
                .word(4, code.len() as u32)
                .input(8, &code)
                .input(16, LICENCE)
                .text(48, name.as_bytes().get(..15).unwrap_or(name.as_bytes()))
                .word(68, attach)
                .word(108, tracepoint)
        };
        let descriptor = bpf_descriptor(Command::ProgramLoad, &mut arguments()).map_err(|source| {
            // The verifier reports only if it is asked: that costs time.
            let mut log = vec![0; 1 << 20];
            let size = log.len() as u32;
            let _ =
                bpf_descriptor(Command::ProgramLoad, &mut arguments().word(24, 1).word(28, size).output(32, &mut log));
            ProgramError::Load { source, log: last_lines(&log) }
        })?;
        Ok(Program { descriptor, name: name.to_string() })
    }

    /// Returns the program's descriptor, by which a perf event takes it.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// Returns how often the program ran while the kernel counted (see [`Statistics`]).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn runs(&self) -> io::Result<Runs> {
        /// Size of `struct bpf_prog_info` up to the counts, and their offsets in it.
        const SIZE: usize = 208;
        const NANOSECONDS: usize = 192;
        const COUNT: usize = 200;
        let mut info = [0; SIZE];
        let descriptor = self.descriptor.as_raw_fd() as u32;
        let mut arguments = Arguments::new().word(0, descriptor).word(4, SIZE as u32).output(8, &mut info);
        bpf(Command::ObjectInfo, &mut arguments)?;
        let number = |at: usize| u64::from_ne_bytes(info[at..at + 8].try_into().unwrap_or_default());
        Ok(Runs { count: number(COUNT), nanoseconds: number(NANOSECONDS) })
    }

    /// Lets the program run at its tracepoint until the result is dropped.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn at_tracepoint(&self) -> Result<Probe, ProgramError> {
        let mut arguments = Arguments::new().word(8, self.descriptor.as_raw_fd() as u32);
        bpf_descriptor(Command::RawTracepointOpen, &mut arguments)
            .map(|descriptor| Probe { _descriptor: descriptor })
            .map_err(|source| ProgramError::Attach { place: self.name.clone(), source })
    }

    /// Lets the program run where a process executes an instruction of a file, until the result is
    /// dropped.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn at_uprobe(&self, uprobe: &Uprobe<'_>, pmu: &UprobePmu) -> Result<Probe, ProgramError> {
        let refused =
            |source| ProgramError::Attach { place: format!("{}+{:#x}", uprobe.file.display(), uprobe.offset), source };
        let path = CString::new(uprobe.file.as_os_str().as_bytes()).map_err(|_| refused(libc_error(libc::EINVAL)))?;
        let mut attribute = [0_u64; 16];
        // Type and size, then config, config1 (the path) and config2 (the offset).
        attribute[0] = u64::from(pmu.number) | (size_of_val(&attribute) as u64) << 32;
        attribute[1] = u64::from(uprobe.at_return) << pmu.return_bit | uprobe.counter << pmu.counter_shift;
        attribute[7] = path.as_ptr() as u64;
        attribute[8] = uprobe.offset;
        let event = perf_event_open(&mut attribute, uprobe.process as i32, &path).map_err(refused)?;
        perf_event_run(&event, &self.descriptor).map_err(refused)?;
        Ok(Probe { _descriptor: event })
    }
}

/// How often a program ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Number of runs, on all CPUs and for all processes.
    pub count: u64,
    /// Time that they took.
    pub nanoseconds: u64,
}

/// While this lives, the kernel counts the runs of all programs and takes their time.
#[derive(Debug)]
pub struct Statistics {
    _descriptor: OwnedFd,
}

impl Statistics {
    /// Begins to count.
    ///
    /// # Errors
    /// The right is missing (`CAP_SYS_ADMIN`).
    pub fn enable() -> io::Result<Statistics> {
        // The only kind, `BPF_STATS_RUN_TIME`, is number 0.
        bpf_descriptor(Command::EnableStatistics, &mut Arguments::new())
            .map(|descriptor| Statistics { _descriptor: descriptor })
    }
}

fn libc_error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// A place in a file where a program runs.
#[derive(Clone, Debug)]
pub struct Uprobe<'a> {
    /// The process that pays for it.
    pub process: u32,
    /// The file.
    pub file: &'a Path,
    /// Offset of the instruction in the file.
    pub offset: u64,
    /// At the return from the function that begins there, instead.
    pub at_return: bool,
    /// Offset in the file of a counter that the kernel holds above 0 meanwhile; 0 for none.
    pub counter: u64,
}

/// How the kernel's perf events name uprobes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UprobePmu {
    number: u32,
    return_bit: u32,
    counter_shift: u32,
}

impl UprobePmu {
    /// Asks the kernel.
    ///
    /// # Errors
    /// It has no uprobes, or sysfs is not there.
    pub fn find() -> io::Result<UprobePmu> {
        let read = |name: &str| std::fs::read_to_string(format!("/sys/bus/event_source/devices/uprobe/{name}"));
        let number = read("type")?.trim().parse().map_err(io::Error::other)?;
        let first_bit = |name| read(name).ok().and_then(|text| first_bit(&text));
        let return_bit = first_bit("format/retprobe").ok_or_else(|| libc_error(libc::ENOTSUP))?;
        Ok(UprobePmu { number, return_bit, counter_shift: first_bit("format/ref_ctr_offset").unwrap_or(32) })
    }
}

/// Returns the first bit of a field of `config`, such as `config:32-63`.
fn first_bit(text: &str) -> Option<u32> {
    let bits = text.trim().strip_prefix("config:")?;
    bits.split('-').next()?.parse().ok().filter(|bit| *bit < 64)
}

/// A place where a program runs; dropping it ends that.
#[derive(Debug)]
pub struct Probe {
    _descriptor: OwnedFd,
}

/// Returns the end of the verifier's report.
fn last_lines(log: &[u8]) -> String {
    const LINES: usize = 12;
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LINES);
    lines[from..].iter().flat_map(|line| ["\n", line]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::assembler::Register::*;
    use super::super::assembler::{Assembler, Width};
    use super::*;

    #[test]
    fn fields_of_the_pmu_are_understood() {
        assert_eq!(first_bit("config:0\n"), Some(0));
        assert_eq!(first_bit("config:32-63\n"), Some(32));
        assert_eq!(first_bit("config1:3"), None);
        assert_eq!(first_bit("config:99"), None);
        UprobePmu::find().unwrap();
    }

    #[test]
    fn the_verifier_says_what_is_wrong() {
        let mut assembler = Assembler::default();
        assembler.load(Width::Double, R0, R3, 0);
        assembler.exit();
        let error = Program::load(ProgramKind::Uprobe, "wrong", assembler).unwrap_err();
        assert!(error.to_string().contains("R3 !read_ok"), "{error}");
        assert!(!error.is_forbidden());
    }

    #[test]
    fn an_unknown_tracepoint_is_named() {
        let types = KernelTypes::of_kernel().unwrap();
        let mut assembler = Assembler::default();
        assembler.exit();
        let error = Program::load(ProgramKind::Tracepoint(&types, "no_such"), "test", assembler).unwrap_err();
        assert_eq!(error.to_string(), "the kernel has no tracepoint no_such");
    }
}
