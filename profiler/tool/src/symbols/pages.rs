//! A file that is read in large pages, with random access.
//!
//! Symbols' names are read one by one; a system call for each would take longer than all other work
//! on symbols.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// Bytes of a page.
const PAGE: usize = 1 << 16;

/// A file and its most recently used page.
pub(super) struct PagedFile {
    file: File,
    page: Vec<u8>,
    /// Start of the page, and the position of the next read.
    begin: u64,
    at: u64,
}

impl PagedFile {
    pub(super) fn new(file: File) -> PagedFile {
        PagedFile { file, page: Vec::new(), begin: 0, at: 0 }
    }
}

impl Read for PagedFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let inside =
            |pages: &PagedFile| pages.at.checked_sub(pages.begin).is_some_and(|at| at < pages.page.len() as u64);
        if !inside(self) {
            self.begin = self.at / PAGE as u64 * PAGE as u64;
            self.page.clear();
            self.file.seek(SeekFrom::Start(self.begin))?;
            self.file.by_ref().take(PAGE as u64).read_to_end(&mut self.page)?;
        }
        let rest =
            usize::try_from(self.at - self.begin).ok().and_then(|from| self.page.get(from..)).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for PagedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.file.seek(SeekFrom::End(0))?.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn a_paged_file_reads_like_the_file(looks in prop::collection::vec((0_usize..200_000, 0_usize..100_000), 1..20)) {
            let bytes: Vec<u8> = (0..150_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            let mut pages = PagedFile::new(file);
            prop_assert_eq!(pages.seek(SeekFrom::End(0)).unwrap(), 150_000);
            for (from, count) in looks {
                pages.seek(SeekFrom::Start(from as u64)).unwrap();
                let mut read_bytes = Vec::new();
                pages.by_ref().take(count as u64).read_to_end(&mut read_bytes).unwrap();
                let from = from.min(bytes.len());
                prop_assert_eq!(&read_bytes[..], &bytes[from..(from + count).min(bytes.len())]);
            }
        }
    }
}
