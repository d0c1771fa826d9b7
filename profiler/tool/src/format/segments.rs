//! Files of a trace that is being written: their names, rights, and the budget of the disk.
//!
//! Does not contain the blocks in them.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Bytes of a segment before its first block, the header.
const PREAMBLE: u64 = 16;
/// An end has 41 bytes.
const END_ROOM: usize = 64;

/// Segments in a folder. The last one is open.
#[derive(Debug)]
pub(super) struct SegmentFiles {
    folder: PathBuf,
    file: File,
    number: u32,
    /// Bytes of the open segment.
    written: u64,
    /// Where its last block begins that is larger than an end.
    last_block: u64,
    /// Finished segments that are still there, with their bytes.
    finished: VecDeque<(u32, u64)>,
    segment_bytes: u64,
    budget_bytes: u64,
}

impl SegmentFiles {
    /// Begins segment 0; creates a missing folder, and deletes the segments of another trace in it.
    pub(super) fn create(folder: &Path, segment_bytes: u64, budget_bytes: u64) -> io::Result<SegmentFiles> {
        create_folder(folder)?;
        for entry in fs::read_dir(folder)?.flatten() {
            if is_segment(&entry.path()) {
                fs::remove_file(entry.path())?;
            }
        }
        let file = create_file(&segment_path(folder, 0))?;
        let finished = VecDeque::new();
        Ok(SegmentFiles {
            folder: folder.into(),
            file,
            number: 0,
            written: 0,
            last_block: 0,
            finished,
            segment_bytes,
            budget_bytes,
        })
    }

    /// Returns the number of the open segment.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Returns the bytes of all segments.
    pub(super) fn bytes(&self) -> u64 {
        self.written + self.finished.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    /// Returns whether the open segment has reached its size.
    pub(super) fn is_full(&self) -> bool {
        self.written >= self.segment_bytes
    }

    /// Appends a block, or what stands before the first, to the open segment: as a whole or not at
    /// all.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            let _ = self.cut(self.written); // the first error counts
            return Err(error);
        }
        if bytes.len() >= END_ROOM {
            self.last_block = self.written;
        }
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Makes room for the end in a file that cannot grow: drops the last block that is larger, and
    /// what follows it. Keeps the header.
    pub(super) fn drop_last_block(&mut self) -> io::Result<()> {
        if self.last_block <= PREAMBLE {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.written = self.last_block;
        self.last_block = 0;
        self.cut(self.written)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.file.seek(SeekFrom::Start(length)).map(|_| ())
    }

    /// Begins the next segment, and deletes the oldest ones beyond the budget.
    pub(super) fn begin_next(&mut self) -> io::Result<()> {
        self.finished.push_back((self.number, self.written));
        (self.written, self.last_block) = (0, 0);
        while self.bytes().saturating_add(self.segment_bytes) > self.budget_bytes {
            let Some((oldest, _)) = self.finished.pop_front() else { break };
            match fs::remove_file(segment_path(&self.folder, oldest)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.number += 1;
        self.file = create_file(&segment_path(&self.folder, self.number))?;
        Ok(())
    }
}

/// Returns whether a path has a segment's name.
fn is_segment(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".lwt"));
    name.is_some_and(|number| number.len() >= 8 && number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Creates a file that only its owner may read: function names and labels tell of the program.
fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Another user could have put a link here.
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Returns the path of a segment.
pub fn segment_path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number:08}.lwt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_segments_go_when_the_budget_is_spent() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = SegmentFiles::create(folder.path(), 100, 400).unwrap();
        for _ in 0..10 {
            files.append(&[7; 60]).unwrap();
            assert!(!files.is_full());
            files.append(&[7; 60]).unwrap();
            assert!(files.is_full());
            files.begin_next().unwrap();
            assert!(files.bytes() + 100 <= 400);
        }
        let mut left: Vec<u32> = (0..11).filter(|number| segment_path(folder.path(), *number).exists()).collect();
        assert_eq!(left.pop(), Some(10));
        assert_eq!(left, [8, 9]);
    }

    #[test]
    fn the_end_takes_the_place_of_the_last_large_block() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = SegmentFiles::create(folder.path(), 1_000, 4_000).unwrap();
        let on_disk = || fs::read(segment_path(folder.path(), 0)).unwrap();
        let (head, header) = ([1; PREAMBLE as usize], [2; 100]);
        files.append(&head).unwrap();
        files.append(&header).unwrap();
        assert!(files.drop_last_block().is_err(), "the header stays");
        for block in [&[3; 80][..], &[4; 80], &[5; 10]] {
            files.append(block).unwrap();
        }
        files.drop_last_block().unwrap();
        files.append(&[6; 41]).unwrap();
        assert_eq!(on_disk(), [&head[..], &header, &[3; 80], &[6; 41]].concat());
        assert_eq!(files.bytes(), on_disk().len() as u64);
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_may_read() {
        use std::os::unix::fs::PermissionsExt;
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("a/b");
        drop(SegmentFiles::create(&folder, 100, 400).unwrap());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder) & 0o077, 0);
        assert_eq!(mode(&segment_path(&folder, 0)), 0o600);
    }

    #[test]
    fn another_trace_in_the_folder_is_replaced_and_other_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["00000003.lwt", "perf.map", "my.lwt"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        drop(SegmentFiles::create(folder.path(), 100, 400).unwrap());
        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["00000000.lwt", "my.lwt", "perf.map"]);
    }
}
