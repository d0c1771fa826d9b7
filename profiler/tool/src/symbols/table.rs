//! A module's symbol table: finds the symbol that covers an address. It respects sizes, so that a
//! stripped file gives no wrong names.

use std::fs::File;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection, ObjectSymbol, ReadCache, SectionKind, SymbolKind};

use super::pages::PagedFile;
use super::{demangle, functions, go};
use crate::hash::Set;

/// Limit of symbols per module.
const MOST: usize = 2_000_000;

/// Sorted symbols; their names are concatenated.
#[derive(Debug, Default)]
pub(super) struct Table {
    symbols: Vec<(u64, u64, u32, u32)>,
    names: String,
    /// End of the last section with code.
    code_end: u64,
    /// The file with the unwinding tables, and the functions' bounds; read on first use.
    unwinding: Option<PathBuf>,
    bounds: Option<Vec<(u64, u64)>>,
    /// Names of Rust functions that are not closures; filled on first use.
    code: Option<Set<String>>,
}

impl Table {
    /// Adds the symbols of a file; none if it can't be read.
    pub(super) fn add_file(&mut self, path: &Path) {
        let Ok(file) = File::open(path) else { return };
        let cache = ReadCache::new(PagedFile::new(file));
        let Ok(object) = object::File::parse(&cache) else { return };
        let code_ends = object.sections().filter(|section| section.kind() == SectionKind::Text);
        let code_ends = code_ends.map(|section| section.address().saturating_add(section.size()));
        self.code_end = code_ends.fold(self.code_end, u64::max);
        let before = self.symbols.len();
        for symbol in object.symbols() {
            if symbol.kind() == SymbolKind::Text && symbol.address() != 0 {
                self.add(symbol.address(), symbol.size(), symbol.name().unwrap_or_default());
            }
        }
        // Without its table of all symbols a file has no symbol for most functions, so one without
        // a size must not reach to the next one.
        let is_stripped = self.symbols.len() == before;
        for symbol in object.dynamic_symbols() {
            if symbol.kind() == SymbolKind::Text && symbol.address() != 0 {
                let size = if is_stripped { symbol.size().max(1) } else { symbol.size() };
                self.add(symbol.address(), size, symbol.name().unwrap_or_default());
            }
        }
        if is_stripped && let Some(section) = go::SECTIONS.iter().find_map(|name| object.section_by_name(name)) {
            let text = object.section_by_name(".text").map_or(0, |section| section.address());
            for function in go::functions(section.data().unwrap_or_default(), text, object.entry()) {
                self.add(function.address, function.size, function.name);
            }
        }
    }

    fn add(&mut self, address: u64, size: u64, name: &str) {
        let Ok(begin) = u32::try_from(self.names.len()) else { return };
        if self.symbols.len() < MOST && !name.is_empty() {
            self.names.push_str(name);
            self.symbols.push((address, size, begin, name.len() as u32));
        }
    }

    /// Sets the file whose unwinding tables tell the bounds of functions without a symbol.
    pub(super) fn set_unwinding(&mut self, path: &Path) {
        self.unwinding = Some(path.to_path_buf());
    }

    /// Returns the start of the function at an address, by the unwinding tables.
    pub(super) fn start(&mut self, address: u64) -> Option<u64> {
        let path = self.unwinding.as_deref()?;
        let bounds = self.bounds.get_or_insert_with(|| functions::bounds(path));
        functions::around(bounds, address).map(|(start, _)| start)
    }

    pub(super) fn sort(&mut self) {
        // Of several symbols at one address the longest comes last, so that it is found first.
        self.symbols.sort_unstable_by_key(|(address, size, ..)| (*address, *size));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// Returns whether a Rust function with this name has code of its own.
    pub(super) fn has_code(&mut self, name: &str) -> bool {
        let Table { symbols, names, code, .. } = self;
        let code = code.get_or_insert_with(|| {
            let name_of = |(_, _, begin, length): &(u64, u64, u32, u32)| {
                let symbol = names.get(*begin as usize..(*begin as usize).checked_add(*length as usize)?)?;
                let is_rust = symbol.starts_with("_R") || symbol.starts_with("_ZN");
                let name = is_rust.then(|| demangle::name(symbol))?;
                (!name.ends_with('}')).then_some(name)
            };
            symbols.iter().filter_map(name_of).collect()
        });
        code.contains(name)
    }

    /// Returns the end of the symbol that begins at an address.
    pub(super) fn end(&self, address: u64) -> Option<u64> {
        let above = self.symbols.partition_point(|(start, ..)| *start <= address);
        let (start, size, ..) = *self.symbols.get(above.checked_sub(1)?)?;
        (start == address && size > 0).then(|| start.saturating_add(size))
    }

    /// Returns whether a symbol with this name exists.
    pub(super) fn defines(&self, name: &str) -> bool {
        self.symbols.iter().any(|(_, _, begin, length)| {
            self.names.get(*begin as usize..).is_some_and(|rest| rest.starts_with(name))
                && *length as usize == name.len()
        })
    }

    /// Returns the symbol that covers an address; a symbol without a size reaches to the next, or
    /// to the end of the code.
    pub(super) fn name(&self, address: u64) -> Option<&str> {
        let above = self.symbols.partition_point(|(start, ..)| *start <= address);
        let (start, size, begin, length) = *self.symbols.get(above.checked_sub(1)?)?;
        let until = if size > 0 { start.saturating_add(size) } else { self.code_end };
        if address >= until {
            return None;
        }
        let end = begin.checked_add(length)?;
        self.names.get(begin as usize..end as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A library with an exported function, and one that no symbol names once it is stripped.
    fn library(folder: &Path, flag: &str) -> Table {
        const SOURCE: &str =
            "__attribute__((noinline)) static int hidden(volatile int *p) { while (*p) ++*p; return *p; }
            int exported(volatile int *p) { return hidden(p) + 1; }
            int (*keeps(void))(volatile int *) { return hidden; }";
        let (source, file) = (folder.join("a.c"), folder.join(format!("lib{flag}.so")));
        std::fs::write(&source, SOURCE).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-shared", "-fPIC", flag]).arg(&source).arg("-o").arg(&file);
        assert!(compiler.status().unwrap().success());
        let mut table = Table::default();
        table.add_file(&file);
        table.sort();
        table.set_unwinding(&file);
        table
    }

    fn address(table: &Table, name: &str) -> Option<u64> {
        let range = |symbol: &(u64, u64, u32, u32)| symbol.2 as usize..(symbol.2 + symbol.3) as usize;
        table.symbols.iter().find(|symbol| table.names.get(range(symbol)) == Some(name)).map(|symbol| symbol.0)
    }

    #[test]
    fn a_stripped_file_names_only_what_is_exported_and_bounds_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let (mut whole, mut stripped) = (library(folder.path(), "-g"), library(folder.path(), "-s"));
        let (hidden, exported) = (address(&whole, "hidden").unwrap(), address(&whole, "exported").unwrap());
        assert_eq!((whole.name(hidden + 2), whole.name(exported)), (Some("hidden"), Some("exported")));
        assert_eq!((stripped.name(hidden + 2), stripped.name(exported)), (None, Some("exported")));
        assert_eq!((stripped.start(hidden + 2), whole.start(hidden + 2)), (Some(hidden), Some(hidden)));
    }
}
