//! Functions of a process by name: where uprobes for them belong.
//!
//! Contains no probe.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use leeward_profile::analysis::names::{is_called, without_closures};
use leeward_profile::analysis::select::closest_names;
use leeward_profile::analysis::suggest::{is_start, is_system};
use leeward_profile::symbols::{demangled, go};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache, SymbolFlags};

use super::calls::StackRules;
use super::returns::returns;
use super::traps::TrapCosts;
use crate::process::{Process, open_mapped_file};
use crate::record::{Mapping, SourceError};

/// Functions that one name may mean.
const FUNCTIONS_MAX: usize = 64;
/// Names that are compared to find like ones.
const NAMES_MAX: usize = 1 << 18;
/// Types of symbols (`elf.h`).
const FUNCTION: u8 = 2;
const RESOLVER: u8 = 10;
/// Endings of functions' parts and copies that compilers make.
const COPIES: [&str; 5] = [".isra.", ".constprop.", ".part.", ".llvm.", ".lto_priv."];

/// A function of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// A path to its file as we see it, and the file's inode.
    pub(super) file: PathBuf,
    inode: u64,
    /// Offset of its first instruction in the file.
    pub(super) offset: u64,
    /// How its calls end.
    pub(super) rules: StackRules,
    /// Offsets of the instructions that return, for Go.
    pub(super) returns: Vec<u64>,
    /// A probe at its first instruction is cheap.
    pub(super) begins_with_push: bool,
}

/// How well a name fits; a lesser value is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Exact,
    Path,
    /// A closure in the function, or the body of an `async fn`.
    Inside,
}

/// A symbol that fits.
struct Match {
    fit: Fit,
    function: Function,
    is_resolver: bool,
}

/// What a search has met.
#[derive(Default)]
struct Search {
    matches: Vec<Match>,
    /// Names of functions, to suggest some; none of the C library's.
    names: Vec<String>,
    is_system: bool,
    /// A file whose debug information knows the name.
    inlined: bool,
}

/// Returns the functions of a process with this name, or this name within namespaces.
///
/// # Errors
/// There is none: the sentence says why, or names like ones.
pub(super) fn find(pid: u32, name: &str) -> Result<Vec<Function>, SourceError> {
    let mut search = Search::default();
    each_module(pid, |mapped, path, file| {
        search.is_system = mapped.path.rsplit('/').next().is_some_and(is_system);
        search_module(path, mapped.inode, file, name, &mut search);
    })?;
    let Some(best) = search.matches.iter().map(|one| one.fit).min() else {
        return Err(SourceError::NoSymbol(absent(name, search)));
    };
    search.matches.retain(|one| one.fit == best);
    if best == Fit::Inside {
        let text = format!(
            "{name} has no code of its own but closures or an async body, whose polls would count as requests: name a function around it, or mark the requests"
        );
        return Err(SourceError::NoSymbol(text));
    }
    if search.matches.iter().all(|one| one.is_resolver) {
        let text = format!(
            "{name} is chosen among several versions when the program starts (IFUNC): name the version, such as {name}_avx2, or a function that calls it"
        );
        return Err(SourceError::NoSymbol(text));
    }
    search.matches.retain(|one| !one.is_resolver);
    if search.matches.len() > FUNCTIONS_MAX {
        let text = format!("{name} means {} functions: write more of its path", search.matches.len());
        return Err(SourceError::NoSymbol(text));
    }
    Ok(search.matches.into_iter().map(|one| one.function).collect())
}

/// Returns those of the functions of another process whose files this one runs, too. Does not read
/// the files: they may be large, and children many.
pub(super) fn of_same_files(pid: u32, functions: &[Function]) -> Result<Vec<Function>, SourceError> {
    let mut same = Vec::new();
    each_module(pid, |mapped, path, _| {
        let here = functions.iter().filter(|function| function.inode == mapped.inode);
        same.extend(here.map(|function| Function { file: path.to_path_buf(), ..function.clone() }));
    })?;
    Ok(same)
}

