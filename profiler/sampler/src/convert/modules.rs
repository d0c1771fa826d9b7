//! Modules of a trace, from the mappings of a process; and the functions at the addresses of
//! stacks.
//!
//! A change is announced when its record comes: the file is read then, before it may be replaced,
//! and a child that is forked meanwhile has it. It is made when earlier records are converted.
//!
//! Does not read `/proc`: it is told how a mapping's file is opened.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use leeward_profile::format::meta::Module;

use super::functions::ElfCode;
use super::jit_map::JitMap;
use crate::record::Mapping;

/// Limit of modules, as many as a reader takes.
const MODULES: usize = 1 << 14;
/// Limit of executable mappings of a module.
const RANGES: usize = 16;
/// Limit of files that are kept open for a reader.
const HIDDEN: usize = 64;
/// Limit of changes that are announced.
const ANNOUNCED: usize = 1 << 14;
/// Limit of remembered addresses.
const REMEMBERED: usize = 1 << 18;

/// Path of the kernel's code in each process. Its place is drawn when a program is executed.
pub const VDSO: &str = "[vdso]";

/// Opens the file of a mapping; `None` if there is none.
pub type OpenFile = Box<dyn FnMut(&Mapping) -> Option<File>>;

/// Modules of a process.
pub struct Modules {
    open: OpenFile,
    /// Functions that are compiled while the process runs.
    jit_map: Option<JitMap>,
    program: String,
    modules: Vec<MappedModule>,
    /// Mappings that exist: by their start, the end and the module's index.
    mapped: BTreeMap<u64, (u64, usize)>,
    /// Functions by address.
    functions: HashMap<u64, u64>,
    /// Indices of modules that changed since they were last written.
    changed: Vec<usize>,
    /// Changes that are not made yet, in the order of their records.
    announced: VecDeque<Change>,
    /// Files that a reader would not find at their paths.
    hidden: Vec<HiddenFile>,
}

/// What is at the place of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// No module.
    Free,
    /// The same code of the same file.
    Known,
    /// Another module.
    Taken,
}

/// A change of what a process has mapped.
#[derive(Clone, Debug)]
enum Change {
    Mapped(Mapping, u64, Arc<ElfCode>),
    Executed(u64),
}

/// An open file that a reader would not find at its path.
#[derive(Clone, Debug)]
pub struct HiddenFile {
    /// Path in the process.
    pub path: Box<str>,
    /// The file, which a process has in common with its children.
    pub file: Arc<File>,
}

#[derive(Clone)]
struct MappedModule {
    module: Module,
    code: Arc<ElfCode>,
}

impl std::fmt::Debug for Modules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Modules").field("modules", &self.modules.len()).finish_non_exhaustive()
    }
}

impl Modules {
    /// No modules yet. `program` is the path of the program.
    pub fn new(program: &str, open: OpenFile) -> Modules {
        Modules {
            open,
            jit_map: None,
            program: without_mark(program).into(),
            modules: Vec::new(),
            mapped: BTreeMap::new(),
            functions: HashMap::new(),
            changed: Vec::new(),
            announced: VecDeque::new(),
            hidden: Vec::new(),
        }
    }

    /// Returns the modules of a child that the process forks now, after all that was announced.
    pub fn inherited(&self, open: OpenFile) -> Modules {
        let mut child = Modules {
            open,
            jit_map: None,
            program: self.program.clone(),
            modules: self.modules.clone(),
            mapped: self.mapped.clone(),
            functions: HashMap::new(),
            changed: (0..self.modules.len()).filter(|index| self.modules[*index].module.unloaded.is_none()).collect(),
            announced: self.announced.clone(),
            hidden: self.hidden.clone(),
        };
        while let Some(change) = child.announced.front().cloned() {
            match change {
                Change::Mapped(mapping, time, _) => child.map(&mapping, time),
                Change::Executed(time) => child.execute(time),
            }
        }
        child
    }

