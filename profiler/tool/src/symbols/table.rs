//! A module's symbol table: finds the symbol that covers an address. It respects sizes, so that a
//! stripped file gives no wrong names.

use std::fs::File;
use std::path::Path;

use object::{Object, ObjectSymbol, ReadCache, SymbolKind};

use super::demangle;
use super::pages::PagedFile;
use crate::hash::Set;

/// Limit of symbols per module.
const MOST: usize = 2_000_000;

/// Sorted symbols; their names are concatenated.
#[derive(Debug, Default)]
pub(super) struct Table {
    symbols: Vec<(u64, u64, u32, u32)>,
    names: String,
    /// Names of Rust functions that are not closures; filled on first use.
    code: Option<Set<String>>,
}

impl Table {
    /// Adds the symbols of a file; none if it can't be read.
    pub(super) fn add_file(&mut self, path: &Path) {
        let Ok(file) = File::open(path) else { return };
        let cache = ReadCache::new(PagedFile::new(file));
        let Ok(object) = object::File::parse(&cache) else { return };
        for symbol in object.symbols().chain(object.dynamic_symbols()) {
            if symbol.kind() != SymbolKind::Text || symbol.address() == 0 || self.symbols.len() >= MOST {
                continue;
            }
            let Ok(name) = symbol.name() else { continue };
            let Ok(begin) = u32::try_from(self.names.len()) else { return };
            self.names.push_str(name);
            self.symbols.push((symbol.address(), symbol.size(), begin, name.len() as u32));
        }
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
        let Table { symbols, names, code } = self;
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

    /// Returns the symbol that covers an address; a symbol without a size reaches to the next.
    pub(super) fn name(&self, address: u64) -> Option<&str> {
        let above = self.symbols.partition_point(|(start, ..)| *start <= address);
        let (start, size, begin, length) = *self.symbols.get(above.checked_sub(1)?)?;
        if size > 0 && address - start >= size {
            return None;
        }
        let end = begin.checked_add(length)?;
        self.names.get(begin as usize..end as usize)
    }
}
