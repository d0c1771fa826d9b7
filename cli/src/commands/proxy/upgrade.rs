//! Another process takes over: the program is started anew with the listening sockets
//! (`LISTEN_FDS`, as systemd passes them) and tells on its standard input, which is a socket then,
//! that it is ready. Does not contain the end of this process.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

use crate::interrupt::Interrupt;
use crate::systemd;

/// Variable of a process that takes over.
const UPGRADE: &str = "LEEWARD_PROXY_UPGRADE";
/// Message that it is ready.
const READY: &[u8] = b"ready\n";
/// Longest time until it is.
pub(super) const LONGEST: Duration = Duration::from_secs(30);
/// Interval of looks at the interrupt while it starts.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// First number of the descriptors that are tried, and attempts to find free ones in a row.
const FIRST_DESCRIPTOR: i32 = 64;
const ATTEMPTS: i32 = 64;

/// This program: what is to be started anew.
#[derive(Debug)]
pub(super) struct Program {
    path: Option<PathBuf>,
    arguments: Vec<OsString>,
}

impl Program {
    /// Must be called at the start: the file and the folder may change later.
    pub(super) fn current() -> Program {
        let mut arguments = std::env::args_os();
        let name = arguments.next().unwrap_or_default();
        Program { path: find(Path::new(&name)), arguments: arguments.collect() }
    }

    /// Starts it with these sockets, and waits until it is ready. An error: it is not there any
    /// more.
    pub(super) fn take_over(&self, sockets: &[BorrowedFd<'_>], interrupt: &Interrupt) -> anyhow::Result<u32> {
        ensure!(std::process::id() != 1, "this is process 1, whose end ends the container: start a new container");
        let path = self.path.as_ref().context("the program's file is not known")?;
        let (ours, theirs) = UnixStream::pair()?;
        let inherited = inheritable(sockets)?;
        let mut command = Command::new(path);
        command
            .args(&self.arguments)
            .arg0(path)
            .stdin(OwnedFd::from(theirs))
            .env(UPGRADE, "1")
            .env("LISTEN_FDS", inherited.len().to_string())
            .env("LISTEN_FDS_FIRST_FD", inherited.first().map_or(0, AsRawFd::as_raw_fd).to_string())
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDNAMES");
        let child = command.spawn().with_context(|| format!("{}", path.display()))?;
        // They hold the other end of the socket, and the inherited descriptors.
        drop((command, inherited));
        let mut child = EndsChild(Some(child));
        await_ready(&mut child, ours, LONGEST, &|| interrupt.is_requested())
    }
}

/// The program's file by its name on the command line, without following links: an upgrade may
/// change where they point.
fn find(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return std::path::absolute(name).ok();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&folders).filter_map(|folder| std::path::absolute(folder.join(name)).ok());
    files.find(|file| file.is_file()).or_else(|| std::env::current_exe().ok())
}