    /// Returns whether nothing is mapped, and nothing is announced.
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty() && self.announced.is_empty()
    }

    /// Returns what is at the place of a mapping, after all that was announced.
    pub fn place(&self, mapping: &Mapping) -> Place {
        let end = mapping.start.saturating_add(mapping.length);
        let path = without_mark(&mapping.path);
        let compare = |start: u64, until: u64, other: &str| {
            let is_same = (start, until) == (mapping.start, end) && (other == path || other == in_brackets(path));
            let overlaps = start < end && mapping.start < until;
            overlaps.then_some(if is_same { Place::Known } else { Place::Taken })
        };
        let nearest = self.mapped.range(..end).next_back();
        let mapped = nearest.and_then(|(at, (until, index))| compare(*at, *until, &self.modules[*index].module.path));
        let later = self.announced.iter().rev().find_map(|change| match change {
            Change::Executed(_) => Some(Place::Free),
            Change::Mapped(other, ..) if !has_file(other) && &*other.path != VDSO => None,
            Change::Mapped(other, ..) => {
                compare(other.start, other.start.saturating_add(other.length), without_mark(&other.path))
            }
        });
        later.or(mapped).unwrap_or(Place::Free)
    }

    /// Says that the process will have mapped code, once earlier records are converted.
    pub fn announce_map(&mut self, mapping: &Mapping, time: u64) {
        let code = if has_file(mapping) { self.read(mapping) } else { Arc::default() };
        self.announce(Change::Mapped(mapping.clone(), time, code));
    }

    /// Says that the process will have executed another program.
    pub fn announce_execution(&mut self, time: u64) {
        self.announce(Change::Executed(time));
    }

    fn announce(&mut self, change: Change) {
        if self.announced.len() >= ANNOUNCED {
            self.announced.pop_front();
        }
        self.announced.push_back(change);
    }

    /// Returns files that a reader would not find at their paths.
    pub fn take_hidden(&mut self) -> Vec<HiddenFile> {
        std::mem::take(&mut self.hidden)
    }

    /// Sets by which process files are opened.
    pub fn set_files(&mut self, open: OpenFile) {
        self.open = open;
    }

    /// Sets where functions are looked for that are in no module.
    pub fn set_jit_map(&mut self, jit_map: Option<JitMap>) {
        self.jit_map = jit_map;
    }

    /// The process mapped code. Code without a file, such as that of a just-in-time compiler, is no
    /// module.
    pub fn map(&mut self, mapping: &Mapping, time: u64) {
        let is_it = |change: &Change| matches!(change, Change::Mapped(other, ..) if other == mapping);
        let announced = self.announced.iter().position(is_it).and_then(|index| self.announced.remove(index));
        let end = mapping.start.saturating_add(mapping.length);
        if let Some((_, (known_end, index))) = self.mapped.range(mapping.start..=mapping.start).next()
            && *known_end == end
            && self.modules[*index].module.path == without_mark(&mapping.path)
        {
            return;
        }
        self.unmap(mapping.start, end, time);
        let has_file = has_file(mapping);
        if has_file && self.program.is_empty() {
            self.program = without_mark(&mapping.path).into();
        }
        let flags = match &*mapping.path {
            VDSO => Module::KERNEL,
            _ if !has_file => return,
            path if without_mark(path) == self.program => Module::PROGRAM,
            _ => 0,
        };
        let path = without_mark(&mapping.path);
        let index = self.known(mapping, path).unwrap_or_else(|| {
            let code = match announced {
                Some(Change::Mapped(_, _, code)) => code,
                _ if flags == Module::KERNEL => Arc::default(),
                _ => self.read(mapping),
            };
            let file_address = code.address(mapping.offset, mapping.length);
            let bias = file_address.map_or(0, |file| mapping.start.wrapping_sub(file));
            // A reader would look at the wrong place of a file that could not be read here.
            let path = if flags == Module::KERNEL || file_address.is_some() { path.into() } else { in_brackets(path) };
            let id = self.modules.len() as u64 + 1;
            let (build_id, ranges) = (code.build_id.clone(), Vec::new());
            let module = Module { id, flags, loaded: time, unloaded: None, bias, ranges, build_id, path };
            self.modules.push(MappedModule { module, code });
            self.modules.len() - 1
        });
        let module = &mut self.modules[index].module;
        if module.ranges.len() < RANGES {
            module.ranges.push((mapping.start, mapping.length));
        }
        self.mapped.insert(mapping.start, (end, index));
        self.changed.push(index);
        self.functions.clear();
    }

    /// The process executed another program. The first file that it maps is that.
    pub fn execute(&mut self, time: u64) {
        let is_it = |change: &Change| matches!(change, Change::Executed(_));
        if let Some(index) = self.announced.iter().position(is_it) {
            self.announced.remove(index);
        }
        self.unmap(0, u64::MAX, time);
        self.program.clear();
    }

    /// Returns the modules that are new or changed since the last call.
    pub fn take_changed(&mut self) -> Vec<Module> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        changed.into_iter().map(|index| self.modules[index].module.clone()).collect()
    }

    /// Returns the start of the function that contains an instruction; the address itself if that
    /// is not known.
    pub fn function(&mut self, address: u64) -> u64 {
        if let Some(function) = self.functions.get(&address) {
            return *function;
        }
        let module = self.mapped.range(..=address).next_back().filter(|(_, (end, _))| address < *end);
        let found = module.and_then(|(_, (_, index))| {
            let MappedModule { module, code } = &self.modules[*index];
            if code.is_unknown() {
                return module.ranges.first().map(|(start, _)| *start);
            }
            let start = code.function(address.wrapping_sub(module.bias))?.wrapping_add(module.bias);
            // A function without a symbol and unwind table may lie behind another one's.
            module.holds(start).then_some(start)
        });
        if found.is_none() && module.is_none() {
            // Not remembered: its compiler may put another function there.
            return self.jit_map.as_mut().and_then(|map| map.function(address)).unwrap_or(address);
        }
        let function = found.unwrap_or(address);
        if self.functions.len() >= REMEMBERED {
            self.functions.clear();
        }
        self.functions.insert(address, function);
        function
    }

    /// Returns whether a module contains both addresses.
    pub fn is_shared(&self, address: u64, other: u64) -> bool {
        let index = |address: u64| {
            let mapped = self.mapped.range(..=address).next_back().filter(|(_, (end, _))| address < *end);
            mapped.map(|(_, (_, index))| *index)
        };
        index(address).is_some_and(|of_address| index(other) == Some(of_address))
    }

    /// Returns the module that another mapping of the same file, at the same distance from it, is a
    /// part of.
    fn known(&self, mapping: &Mapping, path: &str) -> Option<usize> {
        let is_same = |mapped: &MappedModule| {
            let address = mapped.code.address(mapping.offset, mapping.length);
            mapped.module.unloaded.is_none()
                && mapped.module.path == path
                && address.is_some_and(|address| mapping.start.wrapping_sub(address) == mapped.module.bias)
        };
        let full = self.modules.len() >= MODULES;
        self.modules.iter().rposition(is_same).or(full.then_some(MODULES - 1))
    }

    /// Reads the code of a file, or has it from another mapping of the same file.
    fn read(&mut self, mapping: &Mapping) -> Arc<ElfCode> {
        let path = without_mark(&mapping.path);
        let Some(file) = (self.open)(mapping) else { return self.code_at(path).unwrap_or_default() };
        let is_hidden = !is_at(&file, path) && self.hidden.iter().all(|hidden| &*hidden.path != path);
        let hidden = if is_hidden && self.hidden.len() < HIDDEN { file.try_clone().ok() } else { None };
        self.hidden.extend(hidden.map(|file| HiddenFile { path: path.into(), file: Arc::new(file) }));
        let code = ElfCode::read(file);
        let is_same = |other: &Arc<ElfCode>| !code.build_id.is_empty() && other.build_id == code.build_id;
        self.code_at(path).filter(is_same).unwrap_or_else(|| Arc::new(code))
    }

    /// Returns the code of the file that was last mapped from this path.
    fn code_at(&self, path: &str) -> Option<Arc<ElfCode>> {
        let known = self.modules.iter().map(|mapped| (&*mapped.module.path, &mapped.code));
        let announced = self.announced.iter().filter_map(|change| match change {
            Change::Mapped(mapping, _, code) => Some((without_mark(&mapping.path), code)),
            Change::Executed(_) => None,
        });
        let mut at_path = known.chain(announced).filter(|(other, code)| *other == path && !code.is_unknown());
        at_path.next_back().map(|(_, code)| Arc::clone(code))
    }

    /// Ends the mappings between two addresses.
    fn unmap(&mut self, start: u64, end: u64, time: u64) {
        let before = self.mapped.range(..start).next_back().filter(|(_, (until, _))| *until > start).map(|(at, _)| *at);
        let within = self.mapped.range(start..end).map(|(at, _)| *at);
        let over: Vec<u64> = before.into_iter().chain(within).collect();
        for at in over {
            let Some((_, index)) = self.mapped.remove(&at) else { continue };
            if self.mapped.values().all(|(_, other)| *other != index) {
                self.modules[index].module.unloaded = Some(time.max(1));
                self.changed.push(index);
            }
            self.functions.clear();
        }
    }
}

