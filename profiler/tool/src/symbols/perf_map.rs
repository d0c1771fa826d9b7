//! Names of code that was compiled while the program ran, by the file that its compiler writes for
//! profilers: `perf-PID.map`, a line for each function: start, size (both hexadecimal), name.
//!
//! The recorder copies the file into the trace's folder. Does not contain the copying.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::Frame;

/// Limit of the file's bytes.
pub const FILE_BYTES: u64 = 1 << 26;
/// Limit of its functions.
pub const ENTRIES: usize = 1 << 20;
/// Limit of a line.
const LINE: u64 = 1 << 12;
/// Entries before an address that are searched for one that contains it.
const OVERLAPPING: usize = 256;

/// Returns how a program gets such a file whose interpreter or compiler is in a file of this name.
pub(super) fn naming_hint(file: &str) -> Option<&'static str> {
    let is = |names: &[&str]| names.iter().any(|name| file == *name || file.starts_with(&format!("{name}.")));
    if is(&["libjvm"]) {
        Some(
            "functions of Java have no names: start it with `java -XX:+PreserveFramePointer`, and call `jcmd PID Compiler.perfmap` before the recording ends (JDK 17)",
        )
    } else if is(&["node", "libnode"]) {
        Some(
            "functions of JavaScript have no names: start it with `node --perf-basic-prof --interpreted-frames-native-stack`",
        )
    } else if is(&["python3", "libpython3"]) {
        Some("functions of Python have no names: start it with `python3 -X perf` (Python 3.12 or later)")
    } else {
        None
    }
}

/// A function of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    start: u64,
    size: u64,
    /// Number of its line: code may take the place of older code.
    line: u32,
    name: Box<str>,
}

/// The functions of the file, sorted by their start.
#[derive(Debug, Default)]
pub(super) struct PerfMap(Vec<Entry>);

impl PerfMap {
    /// Reads the file in the folder of a trace; empty if there is none.
    pub(super) fn of_trace(trace: &Path, pid: u32) -> PerfMap {
        let folder = if trace.is_dir() { Some(trace) } else { trace.parent() };
        let path: Option<PathBuf> = folder.map(|folder| folder.join(format!("perf-{pid}.map")));
        path.and_then(|path| File::open(path).ok()).map_or_else(PerfMap::default, PerfMap::read)
    }

    /// Returns whether no function has a name.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn read(file: impl Read) -> PerfMap {
        let mut reader = BufReader::new(file.take(FILE_BYTES));
        let (mut entries, mut line, mut number) = (Vec::new(), Vec::new(), 0);
        loop {
            line.clear();
            // The rest of a line that is too long is taken for another, which is none.
            match reader.by_ref().take(LINE).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            number += 1;
            if entries.len() < ENTRIES {
                entries.extend(entry(&String::from_utf8_lossy(&line), number));
            }
        }
        entries.sort_by_key(|entry: &Entry| (entry.start, entry.line));
        PerfMap(entries)
    }

    /// Returns start and frame of the function at an address; of several, the one that was compiled
    /// last.
    pub(super) fn find(&self, address: u64) -> Option<(u64, Frame)> {
        let above = self.0.partition_point(|entry| entry.start <= address);
        let near = &self.0[above.saturating_sub(OVERLAPPING)..above];
        let covers = |entry: &&Entry| address - entry.start < entry.size;
        let found = near.iter().filter(covers).max_by_key(|entry| entry.line)?;
        Some((found.start, frame(&found.name)))
    }
}

fn entry(line: &str, number: u32) -> Option<Entry> {
    let (start, size, name) = parse(line)?;
    Some(Entry { start, size, line: number, name: name.into() })
}

/// Splits a line of such a file into start, size and name; `None` if it is no such line.
pub fn parse(line: &str) -> Option<(u64, u64, &str)> {
    let mut words = line.trim_end().splitn(3, ' ');
    let mut hexadecimal = || {
        let word = words.next()?;
        u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
    };
    let (start, size) = (hexadecimal()?, hexadecimal()?);
    let name = words.next().map(str::trim).filter(|name| !name.is_empty())?;
    (size > 0).then_some((start, size, name))
}

