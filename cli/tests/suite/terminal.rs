//! Programs that draw on a terminal, on a pseudo-terminal: they end when the terminal closes,
//! however they detect it.

#![cfg(target_os = "linux")]

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::real::Server;

/// `O_NOCTTY`: the test must not get signals of this terminal.
const NO_CONTROL: i32 = 0o400;

/// Both ends of a terminal.
struct Terminal {
    master: File,
    slave: File,
}

impl Terminal {
    fn open() -> Terminal {
        let master: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = OpenOptions::new().read(true).write(true).custom_flags(NO_CONTROL).open(name.to_str().unwrap());
        Terminal { master: master.into(), slave: slave.unwrap() }
    }

    fn stdio(&self) -> Stdio {
        self.slave.try_clone().unwrap().into()
    }
}

/// A program on a terminal.
struct TerminalProcess {
    child: Child,
    master: File,
}

/// Kind of terminal: only a controlling terminal sends SIGHUP when it closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TerminalKind {
    Controlling,
    Ordinary,
}

impl TerminalProcess {
    fn start(arguments: &[&str], folder: &Path, control: TerminalKind) -> TerminalProcess {
        let terminal = Terminal::open();
        let program = env!("CARGO_BIN_EXE_leeward");
        let mut command = match control {
            TerminalKind::Controlling => {
                let mut command = Command::new("setsid");
                command.args(["--ctty", program]);
                command
            }
            TerminalKind::Ordinary => Command::new(program),
        };
        command.args(arguments).current_dir(folder).env("TERM", "xterm").env_remove("NO_COLOR");
        command.stdin(terminal.stdio()).stdout(terminal.stdio()).stderr(terminal.stdio());
        TerminalProcess { child: command.spawn().unwrap(), master: terminal.master }
    }

    /// Reads the output until `part` is drawn. Only one word, since a view does not draw the blanks
    /// between words.
    fn wait_for(&mut self, part: &str) {
        let (mut drawn, mut piece) = (String::new(), [0; 4096]);
        while !drawn.contains(part) {
            match self.master.read(&mut piece) {
                Ok(count) if count > 0 => drawn += &String::from_utf8_lossy(&piece[..count]),
                ended => panic!("{ended:?} before `{part}` in: {drawn}"),
            }
        }
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap().success());
    }

    /// Closes the terminal; the program then ends, or is killed after a generous timeout.
    fn hang_up(self) -> ExitStatus {
        let TerminalProcess { child, master } = self;
        drop(master);
        wait_for_exit(child)
    }
}

fn wait_for_exit(mut child: Child) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.code().is_some(), "it ended, but not by itself: {status}");
            return status;
        }
        if began.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it goes on without its terminal");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn top_ends_with_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["--admission", "none"]);
    for control in [TerminalKind::Ordinary, TerminalKind::Controlling] {
        let mut top = TerminalProcess::start(&["top", &server.address, "--interval", "10s"], folder.path(), control);
        top.wait_for("ends");
        top.hang_up();
    }
    for signal in ["-TERM", "-HUP"] {
        let mut top = TerminalProcess::start(
            &["top", &server.address, "--interval", "10s"],
            folder.path(),
            TerminalKind::Ordinary,
        );
        top.wait_for("ends");
        top.signal(signal);
        wait_for_exit(top.child);
    }
}

/// The view stays when the server stops responding, and marks its last numbers as old.
#[test]
fn top_marks_a_silent_server_and_ends_with_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["--admission", "none"]);
    let mut top =
        TerminalProcess::start(&["top", &server.address, "--interval", "50ms"], folder.path(), TerminalKind::Ordinary);
    top.wait_for("ends");
    drop(server);
    top.wait_for("answer");
    top.hang_up();
}

/// The numbers are marked as old while a query waits, not only after it has failed.
#[test]
fn top_marks_a_server_that_stands_still() {
    let folder = tempfile::tempdir().unwrap();
    let server = crate::server::Server::start(&["--admission", "none"], folder.path());
    let mut top =
        TerminalProcess::start(&["top", &server.1, "--interval", "50ms"], folder.path(), TerminalKind::Ordinary);
    top.wait_for("ends");
    server.signal("STOP");
    top.wait_for("yet");
    top.hang_up();
}

#[test]
fn a_demo_ends_with_its_terminal() {
    let arguments = ["demo", "--out", "out", "--clients", "20", "--duration", "30s"];
    for control in [TerminalKind::Ordinary, TerminalKind::Controlling] {
        let folder = tempfile::tempdir().unwrap();
        let mut demo = TerminalProcess::start(&arguments, folder.path(), control);
        demo.wait_for("q stops");
        demo.hang_up();
        assert!(!folder.path().join("out").exists());
    }
    let folder = tempfile::tempdir().unwrap();
    let mut demo = TerminalProcess::start(&arguments, folder.path(), TerminalKind::Ordinary);
    demo.wait_for("q stops");
    demo.signal("-TERM");
    wait_for_exit(demo.child);
}

#[test]
fn a_demo_of_tiers_ends_with_its_terminal() {
    let arguments =
        ["demo", "--service", "sets", "--leaves", "2", "--data", "synthetic:1500:20:4712", "--duration", "60s"];
    for control in [TerminalKind::Ordinary, TerminalKind::Controlling] {
        let folder = tempfile::tempdir().unwrap();
        let mut demo = TerminalProcess::start(&arguments, folder.path(), control);
        // Wait for a row of its own: text that replaces other text is drawn in pieces.
        demo.wait_for("sets-leaf");
        demo.hang_up();
        assert!(!folder.path().join("results").exists());
    }
}

#[test]
fn a_run_shows_progress_at_once_and_ends_with_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    // One run, far longer than this test.
    let long = ["--set", "run.duration=1000s", "--set", "run.seeds=1", "--set", "workload.demand=1x"];
    for control in [TerminalKind::Ordinary, TerminalKind::Controlling] {
        let mut run = TerminalProcess::start(&[&["run", "bw-overall"], &long[..]].concat(), folder.path(), control);
        run.wait_for("runs");
        run.hang_up();
        assert!(!folder.path().join("results").exists());
    }
}
