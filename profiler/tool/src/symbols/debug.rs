//! Finds the file with a module's debug information, and reads lines from it.
//!
//! A file with another build-id is never used: it would give wrong names.

use std::fs::File;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::{Object, ReadCache};

use super::pages::PagedFile;
use super::{Frame, demangle};
use crate::format::meta::Module;

/// Limit of frames per address; a damaged file could contain any number.
const FRAMES: usize = 64;

/// Debug files of a module.
pub(super) struct DebugFiles {
    /// The module's own file.
    pub(super) binary: Option<PathBuf>,
    /// The file with lines: the same, or a separate one.
    pub(super) debug: Option<PathBuf>,
    /// Description of the problem.
    pub(super) problem: Option<String>,
}

/// Properties of a candidate file.
struct Candidate {
    build_id: Vec<u8>,
    has_lines: bool,
}

fn examine(path: &Path) -> Result<Candidate, String> {
    // Before it is opened: to open a pipe would wait for who writes into it.
    if !std::fs::metadata(path).map_err(|error| error.to_string())?.is_file() {
        return Err("not a file".into());
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    let cache = ReadCache::new(PagedFile::new(file));
    let object = object::File::parse(&cache).map_err(|error| error.to_string())?;
    let build_id = object.build_id().ok().flatten().unwrap_or_default().to_vec();
    let has_lines = [".debug_info", ".zdebug_info"].iter().any(|name| object.section_by_name(name).is_some());
    Ok(Candidate { build_id, has_lines })
}

/// Searches the standard locations of debug files, and `folders`.
pub(super) fn find(module: &Module, folders: &[PathBuf]) -> DebugFiles {
    let mut found = DebugFiles { binary: None, debug: None, problem: None };
    if module.flags & Module::KERNEL != 0 || !module.path.contains('/') {
        found.problem = Some("no file: it is the kernel's, was made at run time, or could not be read in time".into());
        return found;
    }
    let original = PathBuf::from(&module.path);
    let named = |folder: &PathBuf| original.file_name().map(|name| folder.join(name));
    let binaries = std::iter::once(original.clone()).chain(folders.iter().filter_map(named));
    for path in binaries {
        match examine(&path) {
            Ok(candidate) if module.build_id.is_empty() || candidate.build_id == module.build_id => {
                if module.build_id.is_empty() {
                    found.problem = Some("it has no build-id: names are right only if the file has not changed".into());
                } else {
                    found.problem = None;
                }
                if candidate.has_lines {
                    found.debug = Some(path.clone());
                }
                found.binary = Some(path);
                break;
            }
            Ok(_) => found.problem = Some(format!("{} has changed since: another build-id", path.display())),
            Err(why) => {
                found.problem.get_or_insert(format!("{}: {why}", path.display()));
            }
        }
    }
    if found.debug.is_none() {
        found.debug = separate(module, folders);
        if found.debug.is_some() {
            found.problem = None;
        }
    }
    found
}

/// Finds a separate file with this build-id.
fn separate(module: &Module, folders: &[PathBuf]) -> Option<PathBuf> {
    let id = module.build_id_text();
    let (first, rest) = id.split_at_checked(2)?;
    let roots = [PathBuf::from("/usr/lib/debug/.build-id")];
    let nested = folders.iter().map(|folder| folder.join(".build-id"));
    let candidates = roots.into_iter().chain(nested).chain(folders.iter().cloned());
    let paths = candidates.map(|root| root.join(first).join(format!("{rest}.debug")));
    paths
        .into_iter()
        .find(|path| examine(path).is_ok_and(|candidate| candidate.build_id == module.build_id && candidate.has_lines))
}

/// Returns the frames at an address, the innermost first.
pub(super) fn frames(lines: &Loader, offset: u64) -> Vec<Frame> {
    let mut frames = Vec::new();
    let Ok(mut found) = lines.find_frames(offset) else { return frames };
    while let Ok(Some(frame)) = found.next() {
        if frames.len() >= FRAMES {
            break;
        }
        let name = frame.function.as_ref().and_then(|name| name.raw_name().ok().map(|raw| demangle::name(&raw)));
        let file = frame.location.as_ref().and_then(|location| location.file.map(str::to_string));
        let line = frame.location.as_ref().and_then(|location| location.line);
        frames.push(Frame { function: name.unwrap_or_default(), file, line });
    }
    frames
}

/// Limit of examined locations per function.
const LOCATIONS_MAX: usize = 1 << 12;

/// Returns the names of functions that are inlined between two addresses, each once.
pub(super) fn inlined_functions(lines: &Loader, from: u64, to: u64) -> Vec<String> {
    let Ok(ranges) = lines.find_location_range(from, to) else { return Vec::new() };
    let starts: Vec<u64> = ranges.take(LOCATIONS_MAX).map(|(start, ..)| start).collect();
    let mut names: Vec<String> = Vec::new();
    for start in starts {
        // The last frame is the function itself.
        let inner = frames(lines, start);
        let inner = inner.iter().rev().skip(1).map(|frame| &frame.function);
        for name in inner.filter(|name| !name.is_empty()) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("program");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(examine(&pipe).err().as_deref(), Some("not a file"));
    }
}