/// Splits the names of CPython (`py::name:file`) and of V8 (`JS:*name file:line:column`) into
/// function, file and line. Other names stay as they are.
fn frame(name: &str) -> Frame {
    let whole = || Frame { function: name.to_string(), file: None, line: None };
    if let Some((function, file)) = name.strip_prefix("py::").and_then(|rest| rest.split_once(':')) {
        return Frame { function: function.into(), file: Some(file.into()), line: None };
    }
    let script =
        ["JS:", "LazyCompile:", "Function:", "Eval:", "Script:"].iter().find_map(|kind| name.strip_prefix(kind));
    let Some(script) = script else { return whole() };
    // How the function was compiled: the same function may be there several times.
    let script = script.trim_start_matches(['*', '~', '^', '+', '\'']);
    // Code without a file has a place with blanks: `[worker eval]:2:27`.
    let bracket = script.rfind(" [").filter(|at| script[*at..].contains("]:"));
    let Some(blank) = bracket.or_else(|| script.rfind(' ')) else { return whole() };
    let (function, place) = (&script[..blank], &script[blank + 1..]);
    let function = if function.is_empty() { "(anonymous)" } else { function };
    let mut parts = place.rsplitn(3, ':');
    let (_column, line, file) = (parts.next(), parts.next().and_then(|line| line.parse().ok()), parts.next());
    let file = file.filter(|_| line.is_some()).unwrap_or(place);
    Frame { function: function.into(), file: Some(file.into()), line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(name: &str) -> String {
        let Frame { function, file, line } = frame(name);
        format!("{function}|{}|{}", file.unwrap_or_default(), line.map_or(String::new(), |line| line.to_string()))
    }

    #[test]
    fn programs_with_names_of_their_own_are_recognised() {
        let files = ["libjvm.so", "node", "libnode.so.115", "python3.12", "libpython3.11.so.1.0"];
        assert!(files.iter().all(|file| naming_hint(file).is_some()));
        assert!(["nginx", "nodes", "libjvmx.so", "python3-config"].iter().all(|file| naming_hint(file).is_none()));
    }

    #[test]
    fn names_of_languages_are_split() {
        assert_eq!(shown("py::Store.look_up:/srv/app.py"), "Store.look_up|/srv/app.py|");
        assert_eq!(shown("JS:*handle file:///srv/app.js:12:5"), "handle|file:///srv/app.js|12");
        assert_eq!(shown("LazyCompile:~ /srv/app.js:3:1"), "(anonymous)|/srv/app.js|3");
        assert_eq!(shown("JS:~report [worker eval]:2:27"), "report|[worker eval]|2");
        assert_eq!(shown("Builtin:ArrayMap"), "Builtin:ArrayMap||");
        assert_eq!(shown("com.example.Store::lookUp"), "com.example.Store::lookUp||");
    }

    #[test]
    fn the_last_of_overlapping_functions_counts() {
        let map =
            PerfMap::read(&b"1000 100 old\n1040 10 py::new:/a.py\nbad line\n0x2000 8 other one\n3000 0 empty\n"[..]);
        let name = |address| map.find(address).map(|(start, frame)| (start, frame.function));
        assert_eq!(name(0x1000), Some((0x1000, "old".into())));
        assert_eq!(name(0x1045), Some((0x1040, "new".into())));
        assert_eq!(name(0x1051), Some((0x1000, "old".into())));
        assert_eq!(name(0x2007), Some((0x2000, "other one".into())));
        assert_eq!((name(0x2008), name(0x3000), name(0)), (None, None, None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), address: u64) {
            let _ = PerfMap::read(&bytes[..]).find(address);
        }

        #[test]
        fn any_lines_are_read_without_a_panic(lines in prop::collection::vec("[0-9a-fx]{0,17} [0-9a-f]{0,17} (py::|JS:[*~]?|)\\PC{0,20}", 0..20), address: u64) {
            let map = PerfMap::read(lines.join("\n").as_bytes());
            if let Some((start, _)) = map.find(address) {
                prop_assert!(start <= address);
            }
        }
    }
}
