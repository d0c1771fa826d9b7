//! The file of a Unix socket that the proxy listens on: an old one is replaced, a live one is an
//! error, and it goes with the listener. Does not contain connections.

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The file of a listener; it is removed when this is dropped, if it is still the same one.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    id: Option<(u64, u64)>,
}

fn id(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Checks that this process may create a file in the folder of `path`.
///
/// # Errors
/// There is no such folder, or it may not write there.
pub(crate) fn check_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    access(folder, Access::WRITE_OK | Access::EXEC_OK)?;
    if folder.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

impl SocketFile {
    /// Listens on a path.
    ///
    /// # Errors
    /// Somebody listens there, the file is no socket, or the folder can't be written.
    pub(crate) fn listen(path: &Path) -> io::Result<(SocketFile, UnixListener)> {
        if let Ok(file) = fs::symlink_metadata(path) {
            if !file.file_type().is_socket() {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
            }
            if is_alive(path)? {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody listens there already"));
            }
            match fs::remove_file(path) {
                // Its owner, which ended at this moment, has removed it.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let listener = UnixListener::bind(path)?;
        let id = fs::symlink_metadata(path).ok().map(|file| id(&file));
        Ok((SocketFile { path: path.into(), id }, listener))
    }
}

impl SocketFile {
    /// The file as it is now.
    pub(crate) fn of(path: &Path) -> Self {
        let id = fs::symlink_metadata(path).ok().filter(|file| file.file_type().is_socket()).map(|file| id(&file));
        SocketFile { path: path.into(), id }
    }

    /// Leaves it where it is.
    pub(crate) fn keep(&mut self) {
        self.id = None;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let now = fs::symlink_metadata(&self.path).ok().map(|file| id(&file));
        if self.id.is_some() && now == self.id {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether somebody listens on a socket.
fn is_alive(path: &Path) -> io::Result<bool> {
    // One whose queue is full would make a blocking connection wait.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::CONNREFUSED) => Ok(false),
        // A socket of datagrams is somebody's, too.
        Err(Errno::PROTOTYPE) => Ok(true),
        // It has gone meanwhile.
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
