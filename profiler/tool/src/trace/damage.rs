//! Damage of a trace, as a bounded list, and its description.

use std::fmt;
use std::path::PathBuf;

use crate::format::varint::FormatError;

/// Limit of listed regions; further ones are only counted.
const REGIONS_MAX: usize = 50;

/// Bytes that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The file.
    pub file: PathBuf,
    /// Offset of the region in the file.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Reason of the failure.
    pub reason: String,
}

/// Damage of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// The first unreadable regions.
    pub regions: Vec<Region>,
    /// Number of unreadable regions.
    pub count: u64,
    /// Total of unreadable bytes.
    pub bytes: u64,
    /// The end is missing: the program, or the recorder beside it, was killed, the trace was
    /// truncated, or it is still being written.
    pub missing_end: bool,
    /// Missing segments between others: first and last number of each gap.
    pub gaps: Vec<(u32, u32)>,
    /// Skipped files, with the reason.
    pub skipped_files: Vec<(PathBuf, String)>,
    /// Number of threads, modules and notes that were dropped because there were too many.
    pub dropped_entries: u64,
}

impl Damage {
    /// Returns whether the trace is undamaged.
    pub fn is_none(&self) -> bool {
        *self == Damage::default()
    }

    pub(super) fn region(&mut self, file: &std::path::Path, offset: u64, bytes: u64, why: &str) {
        self.count += 1;
        self.bytes += bytes;
        if self.regions.len() < REGIONS_MAX {
            self.regions.push(Region { file: file.to_path_buf(), offset, bytes, reason: why.into() });
        }
    }

    pub(super) fn malformed(&mut self, file: &std::path::Path, offset: u64, bytes: u64, error: FormatError) {
        self.region(file, offset, bytes, &format!("a block with a correct checksum can't be decoded: {error}"));
    }
}

impl fmt::Display for Damage {
    /// Writes a line per finding.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for region in &self.regions {
            let name = region.file.file_name().unwrap_or_default().to_string_lossy();
            writeln!(f, "{name}: {} bytes at {} can't be read: {}", region.bytes, region.offset, region.reason)?;
        }
        let unlisted = self.count - self.regions.len() as u64;
        if unlisted > 0 {
            writeln!(f, "and {unlisted} more places, {} bytes in all", self.bytes)?;
        }
        for (first, last) in &self.gaps {
            if first == last {
                writeln!(f, "segment {first} is missing")?;
            } else {
                writeln!(f, "segments {first} to {last} are missing")?;
            }
        }
        for (path, why) in &self.skipped_files {
            writeln!(f, "{} was left out: {why}", path.display())?;
        }
        if self.dropped_entries > 0 {
            writeln!(f, "{} threads, modules or notes were left out: there are too many", self.dropped_entries)?;
        }
        if self.missing_end {
            writeln!(f, "its end is missing: who wrote it was killed, or it was cut off")?;
        }
        Ok(())
    }
}
