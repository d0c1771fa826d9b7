//! Resolves addresses to function, file and line, including inlined calls. An unresolved location
//! keeps module and offset.

mod awaited;
mod debug;
mod demangle;
mod functions;
pub mod go;
mod pages;
pub mod perf_map;
mod table;

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

use addr2line::Loader;
use serde::Serialize;

use crate::analysis::names;
use crate::format::meta::{Engine, Module};
use crate::hash::Map;
use crate::trace::Trace;
use awaited::AwaitPlaces;
use perf_map::PerfMap;
use table::Table;

/// Returns a symbol's name as users write it: without mangling, parameters and hashes.
pub fn demangled(symbol: &str) -> String {
    demangle::full_name(symbol)
}

/// Folder in a trace with files that lie elsewhere, or nowhere, when it is read.
pub const COPIED_FILES: &str = "files";

/// Limit of remembered locations.
const REMEMBERED: usize = 1 << 18;
/// Stands for all functions that were compiled while the program ran, and have no names.
const UNNAMED: u64 = 1;

/// A function at a location; several if calls were inlined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Frame {
    /// The function's name, without parameters.
    pub function: String,
    /// The source file, if known.
    pub file: Option<String>,
    /// The line, if known.
    pub line: Option<u32>,
}

/// Names of an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Location {
    /// File name of the module; `None` if the address is in no module.
    pub module: Option<String>,
    /// Address in the module's file, or the address itself.
    pub offset: u64,
    /// The same of the function's start, for a function without a symbol whose start is known.
    pub start: Option<u64>,
    /// The innermost frame first, the called function last; empty without a known symbol.
    pub frames: Vec<Frame>,
}

impl Location {
    /// Returns the function that was called, or module and offset of its start, or of the address.
    pub fn function(&self) -> String {
        match self.frames.last() {
            Some(frame) => frame.function.clone(),
            None => self.numbered(self.start.unwrap_or(self.offset)),
        }
    }

    /// Returns module and offset.
    pub fn raw(&self) -> String {
        self.numbered(self.offset)
    }

    fn numbered(&self, offset: u64) -> String {
        match &self.module {
            // The kernel's, without a file that offsets could be looked up in: `[vdso]`.
            Some(module) if module.starts_with('[') => module.clone(),
            Some(module) => format!("{module}+{offset:#x}"),
            None => format!("{offset:#x}"),
        }
    }

    /// Returns the innermost frame outside of system headers: for a lock, the line in the user's
    /// code.
    pub fn source(&self) -> Option<&Frame> {
        let foreign = |frame: &&Frame| {
            frame.file.as_deref().is_none_or(|file| file.starts_with("/usr/") || file.starts_with("/rustc/"))
        };
        self.frames.iter().find(|frame| !foreign(frame)).or(self.frames.last())
    }

    /// Returns file name and line.
    fn line(&self) -> Option<String> {
        let frame = self.source()?;
        let (file, line) = (frame.file.as_deref()?, frame.line?);
        Some(format!("{}:{line}", file.rsplit('/').next().unwrap_or(file)))
    }

    /// Describes an instruction by function, file and line: `snapshot at example.cc:6`.
    pub fn describe(&self) -> String {
        let function = self.function();
        self.line().map_or_else(|| function.clone(), |line| format!("{function} at {line}"))
    }

    /// Describes a function by name and start, worded so that the first line is not taken for the
    /// slow one.
    pub fn definition(&self) -> String {
        let function = self.function();
        self.line().map_or_else(|| function.clone(), |line| format!("{function} (function at {line})"))
    }
}

/// Additional places for debug files.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Folders with executables, or with debug files in the layout `ab/cdef….debug`.
    pub folders: Vec<PathBuf>,
}