/// Returns the name of code without a file.
fn in_brackets(path: &str) -> String {
    format!("[{}]", path.rsplit('/').next().unwrap_or(path))
}

/// Returns whether a mapping is one of a file.
fn has_file(mapping: &Mapping) -> bool {
    mapping.path.starts_with('/') && !mapping.path.starts_with("//")
}

/// Returns whether a file is the one at a path.
fn is_at(file: &File, path: &str) -> bool {
    let (Ok(file), Ok(there)) = (file.metadata(), std::fs::metadata(path)) else { return false };
    (file.dev(), file.ino()) == (there.dev(), there.ino())
}

/// Returns a path without the kernel's mark of a file that was deleted or replaced.
fn without_mark(path: &str) -> &str {
    path.strip_suffix(" (deleted)").unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mapping(start: u64, length: u64, offset: u64, path: &str) -> Mapping {
        Mapping { start, length, offset, path: path.into(), inode: 0 }
    }

    /// Modules whose files are all this test's own program.
    fn modules() -> Modules {
        Modules::new("/bin/program", Box::new(|_| File::open("/proc/self/exe").ok()))
    }

    #[test]
    fn the_program_is_marked_and_its_functions_are_found() {
        let code = ElfCode::read(File::open("/proc/self/exe").unwrap());
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let own = modules as fn() -> Modules as usize as u64;
        let line = maps.lines().find(|line| {
            let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            (u64::from_str_radix(start, 16).unwrap()..u64::from_str_radix(end, 16).unwrap()).contains(&own)
        });
        let fields: Vec<&str> = line.unwrap().split_whitespace().collect();
        let (start, end) = fields[0].split_once('-').unwrap();
        let (start, end) = (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap());
        let offset = u64::from_str_radix(fields[2], 16).unwrap();
        let mut modules = modules();
        modules.map(&mapping(start, end - start, offset, "/bin/program (deleted)"), 5);
        let changed = modules.take_changed();
        assert_eq!(changed.len(), 1);
        assert_eq!((changed[0].flags, changed[0].path.as_str()), (Module::PROGRAM, "/bin/program"));
        assert_eq!(changed[0].build_id, code.build_id);
        assert_eq!(modules.function(own + 1), own);
        assert!(modules.take_changed().is_empty());
    }

    #[test]
    fn a_file_that_is_mapped_over_another_replaces_it() {
        let mut modules = modules();
        modules.map(&mapping(0x1000, 0x3000, 0, "/lib/a"), 1);
        modules.map(&mapping(0x9000, 0x1000, 0, "[vdso]"), 1);
        modules.map(&mapping(0x2000, 0x1000, 0, "/lib/b"), 7);
        modules.map(&mapping(0xa000, 0x1000, 0, "//anon"), 8);
        let changed = modules.take_changed();
        let seen: Vec<_> = changed.iter().map(|one| (one.path.as_str(), one.loaded, one.unloaded)).collect();
        // Here, none of the test's own code is at these places of its file.
        assert_eq!(seen, [("[a]", 1, Some(7)), ("[vdso]", 1, None), ("[b]", 7, None)]);
        modules.execute(9);
        assert_eq!(modules.take_changed().iter().filter(|one| one.unloaded == Some(9)).count(), 2);
        assert_eq!(modules.function(0x2100), 0x2100);
    }

    #[test]
    fn what_is_at_a_place_is_known_before_it_is_converted() {
        let mut modules = Modules::new("/bin/program", Box::new(|_| None));
        assert!(modules.is_empty());
        modules.map(&mapping(0x1000, 0x1000, 0, "/lib/a"), 1);
        modules.announce_map(&mapping(0x4000, 0x2000, 0, "/lib/b"), 2);
        // Of code without a file nothing is known.
        modules.announce_map(&mapping(0x8000, 0x1000, 0, "//anon"), 3);
        let places = |modules: &Modules| {
            let at = |start, length, path| modules.place(&mapping(start, length, 0, path));
            [
                at(0x1000, 0x1000, "/lib/a"),
                at(0x4000, 0x2000, "/lib/b (deleted)"),
                at(0x5000, 0x1000, "/lib/b"),
                at(0x4000, 0x2000, "/lib/c"),
                at(0x2000, 0x1000, "/lib/c"),
                at(0x8000, 0x1000, "/lib/c"),
                at(0x1000, 0x1000, "//anon"),
            ]
        };
        use Place::{Free, Known, Taken};
        assert_eq!(places(&modules), [Known, Known, Taken, Taken, Free, Free, Taken]);
        modules.announce_execution(4);
        assert_eq!(places(&modules), [Free; 7]);
    }

    #[test]
    fn code_of_an_unreadable_file_is_one_function_without_a_file() {
        let mut modules = Modules::new("/bin/program", Box::new(|_| None));
        modules.announce_map(&mapping(0x5000, 0x2000, 0x1000, "/lib/plugin.so"), 1);
        modules.map(&mapping(0x5000, 0x2000, 0x1000, "/lib/plugin.so"), 1);
        assert_eq!(modules.take_changed()[0].path, "[plugin.so]");
        assert_eq!((modules.function(0x5001), modules.function(0x6fff)), (0x5000, 0x5000));
        assert_eq!((modules.function(0x4fff), modules.function(0x7000)), (0x4fff, 0x7000));
    }

    #[test]
    fn a_child_has_what_was_announced_before_it_was_forked() {
        let mut parent = modules();
        parent.map(&mapping(0x1000, 0x1000, 0, "/lib/a"), 1);
        parent.announce_map(&mapping(0x4000, 0x1000, 0, "/lib/b"), 2);
        let mut child = parent.inherited(Box::new(|_| None));
        let paths = |modules: &mut Modules| -> Vec<String> {
            modules.take_changed().into_iter().map(|module| module.path).collect()
        };
        assert_eq!(paths(&mut child), ["[a]", "[b]"]);
        assert_eq!(paths(&mut parent), ["[a]"], "it is not converted yet");
        parent.announce_execution(3);
        parent.announce_map(&mapping(0x8000, 0x1000, 0, "/bin/other"), 3);
        assert_eq!(paths(&mut parent.inherited(Box::new(|_| None))).last().unwrap(), "[other]");
    }

    #[test]
    fn a_file_is_read_when_its_mapping_is_announced() {
        let opened = std::rc::Rc::new(std::cell::Cell::new(0));
        let count = std::rc::Rc::clone(&opened);
        let open: OpenFile = Box::new(move |_| {
            count.set(count.get() + 1);
            File::open("/proc/self/exe").ok().filter(|_| count.get() == 1)
        });
        let mut modules = Modules::new("/bin/program", open);
        modules.announce_map(&mapping(0x1000, 0x1000, 0, "/bin/program"), 1);
        modules.map(&mapping(0x1000, 0x1000, 0, "/bin/program"), 1);
        assert!(!modules.take_changed()[0].build_id.is_empty());
        assert_eq!(opened.get(), 1, "it may be another file by now");
        assert_eq!(modules.take_hidden().len(), 1, "no such file is at this path");
    }

    proptest! {
        #[test]
        fn mappings_never_panic(all in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), 0_usize..4), 0..40), address in any::<u64>()) {
            let mut modules = Modules::new("/a", Box::new(|_| None));
            for (start, length, offset, path) in all {
                modules.map(&mapping(start, length, offset, ["/a", "/b", "[vdso]", "//anon"][path]), 3);
                modules.function(address);
            }
            modules.execute(4);
            prop_assert!(modules.take_changed().iter().all(|module| module.unloaded.is_some()));
        }
    }
}
