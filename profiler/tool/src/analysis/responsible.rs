//! Choice of the function to name among the calls that contain a difference, where calls are
//! estimated from samples.
//!
//! Samples miss most short calls, so they can't tell which functions ordinary requests call. The
//! innermost function that still contains the difference is named, unless it only serves others.
//! Does not contain times.

use super::names::is_library;
use crate::symbols::Location;

/// Modules of the C and C++ libraries, and the kernel's: beginnings of their files' names.
const SYSTEM_MODULES: [&str; 9] =
    ["libc.so", "libc-", "ld-", "libpthread", "libm.so", "libm-", "libstdc++", "libgcc_s", "[vdso]"];
/// First parts of the paths of packages in Go's standard library. Other packages' paths begin with
/// a domain, or are the program's own.
const GO_PACKAGES: [&str; 46] = [
    "archive",
    "bufio",
    "bytes",
    "cmp",
    "compress",
    "container",
    "context",
    "crypto",
    "database",
    "debug",
    "embed",
    "encoding",
    "errors",
    "expvar",
    "flag",
    "fmt",
    "go",
    "hash",
    "html",
    "image",
    "index",
    "internal",
    "io",
    "iter",
    "log",
    "maps",
    "math",
    "mime",
    "net",
    "os",
    "path",
    "reflect",
    "regexp",
    "runtime",
    "slices",
    "sort",
    "strconv",
    "strings",
    "sync",
    "syscall",
    "testing",
    "text",
    "time",
    "unicode",
    "unique",
    "vendor",
];
/// Ends of the names of C functions that the compiler split or specialised: `sort.part.0`.
const COMPILERS_PARTS: [&str; 5] = [".part.", ".isra.", ".constprop.", ".cold", ".lto_priv"];

/// A call on the path to the difference.
#[derive(Clone, Debug)]
pub(super) struct PathCall {
    /// File name of the function's module.
    pub(super) module: Option<String>,
    /// The function has a name of its own, not only module and offset.
    pub(super) is_named: bool,
    /// The function is of a system library or a language's runtime: it serves whatever calls it.
    pub(super) is_system: bool,
    /// A thread also waits for work in it.
    pub(super) waits_for_work: bool,
    /// Hardly any ordinary request was seen in the function.
    pub(super) is_apart: bool,
}

impl PathCall {
    /// Describes a call of the function at a location.
    pub(super) fn new(location: &Location, waits_for_work: bool, is_apart: bool) -> PathCall {
        let name = location.function();
        let module = location.module.clone();
        let is_system =
            module.as_deref().is_some_and(|module| SYSTEM_MODULES.iter().any(|begin| module.starts_with(begin)));
        let is_runtime = is_of_go(&name) || is_library(&name);
        let is_named = !location.frames.is_empty();
        PathCall { module, is_named, is_system: is_system || is_runtime, waits_for_work, is_apart }
    }

    fn is_general(&self) -> bool {
        self.is_system || self.waits_for_work
    }
}

/// Returns whether a function is of Go's runtime or standard library.
fn is_of_go(name: &str) -> bool {
    let (package, _) = name.split_once(['/', '.']).unwrap_or(("", ""));
    GO_PACKAGES.contains(&package) && !name.contains("::") && !COMPILERS_PARTS.iter().any(|part| name.contains(part))
}