/// Copies of descriptors with numbers in a row, which a child inherits.
fn inheritable(sockets: &[BorrowedFd<'_>]) -> anyhow::Result<Vec<OwnedFd>> {
    let mut first = FIRST_DESCRIPTOR;
    for _ in 0..ATTEMPTS {
        let mut copies: Vec<OwnedFd> = Vec::new();
        for socket in sockets {
            copies.push(fcntl_dupfd_cloexec(socket, first + copies.len() as i32)?);
        }
        let Some(start) = copies.first().map(AsRawFd::as_raw_fd) else { return Ok(copies) };
        if copies.iter().zip(start..).all(|(copy, number)| copy.as_raw_fd() == number) {
            for copy in &copies {
                fcntl_setfd(copy, FdFlags::empty())?;
            }
            return Ok(copies);
        }
        first = copies.iter().map(AsRawFd::as_raw_fd).max().unwrap_or(first) + 1;
    }
    bail!("no descriptors in a row are free")
}

/// A child that is ended with its handle, unless it is let go.
struct EndsChild(Option<Child>);

impl EndsChild {
    fn release(&mut self) -> u32 {
        self.0.take().map_or(0, |child| child.id())
    }
}

impl Drop for EndsChild {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits for the message; returns the process id.
fn await_ready(
    child: &mut EndsChild,
    mut socket: UnixStream,
    longest: Duration,
    is_stopping: &dyn Fn() -> bool,
) -> anyhow::Result<u32> {
    let end = Instant::now() + longest;
    socket.set_read_timeout(Some(POLL_INTERVAL))?;
    let mut message = Vec::new();
    while Instant::now() < end {
        ensure!(!is_stopping(), "this process was told to stop");
        let mut piece = [0; 16];
        match socket.read(&mut piece) {
            Ok(0) => return Err(ended(child)),
            Ok(count) => message.extend_from_slice(&piece[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
            Err(_) => return Err(ended(child)),
        }
        ensure!(READY.starts_with(&message), "it said something else than that it is ready");
        if message == READY {
            return Ok(child.release());
        }
    }
    bail!("it was not ready within {longest:?}")
}

/// The error of a child that has closed its end, mostly because it has ended.
fn ended(child: &mut EndsChild) -> anyhow::Error {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        if let Some(Ok(Some(status))) = child.0.as_mut().map(Child::try_wait) {
            return anyhow!("it ended with {status}");
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    anyhow!("it closed its standard input and was never ready")
}

/// The way to tell the process before this one that this one is ready.
#[derive(Debug)]
pub(super) struct Announcement(UnixStream);

impl Announcement {
    /// `None`: no process waits for this one.
    pub(super) fn from_env() -> Option<Announcement> {
        std::env::var_os(UPGRADE)?;
        let input = io::stdin().as_fd().try_clone_to_owned().ok()?;
        // The standard input of whoever has inherited only the variable is something else.
        rustix::net::getsockname(&input).ok()?;
        Some(Announcement(input.into()))
    }
}

/// Says that this process is ready: to the one before it, which tells systemd, or to systemd.
pub(super) fn announce(to: Option<Announcement>, status: &str) {
    match to {
        // It may have ended meanwhile: then this process is alone, and goes on.
        Some(Announcement(mut socket)) => _ = socket.write_all(READY),
        None => systemd::notify_ready(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    fn child(script: &str) -> (EndsChild, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        (EndsChild(Some(command.spawn().unwrap())), ours)
    }

    fn wait(script: &str, longest: Duration) -> String {
        let (mut child, socket) = child(script);
        match await_ready(&mut child, socket, longest, &|| false) {
            Ok(process) => format!("ready {}", process > 0),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_child_is_ready_or_the_reason_is_named() {
        let long = Duration::from_secs(60);
        assert_eq!(wait("echo ready >&0", long), "ready true");
        assert_eq!(wait("printf re >&0; printf 'ady\\n' >&0", long), "ready true");
        assert!(wait("exit 3", long).contains("exit status: 3"));
        assert!(wait("kill -9 $$", long).contains("signal: 9"));
        assert!(wait("echo hello >&0; sleep 60", long).contains("something else"));
        assert!(wait("sleep 60", Duration::from_millis(50)).contains("not ready within 50ms"));
        let (mut child, socket) = child("sleep 60");
        let error = await_ready(&mut child, socket, long, &|| true).unwrap_err();
        assert!(error.to_string().contains("told to stop"));
    }

    #[test]
    fn inherited_descriptors_are_in_a_row() {
        let (one, two) = UnixStream::pair().unwrap();
        let earlier = inheritable(&[one.as_fd()]).unwrap();
        let between = fcntl_dupfd_cloexec(&one, earlier[0].as_raw_fd() + 2).unwrap();
        let copies = inheritable(&[one.as_fd(), two.as_fd()]).unwrap();
        assert_eq!(copies[0].as_raw_fd() + 1, copies[1].as_raw_fd());
        assert!(rustix::io::fcntl_getfd(&copies[1]).unwrap().is_empty());
        drop((earlier, between));
        assert!(inheritable(&[]).unwrap().is_empty());
    }

    #[test]
    fn the_program_is_found_without_following_links() {
        assert_eq!(find(Path::new("/a/../b")).unwrap(), Path::new("/a/../b"));
        assert!(find(Path::new("./x/y")).unwrap().ends_with("x/y"));
        assert!(find(Path::new("sh")).unwrap().ends_with("bin/sh"));
        assert_eq!(find(Path::new("no-such-program")), std::env::current_exe().ok());
    }
}
