//! Bounds of functions by the unwinding tables, which a stripped file keeps.
//!
//! Contains no names.

use std::fs::File;
use std::path::Path;

use addr2line::gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use object::{Object, ObjectSection, ReadCache};

use super::pages::PagedFile;

/// Limit of functions per module.
const MOST: usize = 1 << 20;

/// Returns start and end of the functions in a file, sorted; none if it can't be read.
pub(super) fn bounds(path: &Path) -> Vec<(u64, u64)> {
    let mut found = read(path).unwrap_or_default();
    found.sort_unstable();
    found
}

fn read(path: &Path) -> Option<Vec<(u64, u64)>> {
    let cache = ReadCache::new(PagedFile::new(File::open(path).ok()?));
    let object = object::File::parse(&cache).ok()?;
    // The recorder runs on little-endian machines only.
    let section = object.section_by_name(".eh_frame").filter(|_| object.is_little_endian())?;
    let address = |name: &str| object.section_by_name(name).map_or(0, |section| section.address());
    let bases =
        BaseAddresses::default().set_eh_frame(section.address()).set_text(address(".text")).set_got(address(".got"));
    Some(functions(section.data().ok()?, &bases))
}

fn functions(section: &[u8], bases: &BaseAddresses) -> Vec<(u64, u64)> {
    let frames = EhFrame::new(section, LittleEndian);
    let mut entries = frames.entries(bases);
    let mut found = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(entry) = partial.parse(|frames, bases, offset| frames.cie_from_offset(bases, offset)) else { continue };
        let (start, end) = (entry.initial_address(), entry.end_address());
        if start < end && start != 0 && found.len() < MOST {
            found.push((start, end));
        }
    }
    found
}

/// Returns the bounds that contain an address.
pub(super) fn around(bounds: &[(u64, u64)], address: u64) -> Option<(u64, u64)> {
    let above = bounds.partition_point(|(start, _)| *start <= address);
    let found = *bounds.get(above.checked_sub(1)?)?;
    (address < found.1).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn this_program_has_bounds() {
        let found = bounds(&std::env::current_exe().unwrap());
        assert!(found.len() > 100, "{} functions", found.len());
        let (start, end) = found[50];
        assert_eq!(around(&found, start), Some((start, end)));
        assert_eq!(around(&found, end - 1).map(|found| found.1 >= end), Some(true));
        assert_eq!(around(&found, 0), None);
        assert!(bounds(Path::new("/nonexistent")).is_empty());
    }

    proptest! {
        #[test]
        fn any_section_is_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let bases = BaseAddresses::default().set_eh_frame(0x1000);
            prop_assert!(functions(&bytes, &bases).iter().all(|(start, end)| start < end));
        }
    }
}