/// Returns the index of the call to name, in `path` and then `below`. The last call of `path` is
/// the innermost that contains the difference, and those `below` take most of its time.
///
/// It is the innermost function of the program that doesn't wait for work, too; without one on the
/// path, the first below. If that has no name, it is the nearest named one around it in the same
/// module that ordinary requests are not seen in, or else the first named one that it calls.
pub(super) fn responsible(path: &[PathCall], below: &[PathCall]) -> usize {
    let last = path.len().saturating_sub(1);
    let own = path.iter().rposition(|call| !call.is_general());
    if own.is_none()
        && let Some(called) = below.iter().position(|call| call.is_named && !call.is_general())
    {
        return path.len() + called;
    }
    let own = own.or_else(|| path.iter().rposition(|call| !call.is_system)).unwrap_or(last);
    if path.get(own).is_none_or(|call| call.is_named) {
        return own;
    }
    let around = path[..own].iter().rposition(|call| call.module != path[own].module).map_or(0, |outside| outside + 1);
    let mut above = (around..own).rev().take_while(|index| path[*index].is_apart && !path[*index].is_general());
    let above = above.find(|index| path[*index].is_named);
    let called = || (own + 1..path.len()).find(|index| path[*index].is_named);
    let serves = |call: &PathCall| call.is_general() || !call.is_apart;
    let further = || below.iter().position(|call| call.is_named && !serves(call)).map(|index| path.len() + index);
    above.or_else(called).or_else(further).unwrap_or(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(is_named: bool, is_system: bool, waits_for_work: bool, is_apart: bool) -> PathCall {
        PathCall { module: Some("app".into()), is_named, is_system, waits_for_work, is_apart }
    }

    /// Calls as module, whether named, of a system library, apart.
    fn chosen(calls: &[(&str, bool, bool, bool)]) -> usize {
        let call = |(module, is_named, is_system, is_apart): &(&str, bool, bool, bool)| PathCall {
            module: Some((*module).into()),
            ..call(*is_named, *is_system, false, *is_apart)
        };
        responsible(&calls.iter().map(call).collect::<Vec<_>>(), &[])
    }

    #[test]
    fn the_innermost_function_of_the_program_is_named() {
        assert_eq!(chosen(&[("app", true, false, true), ("app", true, false, true)]), 1);
        assert_eq!(chosen(&[("app", true, false, true), ("libc.so.6", true, true, true)]), 0);
        assert_eq!(chosen(&[("libc.so.6", true, true, true), ("libc.so.6", true, true, true)]), 1);
        assert_eq!(chosen(&[]), 0);
    }

    #[test]
    fn a_function_without_a_name_is_told_by_the_export_that_calls_it() {
        let main = ("app", true, false, false);
        let export = ("libz.so.1", true, false, true);
        let inner = ("libz.so.1", false, false, true);
        assert_eq!(chosen(&[main, export, inner, inner]), 1);
        // Of its module no function with a name is on the path.
        assert_eq!(chosen(&[main, inner, inner]), 2);
    }

    #[test]
    fn an_export_that_ordinary_requests_call_does_not_stand_for_a_function_without_a_name() {
        let (dispatch, inner) = (("app", true, false, false), ("app", false, false, true));
        assert_eq!(chosen(&[dispatch, inner]), 1);
        assert_eq!(chosen(&[dispatch, inner, ("libc.so.6", true, true, true)]), 2);
    }

    #[test]
    fn a_function_without_a_name_is_told_by_the_named_one_that_takes_most_of_its_time() {
        let call = |is_named, is_system, is_apart| call(is_named, is_system, false, is_apart);
        let path = [call(true, false, false), call(false, false, true)];
        assert_eq!(responsible(&path, &[call(false, false, true), call(true, false, true)]), 3);
        assert_eq!(responsible(&path, &[call(true, true, true), call(true, false, false)]), 1);
        // A runtime that does nothing but call the program's function.
        assert_eq!(responsible(&[call(true, true, true)], &[call(true, true, true), call(true, false, true)]), 2);
        assert_eq!(responsible(&[call(true, false, true)], &[call(true, false, true)]), 0);
    }

    #[test]
    fn a_function_in_which_threads_wait_for_work_is_named_for_want_of_another() {
        let call = |is_system, waits_for_work| call(true, is_system, waits_for_work, true);
        assert_eq!(responsible(&[call(false, true), call(false, false), call(false, true), call(true, false)], &[]), 1);
        assert_eq!(responsible(&[call(true, true), call(false, true), call(true, true)], &[]), 1);
    }

    #[test]
    fn functions_of_libraries_are_general() {
        let location = |module: &str, function: &str| Location {
            module: Some(module.into()),
            offset: 1,
            start: None,
            frames: vec![crate::symbols::Frame { function: function.into(), file: None, line: None }],
        };
        let is_general = |module, function| PathCall::new(&location(module, function), false, true).is_general();
        assert!(is_general("libc.so.6", "memcpy") && is_general("service", "runtime.mallocgc"));
        assert!(is_general("service", "crypto/internal/fips140/sha256.blockSHANI"));
        assert!(is_general("service", "net/http.(*conn).serve") && is_general("service", "sort.Slice"));
        assert!(!is_general("service", "github.com/a/b.Sort") && !is_general("service", "service/report.Make"));
        assert!(!is_general("app", "sort.part.0") && !is_general("app", "log"));
        assert!(is_general("app", "core::slice::sort::stable::sort"));
        assert!(!is_general("libz.so.1.2.13", "deflate") && !is_general("service", "main.report"));
        assert!(PathCall::new(&location("app", "wait"), true, true).is_general());
    }
}
