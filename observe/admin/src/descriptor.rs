//! Recognises a descriptor that the program has closed behind the admin port's back, as daemons do
//! that close all descriptors. Its number may name another file by then, which must be neither read
//! nor closed. Does not contain sockets.

use rustix::fs::fstat;
use std::os::fd::AsFd;

/// Device and inode of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity(Option<(u64, u64)>);

impl FileIdentity {
    /// The file that the descriptor names now.
    pub(crate) fn of(descriptor: &impl AsFd) -> Self {
        // The fields' types differ between systems.
        #[allow(clippy::unnecessary_cast)]
        FileIdentity(fstat(descriptor).ok().map(|of| (of.st_dev as u64, of.st_ino as u64)))
    }

    /// Whether the descriptor still names this file.
    pub(crate) fn is_of(self, descriptor: &impl AsFd) -> bool {
        self.0.is_some() && FileIdentity::of(descriptor) == self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn each_socket_has_its_identity() {
        let (one, other) = UnixStream::pair().unwrap();
        let identity = FileIdentity::of(&one);
        assert!(identity.is_of(&one) && !identity.is_of(&other));
        assert!(!FileIdentity(None).is_of(&one));
    }
}
