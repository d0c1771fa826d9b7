//! Threads and modules of the recorded process.
//!
//! Does not contain the changes that perf events report.

mod maps;
pub mod quota;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;

use procfs::ProcError;

use crate::record::{Mapping, SourceError};

/// Most executable mappings of a process that are kept.
const MAX_MAPPINGS: usize = 1 << 16;

/// Most threads of a process that are listed: the kernel's limit of process ids.
const MAX_THREADS: usize = 1 << 22;

/// Flag of the kernel's own threads, in `/proc/PID/stat`.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// A thread of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Kernel's id of the thread.
    pub id: u32,
    /// Its name.
    pub name: String,
}

/// A running process of this machine.
#[derive(Debug)]
pub struct Process {
    process: procfs::process::Process,
    pid: u32,
    start_time: u64,
}

impl Process {
    /// Opens a process that can be recorded.
    ///
    /// # Errors
    /// There is no such process, it has ended, it is a thread of the kernel or of another process,
    /// or it belongs to another user.
    pub fn open(pid: u32) -> Result<Process, SourceError> {
        let number = i32::try_from(pid).map_err(|_| SourceError::NoProcess(pid))?;
        let failed = |error| failure(pid, error);
        let process = procfs::process::Process::new(number).map_err(failed)?;
        let stat = process.stat().map_err(failed)?;
        let status = process.status().map_err(failed)?;
        if status.tgid != number {
            let text = format!("{pid} is a thread of process {}: name the process", status.tgid);
            return Err(SourceError::Refused(text));
        }
        if stat.flags & KERNEL_THREAD != 0 {
            let text =
                format!("process {pid} ({}) is a thread of the kernel: there is no program to record", stat.comm);
            return Err(SourceError::Refused(text));
        }
        let this = Process { process, pid, start_time: stat.starttime };
        if !this.is_running() {
            return Err(SourceError::NoProcess(pid));
        }
        if let Err(error) = this.read_maps() {
            return Err(match error.kind() {
                io::ErrorKind::PermissionDenied => this.not_permitted(status.euid),
                _ if !this.is_running() => SourceError::NoProcess(pid),
                _ => SourceError::Io { what: format!("reading the mappings of process {pid}"), source: error },
            });
        }
        Ok(this)
    }

    /// Opens a child of a process that may be recorded; `None` if it has ended.
    pub fn child(pid: u32) -> Option<Process> {
        let process = procfs::process::Process::new(i32::try_from(pid).ok()?).ok()?;
        let start_time = process.stat().ok()?.starttime;
        let this = Process { process, pid, start_time };
        this.is_running().then_some(this)
    }

    /// Returns the id of the process, as seen in the recorder's namespace.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns when the process began, in clock ticks since the machine did. Another process with
    /// the same id has another time.
    pub fn start_time(&self) -> u64 {
        self.start_time
    }

    /// Returns true while the process has threads that have not ended.
    pub fn is_running(&self) -> bool {
        // The first thread may end before the others; it counts until they have.
        let has_threads = |stat: procfs::process::Stat| !matches!(stat.state, 'Z' | 'X' | 'x') || stat.num_threads > 1;
        let stat = self.process.stat();
        stat.is_ok_and(|stat| stat.starttime == self.start_time && has_threads(stat))
    }

    /// Returns the path of the program, as its mapping has it.
    pub fn program(&self) -> Option<String> {
        let path = std::fs::read_link(format!("/proc/{}/exe", self.pid)).ok()?;
        Some(path.to_string_lossy().into_owned())
    }

    /// Returns the name of the program.
    ///
    /// # Errors
    /// The process has ended.
    pub fn name(&self) -> Result<String, SourceError> {
        Ok(self.process.stat().map_err(|error| failure(self.pid, error))?.comm)
    }

    /// Returns the command line; the name in brackets if the process has cleared it.
    ///
    /// # Errors
    /// The process has ended.
    pub fn command_line(&self) -> Result<String, SourceError> {
        let words = self.process.cmdline().unwrap_or_default();
        if words.is_empty() { Ok(format!("[{}]", self.name()?)) } else { Ok(words.join(" ")) }
    }

    /// Returns the process that forked this one.
    pub fn parent(&self) -> Option<u32> {
        u32::try_from(self.process.stat().ok()?.ppid).ok()
    }

    /// Returns the CPU time in nanoseconds that the threads have used, within a clock tick.
    pub fn cpu_time(&self) -> Option<u64> {
        let stat = self.process.stat().ok()?;
        Some((stat.utime + stat.stime).saturating_mul(1_000_000_000 / procfs::ticks_per_second().max(1)))
    }

    /// Returns the id that the process has in its own namespace of process ids, if that is not the
    /// recorder's.
    pub fn inner_pid(&self) -> Option<u32> {
        let ids = self.process.status().ok()?.nspid?;
        let last = ids.last().and_then(|id| u32::try_from(*id).ok())?;
        (ids.len() > 1).then_some(last)
    }

