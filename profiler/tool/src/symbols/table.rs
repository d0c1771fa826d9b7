//! A module's symbol table: which symbol covers an address. Sizes are respected, so that a stripped file gives no wrong names.

use std::fs::File;
use std::path::Path;

use object::{Object, ObjectSymbol, ReadCache, SymbolKind};

use super::pages::Pages;

/// Most symbols that are kept of a module.
const MOST: usize = 2_000_000;

/// Sorted symbols; names in one text.
#[derive(Debug, Default)]
pub(super) struct Table {
    symbols: Vec<(u64, u64, u32, u32)>,
    names: String,
}

impl Table {
    /// Adds the symbols of a file; none if it can't be read.
    pub(super) fn add_file(&mut self, path: &Path) {
        let Ok(file) = File::open(path) else { return };
        let cache = ReadCache::new(Pages::new(file));
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
        // The longest of those at one address last, so that it is found first.
        self.symbols.sort_unstable_by_key(|(address, size, ..)| (*address, *size));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// The symbol that covers an address; one without a size reaches to the next.
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
