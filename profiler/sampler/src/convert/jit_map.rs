//! What a just-in-time compiler writes about its code, `/tmp/perf-PID.map`: where functions begin,
//! and a copy of the file for the trace.
//!
//! The file lies in the recorded process's folders, so it is the process that chooses its content,
//! but not which file is read. Does not contain the parser (`leeward-profile`).

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use leeward_profile::symbols::perf_map::{ENTRIES, FILE_BYTES, parse};
use rustix::fs::{Mode, OFlags, openat};

/// Shortest time between two looks for new functions in the file.
const LOOK: Duration = Duration::from_millis(200);
/// Bytes of the file that are read in one look.
const LOOK_BYTES: u64 = 1 << 22;
/// Functions before an address that are examined: old ones stay in the file.
const OVERLAPPING: usize = 16;

/// The folder of a process's map, held open: the map outlives the process.
#[derive(Debug)]
pub struct JitMap {
    temporary: OwnedFd,
    /// Name of the file: the process's id in its own namespace is part of it.
    name: String,
    pid: u32,
    owner: u32,
    /// Ends of functions, by their start.
    functions: BTreeMap<u64, u64>,
    /// Bytes of the file that were read, and when.
    read: u64,
    looked: Option<Instant>,
}

impl JitMap {
    /// Opens the folder; `None` if the process has ended.
    pub fn of_process(pid: u32) -> Option<JitMap> {
        let root = format!("/proc/{pid}");
        let status = fs::read_to_string(format!("{root}/status")).ok()?;
        let own = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().next_back()?;
        let name = format!("perf-{}.map", own.parse::<u32>().ok()?);
        let temporary = File::open(format!("{root}/root/tmp")).ok()?;
        let owner = fs::metadata(&root).ok()?.uid();
        let functions = BTreeMap::new();
        Some(JitMap { temporary: temporary.into(), name, pid, owner, functions, read: 0, looked: None })
    }

    /// Returns whether there is a map by now.
    pub fn exists(&self) -> bool {
        self.open().is_some()
    }

    /// Returns the start of the function at an address.
    pub fn function(&mut self, address: u64) -> Option<u64> {
        self.known(address).or_else(|| {
            if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
                return None;
            }
            self.looked = Some(Instant::now());
            self.look()?;
            self.known(address)
        })
    }

    fn known(&self, address: u64) -> Option<u64> {
        let mut before = self.functions.range(..=address).rev().take(OVERLAPPING);
        before.find(|(_, end)| address < **end).map(|(start, _)| *start)
    }

    /// Reads the whole lines that are new in the file.
    fn look(&mut self) -> Option<()> {
        let mut file = self.open()?;
        file.seek(SeekFrom::Start(self.read)).ok()?;
        let mut bytes = Vec::new();
        file.take(LOOK_BYTES.min(FILE_BYTES.saturating_sub(self.read))).read_to_end(&mut bytes).ok()?;
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n')? + 1);
        self.read += bytes.len() as u64;
        for (start, size, _) in String::from_utf8_lossy(&bytes).lines().filter_map(parse) {
            if self.functions.len() < ENTRIES {
                self.functions.insert(start, start.saturating_add(size));
            }
        }
        Some(())
    }

    /// Copies the map into the folder of a trace; returns its bytes, 0 if there is none.
    ///
    /// # Errors
    /// The copy can't be written.
    pub fn copy(&self, trace: &Path) -> io::Result<u64> {
        let Some(map) = self.open() else { return Ok(0) };
        let path = trace.join(format!("perf-{}.map", self.pid));
        let mut copy = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        io::copy(&mut map.take(FILE_BYTES), &mut copy)
    }

    /// Opens the map if it is a file of the process's user: neither a link to another file nor a
    /// pipe, which would never end.
    fn open(&self) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&self.temporary, self.name.as_str(), flags, Mode::empty()).ok()?);
        let about = file.metadata().ok()?;
        (about.is_file() && (about.uid() == self.owner || about.uid() == 0)).then_some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// The map of this process, as if another folder were its `/tmp`.
    fn map(folder: &Path) -> JitMap {
        let own = JitMap::of_process(std::process::id()).unwrap();
        JitMap { temporary: File::open(folder).unwrap().into(), ..own }
    }

    #[test]
    fn a_map_is_copied_for_its_owner_only() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let map = map(from.path());
        assert_eq!(map.copy(to.path()).unwrap(), 0);
        fs::write(from.path().join(&map.name), "1000 10 py::work:/a.py\n").unwrap();
        let mut functions = JitMap { looked: None, ..self::map(from.path()) };
        assert_eq!((functions.function(0x1008), functions.function(0x1010)), (Some(0x1000), None));
        assert_eq!(map.copy(to.path()).unwrap(), 23);
        let copied = to.path().join(format!("perf-{}.map", std::process::id()));
        assert_eq!(fs::metadata(copied).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_link_to_another_file_is_not_followed() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let map = map(from.path());
        symlink("/proc/self/status", from.path().join(&map.name)).unwrap();
        assert_eq!(map.copy(to.path()).unwrap(), 0);
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0);
    }
}