/// The symbols of a trace's modules; files are read on first use.
pub struct Symbols {
    modules: Vec<LoadedModule>,
    folders: Vec<PathBuf>,
    exact_callers: bool,
    is_sampled: bool,
    perf_map: PerfMap,
    locations: HashMap<(u64, usize), Rc<Location>>,
    /// See [`Symbols::representative`]: by module and address.
    representatives: Map<(Option<usize>, u64), u64>,
    first_functions: HashMap<(String, u64), u64>,
    await_places: AwaitPlaces,
}

impl std::fmt::Debug for Symbols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Symbols").field("modules", &self.modules.len()).finish_non_exhaustive()
    }
}

struct LoadedModule {
    module: Module,
    files: Option<Files>,
}

struct Files {
    lines: Option<Loader>,
    table: Table,
    /// Description of missing symbols, for the user.
    missing: Option<String>,
}

/// Returns how the functions of a sampled program get names, if it has an interpreter or compiler
/// of its own that has named none.
pub fn naming_hint(trace: &Trace) -> Option<&'static str> {
    let mut files = trace.modules().iter().filter_map(|module| module.path.rsplit('/').next());
    let hint = files.find_map(perf_map::naming_hint).filter(|_| trace.header().engine == Engine::Samples);
    hint.filter(|_| PerfMap::of_trace(trace.path(), trace.header().pid).is_empty())
}

impl Symbols {
    /// Creates the symbols of a trace.
    pub fn new(trace: &Trace, options: Options) -> Symbols {
        let modules =
            trace.modules().iter().map(|module| LoadedModule { module: module.clone(), files: None }).collect();
        let exact_callers = Engine::caller_is_exact(trace.header().engine);
        let perf_map = PerfMap::of_trace(trace.path(), trace.header().pid);
        let mut folders = options.folders;
        folders.push(trace.path().join(COPIED_FILES));
        Symbols {
            modules,
            folders,
            exact_callers,
            is_sampled: trace.header().engine == Engine::Samples,
            representatives: Map::default(),
            first_functions: HashMap::new(),
            perf_map,
            locations: HashMap::new(),
            await_places: AwaitPlaces::new(trace),
        }
    }

    /// Resolves an address at that time.
    pub fn location(&mut self, address: u64, time: u64) -> Rc<Location> {
        let module = self.module(address, time);
        let key = (address, module.unwrap_or(usize::MAX));
        if let Some(location) = self.locations.get(&key) {
            return Rc::clone(location);
        }
        let mut location = match module {
            Some(index) => self.look_up(index, address),
            None if address == UNNAMED => {
                Location { module: Some("[code without a file]".into()), offset: 0, start: None, frames: Vec::new() }
            }
            None => Location { module: None, offset: address, start: None, frames: Vec::new() },
        };
        // Compilers that run in the program put its code into memory without a file.
        if location.frames.is_empty()
            && let Some((start, frame)) = self.perf_map.find(address)
        {
            location = Location { module: None, offset: address, start: Some(start), frames: vec![frame] };
        }
        let location = Rc::new(location);
        if self.locations.len() >= REMEMBERED {
            self.locations.clear();
        }
        self.locations.insert(key, Rc::clone(&location));
        location
    }

    /// Resolves a call site: the instruction before the return address.
    pub fn site(&mut self, returns_to: u64, time: u64) -> Rc<Location> {
        self.location(returns_to.saturating_sub(1), time)
    }

    /// Resolves the caller of a recorded call: like [`Symbols::site`], unless the engine records
    /// the caller itself.
    pub fn caller(&mut self, address: u64, time: u64) -> Rc<Location> {
        if self.exact_callers { self.location(address, time) } else { self.site(address, time) }
    }

    /// Returns missing symbols so far: module and reason.
    pub fn missing(&self) -> Vec<(String, String)> {
        let missing = |loaded: &LoadedModule| {
            let reason = loaded.files.as_ref()?.missing.clone()?;
            Some((loaded.module.path.clone(), reason))
        };
        // Nothing that users could install would name the kernel's.
        let files = self.modules.iter().filter(|loaded| loaded.module.flags & Module::KERNEL == 0);
        files.filter_map(missing).collect()
    }