    /// Returns the threads.
    ///
    /// # Errors
    /// The process has ended.
    pub fn threads(&self) -> Result<Vec<Thread>, SourceError> {
        let tasks = self.process.tasks().map_err(|error| failure(self.pid, error))?;
        let mut threads = Vec::new();
        for task in tasks.flatten().take(MAX_THREADS) {
            // A thread may end meanwhile.
            if let (Ok(id), Ok(stat)) = (u32::try_from(task.tid), task.stat()) {
                threads.push(Thread { id, name: stat.comm });
            }
        }
        if threads.is_empty() { Err(SourceError::NoProcess(self.pid)) } else { Ok(threads) }
    }

    /// Returns the executable mappings, ordered by address.
    ///
    /// # Errors
    /// The process has ended.
    pub fn mappings(&self) -> Result<Vec<Mapping>, SourceError> {
        let failed = |error| match self.is_running() {
            true => SourceError::Io { what: format!("reading the mappings of process {}", self.pid), source: error },
            false => SourceError::NoProcess(self.pid),
        };
        self.read_maps().map_err(failed)
    }

    /// Opens the file of a mapping; see [`open_mapped_file`].
    ///
    /// # Errors
    /// There is no file, or it can't be read.
    pub fn open_file(&self, mapped: &Mapping) -> io::Result<File> {
        open_mapped_file(self.pid, mapped)
    }

    /// Returns true if the profiler's run-time is in the process: as a library, or linked into the
    /// program and listening.
    pub fn has_runtime(&self) -> bool {
        let is_loaded =
            |mapped: &Mapping| mapped.path.rsplit('/').next().is_some_and(|name| name.starts_with("libleeward_rt"));
        if self.read_maps().is_ok_and(|mappings| mappings.iter().any(is_loaded)) {
            return true;
        }
        // The run-time listens on a socket of this name.
        let name = format!("@leeward-profile-{}", self.pid);
        let sockets = std::fs::read_to_string(format!("/proc/{}/net/unix", self.pid)).unwrap_or_default();
        sockets.lines().any(|line| line.ends_with(&name))
    }

    fn read_maps(&self) -> io::Result<Vec<Mapping>> {
        // Paths that are no UTF-8 must not end the list.
        let file = self.process.open_relative("maps").map_err(|error| match error {
            ProcError::PermissionDenied(_) => io::ErrorKind::PermissionDenied.into(),
            ProcError::NotFound(_) => io::ErrorKind::NotFound.into(),
            ProcError::Io(error, _) => error,
            other => io::Error::other(other),
        })?;
        let mut mappings = Vec::new();
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        while mappings.len() < MAX_MAPPINGS {
            line.clear();
            // A path has at most 4096 bytes, each of which may be escaped.
            if reader.by_ref().take(1 << 15).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let text = String::from_utf8_lossy(&line);
            mappings.extend(maps::parse_line(text.trim_end_matches('\n')));
        }
        Ok(mappings)
    }

    fn not_permitted(&self, owner: u32) -> SourceError {
        let pid = self.pid;
        let own = rustix::process::geteuid().as_raw();
        if own == 0 {
            return SourceError::Refused(format!(
                "process {pid} has a right that this user has not, even as root: a container's root has only some of root's capabilities"
            ));
        }
        if owner == 0 {
            return SourceError::Refused(format!("process {pid} belongs to root: only root may record it"));
        }
        if own != owner {
            return SourceError::NotOwner { pid, owner: user_name(owner) };
        }
        // A program with capabilities or another user's rights hides from its own user.
        SourceError::Refused(format!(
            "process {pid} is protected by the kernel, as it runs with special rights: only root may record it"
        ))
    }
}

/// Opens the file of a process's mapping: the very file that is mapped, also when it was deleted or
/// replaced, where the recorder has the right to ask for it (`CAP_SYS_ADMIN` or
/// `CAP_CHECKPOINT_RESTORE`); otherwise the file at its path if that is the same.
///
/// # Errors
/// There is no file, or it can't be read.
pub fn open_mapped_file(pid: u32, mapped: &Mapping) -> io::Result<File> {
    let Mapping { start, length, path, .. } = mapped;
    if mapped.inode == 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    let exact = format!("/proc/{pid}/map_files/{start:x}-{:x}", start.saturating_add(*length));
    File::open(exact).or_else(|_| {
        let file = File::open(format!("/proc/{pid}/root{path}"))?;
        let is_same = file.metadata()?.ino() == mapped.inode;
        if is_same { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
    })
}

fn failure(pid: u32, error: ProcError) -> SourceError {
    match error {
        ProcError::NotFound(_) => SourceError::NoProcess(pid),
        // A process that ends while its files are read.
        ProcError::Io(error, _) if error.raw_os_error() == Some(libc::ESRCH) => SourceError::NoProcess(pid),
        ProcError::PermissionDenied(_) => SourceError::Refused(format!(
            "process {pid} belongs to another user: only this user and root may record it"
        )),
        other => SourceError::Io { what: format!("reading /proc/{pid}"), source: io::Error::other(other) },
    }
}

/// Name of a user by `/etc/passwd`; otherwise `user` and the number.
fn user_name(id: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    });
    found.unwrap_or_else(|| format!("user {id}"))
}

#[cfg(test)]
mod tests;
