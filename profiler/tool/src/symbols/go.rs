//! Functions by the table that every Go program carries for its own stack traces, also a stripped
//! one.
//!
//! Contains no lines of source files.

/// First bytes of the table since Go 1.18, and since Go 1.20.
const MAGIC: [u32; 2] = [0xffff_fff0, 0xffff_fff1];
/// Limit of functions per module.
const MOST: usize = 1 << 20;
/// Limit of a name's bytes.
const NAME: usize = 1 << 12;
/// Sections that hold the table; the second in position-independent programs.
pub const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

/// A function of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoFunction<'a> {
    /// Address in the file.
    pub address: u64,
    /// Bytes of code.
    pub size: u64,
    /// Name, with the path of its package.
    pub name: &'a str,
}

/// Little-endian numbers at positions of the table.
#[derive(Clone, Copy)]
struct Table<'a>(&'a [u8]);

impl<'a> Table<'a> {
    fn u32(self, at: usize) -> Option<u32> {
        let bytes = self.0.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    fn word(self, index: usize) -> Option<usize> {
        let at = 8 + 8 * index;
        let bytes = self.0.get(at..at.checked_add(8)?)?;
        usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
    }

    fn text(self, at: usize) -> Option<&'a str> {
        let rest = self.0.get(at..)?;
        let rest = &rest[..rest.len().min(NAME)];
        let end = rest.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&rest[..end]).ok().filter(|name| !name.is_empty())
    }
}

/// Returns the functions of a table, none if it is of another version of Go. `text` is the address
/// of the code's section, and `entry` is where the program begins.
pub fn functions(table: &[u8], text: u64, entry: u64) -> Vec<GoFunction<'_>> {
    read(Table(table), text, entry).unwrap_or_default()
}

fn read(table: Table<'_>, text: u64, entry: u64) -> Option<Vec<GoFunction<'_>>> {
    // Quantum of instructions, and size of a pointer.
    if !MAGIC.contains(&table.u32(0)?) || table.0.get(7) != Some(&8) {
        return None;
    }
    let (count, declared) = (table.word(0)?.min(MOST), table.word(2)? as u64);
    let (names, index) = (table.word(3)?, table.word(7)?);
    let mut found = Vec::new();
    for number in 0..count {
        let at = index.checked_add(number.checked_mul(8)?)?;
        // A truncated table keeps its begin.
        let (Some(start), Some(about), Some(end)) = (table.u32(at), table.u32(at + 4), table.u32(at + 8)) else {
            break;
        };
        let name = index.checked_add(about as usize + 4).and_then(|at| table.u32(at));
        let name = name.and_then(|offset| table.text(names.checked_add(offset as usize)?));
        if let (Some(name), true) = (name, start < end) {
            found.push(GoFunction { address: u64::from(start), size: u64::from(end - start), name });
        }
    }
    let base = base(&found, declared, text, entry);
    for function in &mut found {
        function.address = function.address.wrapping_add(base);
    }
    Some(found)
}

/// Returns the address from which the table's offsets count. Since Go 1.26 the table does not have
/// it; but the program begins in a function with a known name, unless C code is linked to it.
fn base(functions: &[GoFunction<'_>], declared: u64, text: u64, entry: u64) -> u64 {
    let begin =
        functions.iter().find(|function| function.name.starts_with("_rt0_") && function.name.ends_with("_linux"));
    match begin {
        _ if declared != 0 => declared,
        Some(function) if entry.wrapping_sub(function.address).wrapping_sub(text) < 1 << 32 => {
            entry.wrapping_sub(function.address)
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A table of two functions, at offsets 0x10 and 0x40 of the code.
    fn table(start: u64) -> Vec<u8> {
        let names = b"_rt0_amd64_linux\0main.report\0";
        let (header, functions) = (8 + 8 * 8, 3 * 8 + 2 * 8);
        let mut bytes = 0xffff_fff1_u32.to_le_bytes().to_vec();
        bytes.extend([0, 0, 1, 8]);
        for word in [2, 0, start, (header + functions) as u64, 0, 0, 0, header as u64] {
            bytes.extend(word.to_le_bytes());
        }
        for (offset, about) in [(0x10_u32, 24_u32), (0x40, 32), (0x90, 0)] {
            bytes.extend(offset.to_le_bytes());
            bytes.extend(about.to_le_bytes());
        }
        for (offset, name) in [(0x10_u32, 0_u32), (0x40, 17)] {
            bytes.extend(offset.to_le_bytes());
            bytes.extend(name.to_le_bytes());
        }
        bytes.extend(names);
        bytes
    }

    #[test]
    fn functions_have_names_sizes_and_addresses() {
        let report = |address| GoFunction { address, size: 0x50, name: "main.report" };
        assert_eq!(functions(&table(0x40_1000), 0, 0)[1], report(0x40_1040));
        // Without a declared begin: by the function in which the program begins.
        assert_eq!(functions(&table(0), 0x40_0000, 0x40_2010)[1], report(0x40_2040));
        assert_eq!(functions(&table(0), 0x40_0000, 0)[1], report(0x40_0040));
    }

    proptest! {
        #[test]
        fn damaged_tables_are_read_without_a_panic(
            changes in prop::collection::vec((0_usize..200, any::<u8>()), 0..8),
            length in 0_usize..200,
        ) {
            let mut bytes = table(0);
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes.truncate(length);
            prop_assert!(functions(&bytes, 0x1000, 0x1010).len() <= MOST);
        }
    }
}