    /// Searches the files of every module, and returns the result of each.
    pub fn survey(&mut self) -> Vec<(String, Result<(), String>)> {
        for index in 0..self.modules.len() {
            self.load(index);
        }
        let found = |loaded: &LoadedModule| {
            let missing = loaded.files.as_ref().and_then(|files| files.missing.clone());
            (loaded.module.path.clone(), missing.map_or(Ok(()), Err))
        };
        self.modules.iter().map(found).collect()
    }

    /// Returns the names of functions that are inlined into the function at an address, each once.
    pub fn inlined_functions(&mut self, function: u64, time: u64) -> Vec<String> {
        let Some(index) = self.module(function, time) else { return Vec::new() };
        let offset = function.wrapping_sub(self.modules[index].module.bias);
        let files = self.load(index);
        let (Some(lines), Some(end)) = (files.lines.as_ref(), files.table.end(offset)) else { return Vec::new() };
        debug::inlined_functions(lines, offset, end)
    }

    /// Returns the symbol name of the function at an address, with all parameters, without
    /// shortening.
    pub(crate) fn full_name(&mut self, function: u64, time: u64) -> Option<String> {
        let index = self.module(function, time)?;
        let offset = function.wrapping_sub(self.modules[index].module.bias);
        self.load(index).table.name(offset).map(demangle::full_name)
    }

    /// Returns whether the program itself has a function with this symbol.
    pub fn program_defines(&mut self, symbol: &str) -> bool {
        let program = self.modules.iter().position(|loaded| loaded.module.flags & Module::PROGRAM != 0);
        program.is_some_and(|index| self.load(index).table.defines(symbol))
    }

    /// Returns the function that stands for this one in samples, which show addresses: the first
    /// with this name of those that were compiled while the program ran, the first at this place of
    /// a file that was mapped again, and one for all that have no names.
    pub fn representative(&mut self, function: u64, time: u64) -> u64 {
        // The recorder tells of all files that were mapped.
        if !self.is_sampled || self.modules.is_empty() {
            return function;
        }
        let module = self.module(function, time);
        if let Some(first) = self.representatives.get(&(module, function)) {
            return *first;
        }
        let is_full = self.representatives.len() >= REMEMBERED;
        let identity = match module {
            Some(_) if is_full => return function,
            Some(index) => {
                let Module { bias, path, .. } = &self.modules[index].module;
                (path.clone(), function.wrapping_sub(*bias))
            }
            None => match self.perf_map.find(function) {
                None => return UNNAMED,
                Some(_) if is_full => return function,
                Some((_, frame)) => (frame.function, 0),
            },
        };
        let first = *self.first_functions.entry(identity).or_insert(function);
        self.representatives.insert((module, function), first);
        first
    }

    fn module(&self, address: u64, time: u64) -> Option<usize> {
        let covers = |loaded: &&LoadedModule| loaded.module.covers(address, time);
        let newest = self.modules.iter().enumerate().filter(|(_, loaded)| covers(loaded));
        // The module that was loaded last before that time; else any that contains the address.
        let best = newest.max_by_key(|(_, loaded)| (loaded.module.loaded <= time, loaded.module.loaded));
        let any = || self.modules.iter().position(|loaded| loaded.module.holds(address));
        best.map(|(index, _)| index).or_else(any)
    }

    fn load(&mut self, index: usize) -> &Files {
        self.load_mut(index)
    }