/// Passes each file with code of a process to `each`, once, with a path to it as we see it.
fn each_module(pid: u32, mut each: impl FnMut(&Mapping, &Path, File)) -> Result<(), SourceError> {
    let process = Process::open(pid)?;
    let mut files = HashSet::new();
    for mapped in process.mappings()? {
        if mapped.inode == 0 || !files.insert((mapped.inode, mapped.path.clone())) {
            continue;
        }
        let Ok(file) = open_mapped_file(pid, &mapped) else { continue };
        let (start, end) = (mapped.start, mapped.start.saturating_add(mapped.length));
        // The very file, also if it was deleted or replaced; else the one at its path.
        let exact = PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
        let path = if exact.metadata().is_ok() { exact } else { format!("/proc/{pid}/root{}", mapped.path).into() };
        each(&mapped, &path, file);
    }
    Ok(())
}

fn search_module(path: &Path, inode: u64, file: File, name: &str, search: &mut Search) {
    let cache = ReadCache::new(file);
    let Ok(object) = object::File::parse(&cache) else { return };
    let table = go::SECTIONS.iter().find_map(|section| object.section_by_name(section)?.data().ok());
    let mut seen = HashSet::new();
    let mut add = |symbol: &str, address: u64, size: u64, kind: u8, search: &mut Search| {
        let Some(fit) = fit(symbol, name, search) else { return };
        let Some(offset) = offset(&object, address).filter(|_| seen.insert(address)) else { return };
        // C's names have no dot; Go's have the package's.
        let is_go = table.is_some() && symbol.contains('.');
        let (rules, returns) = match is_go {
            false => (StackRules::Native, Vec::new()),
            true => (StackRules::Go, returns(&code(&object, address, size), offset)),
        };
        let begins_with_push = TrapCosts::is_push(&code(&object, address, 2));
        let function = Function { file: path.to_path_buf(), inode, offset, rules, returns, begins_with_push };
        search.matches.push(Match { fit, function, is_resolver: kind == RESOLVER });
    };
    each_symbol(&object, |symbol, address, size, kind| add(symbol, address, size, kind, search));
    if let Some(table) = table {
        let text = object.section_by_name(".text").map_or(0, |section| section.address());
        for function in go::functions(table, text, object.entry()) {
            add(function.name, function.address, function.size, FUNCTION, search);
        }
    }
    if object.symbols().next().is_none()
        && let Some(debug) = debug_file(&object)
    {
        let cache = ReadCache::new(debug);
        if let Ok(debug) = object::File::parse(&cache) {
            each_symbol(&debug, |symbol, address, size, kind| add(symbol, address, size, kind, search));
        }
    }
    search.inlined |= has_text(&object, name);
}

type Elf<'a> = object::File<'a, &'a ReadCache<File>>;

fn each_symbol(object: &Elf<'_>, mut each: impl FnMut(&str, u64, u64, u8)) {
    for symbol in object.symbols().chain(object.dynamic_symbols()) {
        let SymbolFlags::Elf { st_info, .. } = symbol.flags() else { continue };
        let kind = st_info.0 & 0xf;
        if let (FUNCTION | RESOLVER, false, Ok(name)) = (kind, symbol.address() == 0, symbol.name()) {
            each(name, symbol.address(), symbol.size(), kind);
        }
    }
}

/// Returns how well a symbol fits, and remembers its name if it doesn't.
fn fit(symbol: &str, name: &str, search: &mut Search) -> Option<Fit> {
    // Cold parts are jumped to, and not called.
    if symbol.contains(".cold") {
        return None;
    }
    let base = COPIES.iter().filter_map(|copy| symbol.find(copy)).min().map_or(symbol, |at| &symbol[..at]);
    let last = name.rsplit([':', '.', '/']).next().unwrap_or(name);
    // A mangled name contains the written one's last part.
    let full = base.contains(last).then(|| demangled(base));
    let is_suggested = search.names.len() < NAMES_MAX && !search.is_system;
    let Some(full) = full else {
        if is_suggested {
            search.names.push(demangled(base));
        }
        return None;
    };
    let is_go = full.strip_suffix(name).is_some_and(|before| before.ends_with(['.', '/']));
    if full == name {
        Some(Fit::Exact)
    } else if is_called(&full, name) || is_go {
        Some(Fit::Path)
    } else if is_called(without_closures(&full), name) {
        Some(Fit::Inside)
    } else {
        if is_suggested {
            search.names.push(full);
        }
        None
    }
}

