//! Programs that draw on a terminal, on a pseudo-terminal: they end when it does, however they learn of that.

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

/// `O_NOCTTY`: the test is not to be sent signals by this terminal.
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
struct Shown {
    child: Child,
    master: File,
}

/// Whether the terminal is the controlling one, whose end is told by SIGHUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    Controlling,
    Another,
}

impl Shown {
    fn start(arguments: &[&str], folder: &Path, control: Control) -> Shown {
        let terminal = Terminal::open();
        let program = env!("CARGO_BIN_EXE_leeward");
        let mut command = match control {
            Control::Controlling => {
                let mut command = Command::new("setsid");
                command.args(["--ctty", program]);
                command
            }
            Control::Another => Command::new(program),
        };
        command.args(arguments).current_dir(folder).env("TERM", "xterm").env_remove("NO_COLOR");
        command.stdin(terminal.stdio()).stdout(terminal.stdio()).stderr(terminal.stdio());
        Shown { child: command.spawn().unwrap(), master: terminal.master }
    }

    /// Reads what is drawn until `part` is there. One word: a view does not draw the blanks between words.
    fn until(&mut self, part: &str) {
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

    /// The terminal goes; then the program ends, or is killed after a time that none should need.
    fn hang_up(self) -> ExitStatus {
        let Shown { child, master } = self;
        drop(master);
        ended(child)
    }
}

fn ended(mut child: Child) -> ExitStatus {
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
fn a_watcher_ends_with_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["--admission", "none"]);
    for control in [Control::Another, Control::Controlling] {
        let mut top = Shown::start(&["top", &server.address, "--interval", "10s"], folder.path(), control);
        top.until("ends");
        top.hang_up();
    }
    for signal in ["-TERM", "-HUP"] {
        let mut top = Shown::start(&["top", &server.address, "--interval", "10s"], folder.path(), Control::Another);
        top.until("ends");
        top.signal(signal);
        ended(top.child);
    }
}

/// A server that stops answering is no reason to stay, nor are its last numbers news.
#[test]
fn a_watcher_of_a_silent_server_says_so_and_ends_with_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["--admission", "none"]);
    let mut top = Shown::start(&["top", &server.address, "--interval", "50ms"], folder.path(), Control::Another);
    top.until("ends");
    drop(server);
    top.until("answer");
    top.hang_up();
}

#[test]
fn a_demo_ends_with_its_terminal() {
    let arguments = ["demo", "--out", "out", "--clients", "20", "--duration", "30s"];
    for control in [Control::Another, Control::Controlling] {
        let folder = tempfile::tempdir().unwrap();
        let mut demo = Shown::start(&arguments, folder.path(), control);
        demo.until("q stops");
        demo.hang_up();
        assert!(!folder.path().join("out").exists());
    }
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Shown::start(&arguments, folder.path(), Control::Another);
    demo.until("q stops");
    demo.signal("-TERM");
    ended(demo.child);
}

#[test]
fn a_demo_of_tiers_ends_with_its_terminal() {
    let arguments =
        ["demo", "--service", "sets", "--leaves", "2", "--data", "synthetic:1500:20:4712", "--duration", "60s"];
    for control in [Control::Another, Control::Controlling] {
        let folder = tempfile::tempdir().unwrap();
        let mut demo = Shown::start(&arguments, folder.path(), control);
        // A row of its own: what replaces other text is drawn in pieces.
        demo.until("sets-leaf");
        demo.hang_up();
        assert!(!folder.path().join("results").exists());
    }
}

#[test]
fn a_run_shows_itself_at_once_and_ends_with_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    // One run, far longer than anybody waits here.
    let long = ["--set", "run.duration=1000s", "--set", "run.seeds=1", "--set", "workload.demand=1x"];
    for control in [Control::Another, Control::Controlling] {
        let mut run = Shown::start(&[&["run", "bw-overall"], &long[..]].concat(), folder.path(), control);
        run.until("runs");
        run.hang_up();
        assert!(!folder.path().join("results").exists());
    }
}