    fn load_mut(&mut self, index: usize) -> &mut Files {
        let LoadedModule { module, files } = &mut self.modules[index];
        files.get_or_insert_with(|| {
            let found = debug::find(module, &self.folders);
            let lines = found.debug.as_ref().and_then(|path| Loader::new(path).ok());
            let mut table = Table::default();
            // Usually both are the same file.
            let separate = found.debug.as_ref().filter(|path| found.binary.as_ref() != Some(*path));
            for path in found.binary.iter().chain(separate) {
                table.add_file(path);
            }
            table.sort();
            if let Some(path) = &found.binary {
                table.set_unwinding(path);
            }
            let missing = match (&lines, table.is_empty()) {
                (Some(_), false) => found.problem,
                (_, true) => Some(found.problem.unwrap_or_else(|| "no symbols in it".into())),
                (None, false) => Some("names only: no debug information".into()),
            };
            Files { lines, table, missing }
        })
    }

    fn look_up(&mut self, index: usize, address: u64) -> Location {
        let module = &self.modules[index].module;
        let name = module.path.rsplit('/').next().unwrap_or(&module.path).to_string();
        let offset = address.wrapping_sub(module.bias);
        let files = self.load(index);
        let symbol = files.table.name(offset);
        let mut frames = files.lines.as_ref().map(|lines| debug::frames(lines, offset)).unwrap_or_default();
        // The symbol table has the name of the called function, also where the line table does not.
        match (frames.last_mut(), symbol) {
            (None, Some(symbol)) => frames.push(Frame { function: demangle::name(symbol), file: None, line: None }),
            // Rust's own mangling has the whole path and the types; debug information may lack
            // both.
            (Some(last), Some(symbol)) if symbol.starts_with("_R") => last.function = demangle::name(symbol),
            // Line tables without other debug information name a function without its path.
            (Some(last), Some(symbol)) if !last.function.contains("::") => {
                let full = demangle::name(symbol);
                if last.function.is_empty() || is_end_of(&last.function, &full) {
                    last.function = full;
                }
            }
            _ => {}
        }
        frames.retain(|frame| !frame.function.is_empty());
        let table = &mut self.load_mut(index).table;
        let start = if frames.is_empty() { table.start(offset) } else { None };
        for frame in &mut frames {
            if let Some(name_as_written) = names::async_function(&frame.function, |base| table.has_code(base)) {
                frame.function = name_as_written;
            }
        }
        Location { module: Some(name), offset, start, frames }
    }
}

/// Returns whether a name without a path belongs to the function with this full name. Parameters
/// don't count.
fn is_end_of(name: &str, full: &str) -> bool {
    fn plain(name: &str) -> &str {
        let end = name.rfind("::<").or_else(|| name.find('<').filter(|at| *at > 0)).unwrap_or(name.len());
        &name[..end]
    }
    plain(full).rsplit_once("::").is_some_and(|(_, last)| last == plain(name))
}

#[cfg(test)]
mod tests {
    use super::{Frame, Location, is_end_of};

    #[test]
    fn descriptions_distinguish_a_function_from_a_line_in_it() {
        let frame = Frame { function: "parse".into(), file: Some("/src/store.c".into()), line: Some(12) };
        let location = Location { module: None, offset: 0, start: None, frames: vec![frame] };
        assert_eq!(location.describe(), "parse at store.c:12");
        assert_eq!(location.definition(), "parse (function at store.c:12)");
    }

    #[test]
    fn code_without_a_file_has_no_offsets() {
        let location = |module: &str| Location { module: Some(module.into()), offset: 9, start: None, frames: vec![] };
        assert_eq!([location("[vdso]").function(), location("nginx").raw()], ["[vdso]", "nginx+0x9"]);
    }

    #[test]
    fn a_short_name_is_completed_from_the_symbol() {
        assert!(is_end_of("look_up", "served::Store::look_up"));
        assert!(is_end_of("recompute<u64>", "served::Store::recompute"));
        assert!(is_end_of("recompute<u64>", "<served::Store>::recompute::<u64>"));
        // The name of another function: an inlined function has no symbol of its own.
        assert!(!is_end_of("up", "served::Store::look_up"));
        assert!(!is_end_of("look_up", "look_up"));
        assert!(!is_end_of("Store::look_up", "served::Store::look_up"));
    }
}
