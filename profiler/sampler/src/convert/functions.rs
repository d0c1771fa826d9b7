//! Where the functions of an ELF file begin: by its symbols, and by its unwind table where there
//! are none, so that samples of a stripped program show calls of functions, too.
//!
//! Does not contain names.

use std::fs::File;

use leeward_profile::symbols::go;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache, SymbolKind};

/// Limit of functions per file.
const FUNCTIONS: usize = 2_000_000;
/// Limit of the bytes of an unwind table's index: eight for each function.
const INDEX_BYTES: u64 = 8 * FUNCTIONS as u64 + 64;
/// Symbols before an address that are examined: they may lie within each other.
const NESTED: usize = 8;
/// Limit of segments per file.
const SEGMENTS: usize = 256;

/// What an ELF file says of its code. Addresses as in the file.
#[derive(Debug, Default)]
pub struct ElfCode {
    /// The build-id; empty if the file has none.
    pub build_id: Vec<u8>,
    /// Segments that are loaded as code: offset and size in the file, address.
    segments: Vec<(u64, u64, u64)>,
    /// Start and end of functions with a symbol, by start.
    symbols: Vec<(u64, u64)>,
    /// Starts of functions in the unwind table, in order.
    unwind: Vec<u64>,
}

impl ElfCode {
    /// Reads a file. What can't be read is left out.
    pub fn read(file: File) -> ElfCode {
        let mut code = ElfCode::default();
        let cache = ReadCache::new(file);
        let Ok(object) = object::File::parse(&cache) else { return code };
        code.build_id = object.build_id().ok().flatten().unwrap_or_default().to_vec();
        code.build_id.truncate(64);
        for segment in object.segments().take(SEGMENTS) {
            let object::SegmentFlags::Elf { p_flags, .. } = segment.flags() else { continue };
            if p_flags & object::elf::PF_X == object::elf::PF_X {
                let (offset, size) = segment.file_range();
                code.segments.push((offset, size, segment.address()));
            }
        }
        for symbol in object.symbols().chain(object.dynamic_symbols()) {
            if symbol.kind() == SymbolKind::Text && symbol.size() > 0 && code.symbols.len() < FUNCTIONS {
                code.symbols.push((symbol.address(), symbol.address().saturating_add(symbol.size())));
            }
        }
        code.add_go(&object);
        code.symbols.sort_unstable();
        code.symbols.dedup();
        code.unwind = unwind_starts(&object).unwrap_or_default();
        code
    }

    /// Adds the functions of a Go program, which has no unwind table. Without its table of symbols
    /// it still has one of its own.
    fn add_go<'a>(&mut self, object: &impl Object<'a>) {
        let section = go::SECTIONS.iter().find_map(|name| object.section_by_name(name));
        let Some(table) = section.filter(|_| self.symbols.is_empty()).and_then(|section| section.data().ok()) else {
            return;
        };
        let text = object.section_by_name(".text").map_or(0, |section| section.address());
        let bounds = go::functions(table, text, object.entry())
            .into_iter()
            .map(|function| (function.address, function.address.saturating_add(function.size)));
        self.symbols.extend(bounds.take(FUNCTIONS));
    }

    /// Returns whether nothing is known of the file, such as because it could not be read.
    pub fn is_unknown(&self) -> bool {
        self.segments.is_empty()
    }

    /// Returns the address in the file of the byte at this offset of the file.
    pub fn address(&self, offset: u64, length: u64) -> Option<u64> {
        let covers = |(start, size, _): &&(u64, u64, u64)| {
            offset < start.saturating_add(*size) && offset.saturating_add(length) > *start
        };
        self.segments.iter().find(covers).map(|(start, _, address)| address.wrapping_add(offset).wrapping_sub(*start))
    }

    /// Returns the start of the function that contains an address.
    pub fn function(&self, address: u64) -> Option<u64> {
        let after = self.symbols.partition_point(|(start, _)| *start <= address);
        let near = self.symbols[..after].iter().rev().take(NESTED);
        let symbol = near.clone().find(|(_, end)| address < *end).map(|(start, _)| *start);
        symbol.or_else(|| {
            let after = self.unwind.partition_point(|start| *start <= address);
            after.checked_sub(1).map(|index| self.unwind[index])
        })
    }
}

/// Reads the sorted index of the unwind table, `.eh_frame_hdr`.
fn unwind_starts<'a>(object: &impl Object<'a>) -> Option<Vec<u64>> {
    /// Encodings that all linkers use: four bytes, relative to the place or to the section.
    const USUAL: [u8; 4] = [1, 0x1B, 0x03, 0x3B];
    let section = object.section_by_name(".eh_frame_hdr")?;
    if section.size() > INDEX_BYTES {
        return None;
    }
    let bytes = section.data().ok()?;
    if bytes.get(..4)? != USUAL {
        return None;
    }
    let entries = bytes.get(12..)?.chunks_exact(8);
    let start = |entry: &[u8]| {
        let relative = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        section.address().wrapping_add_signed(i64::from(relative))
    };
    let count = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?) as usize;
    let mut starts: Vec<u64> = entries.take(count.min(FUNCTIONS)).map(start).collect();
    starts.sort_unstable();
    Some(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test's own program: it has symbols, an unwind table, and code at an offset.
    fn own() -> ElfCode {
        ElfCode::read(File::open("/proc/self/exe").unwrap())
    }

    #[test]
    fn symbols_and_the_unwind_table_agree_about_most_functions() {
        let code = own();
        assert!(code.symbols.len() > 1000 && code.unwind.len() > 1000);
        let bare = ElfCode { symbols: Vec::new(), ..own() };
        let (mut same, mut all) = (0, 0);
        for (start, end) in code.symbols.iter().step_by(97) {
            let middle = start + (end - start) / 2;
            all += 1;
            same += usize::from(bare.function(middle) == code.function(middle));
        }
        assert!(same * 10 >= all * 9, "{same} of {all}");
    }

    #[test]
    fn an_address_in_no_function_has_none() {
        let code = ElfCode { symbols: vec![(10, 20), (12, 14), (30, 40)], ..ElfCode::default() };
        let found = [5, 10, 13, 15, 20, 39, 40].map(|address| code.function(address));
        assert_eq!(found, [None, Some(10), Some(12), Some(10), None, Some(30), None]);
    }

    #[test]
    fn offsets_become_addresses() {
        let code = ElfCode { segments: vec![(0x1234, 0x5000, 0x41234)], ..ElfCode::default() };
        assert_eq!(code.address(0x1000, 0x6000), Some(0x41000));
        assert_eq!(code.address(0x2000, 0x1000), Some(0x42000));
        assert_eq!(code.address(0x9000, 0x1000), None);
    }

    #[test]
    fn what_is_no_program_has_no_functions() {
        let code = ElfCode::read(File::open("/proc/self/status").unwrap());
        assert!(code.build_id.is_empty() && code.function(1).is_none() && code.address(0, 1).is_none());
    }
}