fn absent(name: &str, mut search: Search) -> String {
    search.names.retain(|name| !is_start(name));
    if search.inlined {
        return format!("{name} has no code of its own: the compiler put it into its callers; name one of these");
    }
    if search.names.is_empty() {
        return format!(
            "the program has no symbols, so {name} can't be found: install its debug symbols, or record requests by input and output (--request-io)"
        );
    }
    let like = closest_names(search.names, name).join(", ");
    format!("no function of the process is called {name}; like it: {like}")
}

/// Returns the offset in the file of an address.
fn offset(object: &Elf<'_>, address: u64) -> Option<u64> {
    object.segments().find_map(|segment| {
        let (start, length) = segment.file_range();
        let within = address.checked_sub(segment.address()).filter(|within| *within < length)?;
        start.checked_add(within)
    })
}

/// Returns the instructions of a function.
fn code(object: &Elf<'_>, address: u64, size: u64) -> Vec<u8> {
    /// A function of Go is shorter.
    const LONGEST: u64 = 1 << 20;
    let data = object.segments().find_map(|segment| segment.data_range(address, size.min(LONGEST)).ok().flatten());
    data.unwrap_or_default().to_vec()
}

/// Opens the separate file with symbols.
fn debug_file(object: &Elf<'_>) -> Option<File> {
    let id: String = object.build_id().ok()??.iter().map(|byte| format!("{byte:02x}")).collect();
    let (first, rest) = id.split_at_checked(2)?;
    File::open(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug")).ok()
}

/// Returns whether the debug information contains a text: the name of an inlined function.
fn has_text(object: &Elf<'_>, name: &str) -> bool {
    let last = name.rsplit("::").next().unwrap_or(name);
    let wanted = [b"\0", last.as_bytes(), b"\0"].concat();
    let section = object.section_by_name(".debug_str");
    let data = section.and_then(|section| section.uncompressed_data().ok());
    data.is_some_and(|data| data.windows(wanted.len()).any(|window| window == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Called by nobody; its name is searched.
    #[unsafe(no_mangle)]
    #[inline(never)]
    extern "C" fn leeward_symbol_that_tests_search(number: u64) -> u64 {
        std::hint::black_box(number) + 1
    }

    #[test]
    fn a_function_of_this_process_is_found() {
        assert_eq!(leeward_symbol_that_tests_search(1), 2);
        let functions = find(std::process::id(), "leeward_symbol_that_tests_search").unwrap();
        assert_eq!(functions.len(), 1);
        assert_eq!(functions[0].rules, StackRules::Native);
    }

    #[test]
    fn a_function_is_found_again_by_its_file() {
        let pid = std::process::id();
        let functions = find(pid, "leeward_symbol_that_tests_search").unwrap();
        assert_eq!(of_same_files(pid, &functions).unwrap(), functions);
        let elsewhere = Function { inode: u64::MAX, ..functions[0].clone() };
        assert_eq!(of_same_files(pid, &[elsewhere]).unwrap(), []);
    }

    #[test]
    fn a_wrong_name_is_answered_with_like_ones() {
        let error = find(std::process::id(), "leeward_symbol_that_tests_serch").unwrap_err().to_string();
        assert!(error.contains("leeward_symbol_that_tests_search"), "{error}");
        for (wrong, not_like) in [("fflus", "fflush"), ("_start_", "_start")] {
            let error = find(std::process::id(), wrong).unwrap_err().to_string();
            let (_, names) = error.split_once("like it: ").unwrap();
            assert!(names.split(", ").all(|name| name != not_like), "{error}");
        }
    }

    #[test]
    fn names_fit_with_their_paths() {
        let check =
            |symbol, name, expected| assert_eq!(fit(symbol, name, &mut Search::default()), expected, "{symbol}");
        check("handle", "handle", Some(Fit::Exact));
        check("handle.isra.0", "handle", Some(Fit::Exact));
        check("handle.cold", "handle", None);
        check("_ZN5store8snapshotEv", "snapshot", Some(Fit::Path));
        check("main.(*Server).Serve", "(*Server).Serve", Some(Fit::Path));
        check("net/http.HandlerFunc.ServeHTTP", "HandlerFunc.ServeHTTP", Some(Fit::Path));
        check("rehandle", "handle", None);
    }
}
