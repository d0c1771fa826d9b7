//! Servers of this program for tests of tiers: started on a free port, killed when dropped.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

pub(crate) fn leeward(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leeward")).args(arguments).current_dir(folder).output().unwrap()
}

/// A running server and its address.
pub(crate) struct Server(Child, pub(crate) String);

impl Server {
    pub(crate) fn start(arguments: &[&str], folder: &Path) -> Server {
        Server::start_at("127.0.0.1:0", arguments, folder)
    }

    pub(crate) fn start_at(address: &str, arguments: &[&str], folder: &Path) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_leeward"))
            .args([&["serve", "--listen", address], arguments].concat())
            .current_dir(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address =
            line.split(" on ").nth(1).unwrap_or_else(|| panic!("{line}")).split(' ').next().unwrap().to_string();
        Server(child, address)
    }

    /// Sends a signal: STOP, CONT.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success(), "{name}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
