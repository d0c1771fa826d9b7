//! Runs a memcached beside our port, and compares their answers.

use super::until;
use leeward_testkit::net::free_address;
use leeward_testkit::require::Requirement;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

/// A memcached process that ends with the test.
pub(crate) struct Memcached {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Memcached {
    /// Starts memcached; reports a missing requirement and returns `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        // If another program takes the port in between, the test fails loudly.
        let address = free_address();
        let mut command = Command::new("memcached");
        // Without its background threads: they reference items for a moment, and then `incr` makes
        // a new item.
        command.args([
            "-o",
            "no_modern",
            "-l",
            "127.0.0.1",
            "-U",
            "0",
            "-u",
            "nobody",
            "-t",
            "1",
            "-p",
            &address.port().to_string(),
        ]);
        let child = match command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Requirement::Memcached.missing("there is no memcached here (`scripts/setup kv`)");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let memcached = Memcached { child, address };
        until("memcached", || std::net::TcpStream::connect(address).is_ok());
        Some(memcached)
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Formats bytes for a failure message.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text: String =
        bytes.iter().take(600).flat_map(|byte| std::ascii::escape_default(*byte)).map(char::from).collect();
    if bytes.len() > 600 { format!("{text}... ({} bytes)", bytes.len()) } else { text }
}

/// Returns whether two conversations are equal, up to 2 s in the flags `l` and `t`.
///
/// The flags are the seconds since the last use and until expiry; the two programs' clocks tick at
/// different times.
pub(crate) fn is_equivalent(theirs: &[u8], ours: &[u8]) -> bool {
    let seconds = |word: &[u8]| -> Option<(u8, i64)> {
        let (&flag, digits) = word.split_first()?;
        let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
        matches!(flag, b'l' | b't').then_some((flag, number))
    };
    let same_line = |theirs: &[u8], ours: &[u8]| {
        let is_meta = theirs.starts_with(b"HD ") || theirs.starts_with(b"VA ");
        let words = |line: &[u8]| line.split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect::<Vec<_>>();
        let (left, right) = (words(theirs), words(ours));
        let same_word = |(theirs, ours): (&Vec<u8>, &Vec<u8>)| {
            let ticked = matches!((seconds(theirs), seconds(ours)), (Some((flag, a)), Some((other, b)))
                if flag == other && (a - b).abs() <= 2 && a >= 0 && b >= 0);
            theirs == ours || ticked
        };
        theirs == ours || is_meta && left.len() == right.len() && left.iter().zip(&right).all(same_word)
    };
    let lines = |text: &[u8]| -> Vec<Vec<u8>> {
        text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line).to_vec()).collect()
    };
    let (theirs, ours) = (lines(theirs), lines(ours));
    theirs.len() == ours.len() && theirs.iter().zip(&ours).all(|(theirs, ours)| same_line(theirs, ours))
}
