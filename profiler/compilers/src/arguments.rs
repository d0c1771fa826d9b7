//! Converts a compiler's command line to clang's, with the profiler's plugin and run-time, for
//! `leeward cc`.
//!
//! The result depends only on the arguments; [`crate::clang`] finds the files and runs clang.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::response;

/// Source language of the wrapped compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// `leeward cc`.
    C,
    /// `leeward c++`.
    Cxx,
}

/// Leeward's own options: `--leeward-NAME=VALUE`, before or among the compiler's.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// The clang to run, instead of the one that the plugin was built for.
    pub(crate) clang: Option<OsString>,
    /// Options for the plugin, without `-mllvm`.
    pub(crate) plugin: Vec<OsString>,
}

/// Values of a plugin option.
#[derive(Clone, Copy)]
enum ValueKind {
    /// Exactly one of the listed words.
    OneOf(&'static [&'static str]),
    /// A number from 0.
    Number,
    /// A nonempty text.
    Text,
}

/// Options that are passed to the plugin unchanged: names and values.
const PLUGIN_OPTIONS: [(&str, ValueKind); 9] = [
    ("bounded-instructions", ValueKind::Number),
    ("engine", ValueKind::OneOf(&["tick", "scan", "none"])),
    ("exclude", ValueKind::Text),
    ("exclude-file", ValueKind::Text),
    ("exclude-list", ValueKind::Text),
    ("min-instructions", ValueKind::Number),
    ("patch", ValueKind::OneOf(&["true", "false"])),
    ("request-fn", ValueKind::Text),
    ("unwind", ValueKind::OneOf(&["true", "false"])),
];

/// Rejects a wrong value here: clang's exit code would look like a compile error.
fn check(name: &str, values: ValueKind, value: &str) -> Result<(), String> {
    let reject = |accepted: &str| Err(format!("--leeward-{name}={value}: accepted is {accepted}"));
    match values {
        ValueKind::OneOf(accepted) if !accepted.contains(&value) => reject(&accepted.join(", ")),
        ValueKind::Number if value.parse::<u32>().is_err() => reject("a number from 0 to 4294967295"),
        ValueKind::Text if value.is_empty() => reject("a text that is not empty"),
        _ => Ok(()),
    }
}

/// Removes our options from `words`; the rest is the compiler's. An error names the wrong word.
pub(crate) fn take_options(words: impl IntoIterator<Item = OsString>) -> Result<(Options, Vec<OsString>), String> {
    let mut options = Options::default();
    let mut rest = Vec::new();
    for word in words {
        let Some(ours) = word.to_str().and_then(|word| word.strip_prefix("--leeward-")) else {
            rest.push(word);
            continue;
        };
        let values = |name| PLUGIN_OPTIONS.iter().find(|(known, _)| *known == name).map(|(_, values)| *values);
        match ours.split_once('=').map(|(name, value)| (name, value, values(name))) {
            Some((name, value, Some(values))) => {
                check(name, values, value)?;
                options.plugin.push(format!("-leeward-{name}={value}").into());
            }
            Some(("clang", path, None)) if !path.is_empty() => options.clang = Some(path.into()),
            _ => {
                let known = PLUGIN_OPTIONS.map(|(name, _)| format!("--leeward-{name}=")).join(", ");
                return Err(format!("--leeward-{ours}: accepted are --leeward-clang=, {known}, each with a value"));
            }
        }
    }
    Ok((options, rest))
}

/// Output of the compiler, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputKind {
    /// No output that could contain our code: a version, freestanding code, another target.
    Nothing,
    /// Object files, assembly, precompiled headers, dependencies: compiled, but not linked.
    Object,
    /// A program.
    Program { fixed: bool },
    /// A shared library.
    Library,
}

/// Options with the next word as their value; that word is not an input.
const WITH_VALUE: [&str; 76] = [
    "-o",
    "-I",
    "-D",
    "-U",
    "-L",
    "-l",
    "-T",
    "-u",
    "-e",
    "-z",
    "-h",
    "-A",
    "-B",
    "-F",
    "-G",
    "-b",
    "-include",
    "-include-pch",
    "-imacros",
    "-isystem",
    "-isystem-after",
    "-cxx-isystem",
    "-iquote",
    "-idirafter",
    "-iprefix",
    "-iwithprefix",
    "-iwithprefixbefore",
    "-iwithsysroot",
    "-isysroot",
    "-imultilib",
    "-ivfsoverlay",
    "-iframework",
    "-MF",
    "-MT",
    "-MQ",
    "-MJ",
    "-Xclang",
    "-Xassembler",
    "-Xpreprocessor",
    "-Xanalyzer",
    "-Xarch_host",
    "-Xarch_device",
    "-Xopenmp-target",
    "-mllvm",
    "-mmlir",
    "-mthread-model",
    "-arch",
    "-aux-info",
    "-dumpdir",
    "-dependency-file",
    "-dependency-dot",
    "-fdebug-compilation-dir",
    "-fnew-alignment",
    "-ftrapv-handler",
    "-fmodule-implementation-of",
    "-gen-cdb-fragment-path",
    "-resource-dir",
    "-serialize-diagnostics",
    "-specs",
    "-working-directory",
    "-rpath",
    "-soname",
    "-framework",
    "--config",
    "--param",
    "--output",
    "--sysroot",
    "--std",
    "--stdlib",
    "--rtlib",
    "--prefix",
    "--include-directory",
    "--library-directory",
    "--define-macro",
    "--undefine-macro",
    "--analyzer-output",
];

/// Prefixes of further options with the next word as their value.
const WITH_VALUE_PREFIXES: [&str; 3] = ["-Xarch_", "-Xopenmp-target=", "-Xoffload-linker"];

/// Options with which clang links nothing.
const WITHOUT_LINKING: [&str; 22] = [
    "-c",
    "-S",
    "-E",
    "-M",
    "-MM",
    "--compile",
    "--assemble",
    "--preprocess",
    "--dependencies",
    "--user-dependencies",
    "-fsyntax-only",
    "-fdriver-only",
    "-verify-pch",
    "-module-file-info",
    "-rewrite-objc",
    "-rewrite-legacy-objc",
    "-extract-api",
    "-emit-ast",
    "-emit-interface-stubs",
    "--analyze",
    "--precompile",
    "--migrate",
];

/// Options that disable the instrumentation: our run-time does not exist for such code.
const UNINSTRUMENTED: [&str; 11] = [
    "-ffreestanding",
    "-nostdlib",
    "--no-standard-libraries",
    "-nostartfiles",
    "-nodefaultlibs",
    "-nolibc",
    "-m32",
    "-m16",
    "-mx32",
    "-mkernel",
    "-mcmodel=kernel",
];

/// The linker's options for a relocatable object file, which the final link puts into a program.
const RELOCATABLE: [&str; 5] = ["-r", "-i", "-Ur", "-relocatable", "--relocatable"];
/// The linker's options for a shared library.
const SHARED: [&str; 4] = ["-shared", "--shared", "-Bshareable", "--Bshareable"];

/// Extensions of header files, as in clang.
const HEADERS: [&str; 5] = ["h", "H", "hh", "hpp", "hxx"];

/// Facts about a command line.
#[derive(Default)]
struct ParsedCommand {
    /// The command line has inputs.
    has_inputs: bool,
    /// Some inputs are not headers; headers are compiled and not linked.
    has_linked: bool,
    without_linking: bool,
    uninstrumented: bool,
    fixed: bool,
    /// Arguments for the linker.
    linker: Vec<OsString>,
}

impl ParsedCommand {
    /// Parses a command line without response files.
    fn parse(arguments: &[OsString]) -> ParsedCommand {
        let mut command = ParsedCommand::default();
        let mut language = String::new();
        let mut words = arguments.iter().map(|word| word.to_string_lossy());
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_default();
            match word.as_ref() {
                "-shared" | "--shared" | "-r" => command.linker.push(word.as_ref().into()),
                "-static" | "--static" | "-static-pie" => command.fixed = true,
                "-x" | "--language" => language = value().into_owned(),
                "-Xlinker" | "--for-linker" => command.linker.push(value().as_ref().into()),
                "-target" => command.uninstrumented |= is_cross_target(&value()),
                // A library alone can make a program, too.
                "-l" => {
                    value();
                    command.link(false);
                }
                word if WITHOUT_LINKING.contains(&word) => command.without_linking = true,
                word if UNINSTRUMENTED.contains(&word) => command.uninstrumented = true,
                word if WITH_VALUE.contains(&word) => _ = value(),
                word if WITH_VALUE_PREFIXES.iter().any(|begin| word.starts_with(begin)) => _ = value(),
                word => command.joined(word, &mut language),
            }
        }
        command
    }

    /// Parses a word that contains its value, or is an input.
    fn joined(&mut self, word: &str, language: &mut String) {
        let value = |option: &str| word.strip_prefix(option);
        if word == "-" || !word.starts_with('-') {
            let by_name = || HEADERS.contains(&word.rsplit_once('.').map_or("", |(_, end)| end));
            let is_header =
                if matches!(language.as_str(), "" | "none") { by_name() } else { language.contains("header") };
            self.link(is_header);
        } else if let Some(words) = value("-Wl,") {
            self.linker.extend(words.split(',').map(OsString::from));
        } else if let Some(word) = value("--for-linker=") {
            self.linker.push(word.into());
        } else if let Some(triple) = value("--target=") {
            self.uninstrumented |= is_cross_target(triple);
        } else if let Some(name) = value("--language=").or_else(|| value("-x")) {
            *language = name.into();
        } else if word.starts_with("-l") {
            self.link(false);
        }
    }

    fn link(&mut self, is_header: bool) {
        self.has_inputs = true;
        self.has_linked |= !is_header;
    }

    /// Returns whether the linker gets one of these options, also through its own response file.
    fn has_linker_option(&self, options: &[&str]) -> bool {
        let expanded = response::expand(&self.linker).ok().flatten().map(|all| all.words);
        let words = expanded.as_ref().unwrap_or(&self.linker);
        words.iter().any(|word| word.to_str().is_some_and(|word| options.contains(&word)))
    }

    fn product(&self) -> OutputKind {
        // `cc --version`, `cc -print-search-dirs`: an additional input would make them link.
        if self.uninstrumented || !self.has_inputs {
            OutputKind::Nothing
        } else if self.without_linking || !self.has_linked {
            OutputKind::Object
        } else if self.has_linker_option(&RELOCATABLE) {
            OutputKind::Nothing
        } else if self.has_linker_option(&SHARED) {
            OutputKind::Library
        } else {
            OutputKind::Program { fixed: self.fixed }
        }
    }
}

/// Returns whether a target's code can't be linked with the run-time, which is for this
/// architecture and Linux.
fn is_cross_target(triple: &str) -> bool {
    let architecture = triple.split('-').next().unwrap_or_default();
    let is_ours = match std::env::consts::ARCH {
        "x86_64" => matches!(architecture, "x86_64" | "amd64"),
        "aarch64" => matches!(architecture, "aarch64" | "arm64"),
        own => own == architecture,
    };
    !is_ours || !triple.contains("linux")
}

/// Returns an equivalent command line without `--`, after which our options could not follow.
pub(crate) fn without_end_of_options(arguments: Vec<OsString>) -> Vec<OsString> {
    let Some(end) = arguments.iter().position(|word| word == "--") else { return arguments };
    let as_path = |word: OsString| match word.as_encoded_bytes() {
        [b'-', ..] => [OsStr::new("./"), &word].into_iter().collect(),
        _ => word,
    };
    let mut words = arguments.into_iter();
    let mut all: Vec<OsString> = words.by_ref().take(end).collect();
    all.extend(words.skip(1).map(as_path));
    all
}

/// Files of the profiler, all in one folder.
pub(crate) struct Files<'a>(pub(crate) &'a Path);

impl Files<'_> {
    pub(crate) fn plugin(&self) -> PathBuf {
        self.0.join("libleeward_pass.so")
    }

    fn path(&self, name: &str) -> OsString {
        self.0.join(name).into_os_string()
    }
}

/// The user's command line, without our options.
pub(crate) struct CommandLine<'a> {
    /// Arguments for clang.
    pub(crate) arguments: &'a [OsString],
    /// The same without response files; `None` if clang rejects one of them.
    pub(crate) expanded: Option<&'a [OsString]>,
}

/// Returns clang's arguments for a command line.
pub(crate) fn clang_arguments(files: &Files, plugin: &[OsString], line: &CommandLine) -> Vec<OsString> {
    let arguments = line.arguments;
    // Internal modes of clang, such as `-cc1`, stay unchanged.
    let is_inner = arguments.first().is_some_and(|word| word.as_encoded_bytes().starts_with(b"-cc1"));
    let expanded = line.expanded.filter(|_| !is_inner);
    let product = expanded.map_or(OutputKind::Nothing, |expanded| ParsedCommand::parse(expanded).product());
    let mut all: Vec<OsString> = Vec::new();
    if product == OutputKind::Nothing {
        all.extend_from_slice(arguments);
        return all;
    }
    let mut push = |words: &[&OsStr]| all.extend(words.iter().map(|word| word.to_os_string()));
    let file = files.plugin();
    let mut pass = OsString::from("-fpass-plugin=");
    pass.push(&file);
    // When clang only links or only preprocesses, it would warn of unused options.
    push(&["--start-no-unused-arguments".as_ref()]);
    // Loaded twice: by the front end, so that it knows the plugin's options, and for the pipeline.
    push(&["-Xclang".as_ref(), "-load".as_ref(), "-Xclang".as_ref(), file.as_os_str(), &pass]);
    // Marks functions, so that `__attribute__((no_instrument_function))` reaches the plugin; the
    // plugin removes the marks.
    push(&["-finstrument-functions-after-inlining".as_ref()]);
    // Only for the front end: clang would also pass a plain `-mllvm` to its assembler, which loads
    // no plugin and rejects the option.
    for option in std::iter::once(OsStr::new("-leeward-only-marked")).chain(plugin.iter().map(OsString::as_os_str)) {
        push(&["-Xclang".as_ref(), "-mllvm".as_ref(), "-Xclang".as_ref(), option]);
    }
    push(&["-idirafter".as_ref(), &files.path("include")]);
    push(&["--end-no-unused-arguments".as_ref()]);
    all.extend_from_slice(arguments);
    all.extend(link_arguments(files, product));
    all
}

fn link_arguments(files: &Files, product: OutputKind) -> Vec<OsString> {
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    // After `-x c` an archive would be read as a source. Without linking, clang would warn of
    // libraries.
    let mut all = words(&["--start-no-unused-arguments", "-x", "none"]);
    match product {
        OutputKind::Nothing | OutputKind::Object => return Vec::new(),
        OutputKind::Library => all.push(files.path("libleeward_stub.a")),
        OutputKind::Program { fixed } => {
            all.extend(words(&["-Wl,--whole-archive"]));
            all.push(files.path("libleeward_rt.a"));
            // A static program has no next pthread_mutex_lock to call.
            if !fixed {
                all.push(files.path("libleeward_shim.a"));
            }
            all.extend(words(&["-Wl,--no-whole-archive", "-pthread", "-ldl", "-Wl,--build-id"]));
            if !fixed {
                // Libraries that are loaded later look for the run-time in the program.
                let exported = ["__leeward_*", "leeward_req_*"];
                all.extend(exported.map(|name| OsString::from(format!("-Wl,--export-dynamic-symbol={name}"))));
            }
        }
    }
    all.push("--end-no-unused-arguments".into());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn arguments(line: &str) -> String {
        let passed = words(line);
        let line = CommandLine { arguments: &passed, expanded: Some(&passed) };
        let all = clang_arguments(&Files(Path::new("/p")), &words("-leeward-engine=scan"), &line);
        all.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_output_kind_is_recognised() {
        let check = |line: &str, expected: OutputKind| {
            assert_eq!(ParsedCommand::parse(&words(line)).product(), expected, "{line}")
        };
        check("-O2 a.c -o a", OutputKind::Program { fixed: false });
        check("-static a.o", OutputKind::Program { fixed: true });
        check("a.o -lm -o a", OutputKind::Program { fixed: false });
        check("-c a.c", OutputKind::Object);
        check("-shared -c a.c", OutputKind::Object);
        check("-c -static a.c", OutputKind::Object);
        check("-E -", OutputKind::Object);
        check("-MM a.c", OutputKind::Object);
        check("-shared -fPIC a.o -o liba.so", OutputKind::Library);
        // Values are not inputs, and without inputs nothing is linked.
        check("-o a", OutputKind::Nothing);
        check("--version", OutputKind::Nothing);
        check("-v -I include -D X", OutputKind::Nothing);
        check("", OutputKind::Nothing);
        check("-r a.o b.o -o c.o", OutputKind::Nothing);
        check("-nostdlib a.c", OutputKind::Nothing);
        check("-m32 a.c", OutputKind::Nothing);
    }

    #[test]
    fn linker_options_determine_the_output_kind() {
        let check = |line: &str, expected: OutputKind| {
            assert_eq!(ParsedCommand::parse(&words(line)).product(), expected, "{line}")
        };
        check("-Wl,-shared a.o", OutputKind::Library);
        check("-Wl,--no-undefined,--shared a.o", OutputKind::Library);
        check("-Xlinker -shared a.o", OutputKind::Library);
        check("--for-linker=-Bshareable a.o", OutputKind::Library);
        check("-Wl,-r a.o b.o -o c.o", OutputKind::Nothing);
        check("-Xlinker --relocatable a.o", OutputKind::Nothing);
        // Without linking, the linker's options mean nothing.
        check("-Wl,-r -c a.c", OutputKind::Object);
        check("-Wl,-rpath,/l -Wl,-soname,x a.o", OutputKind::Program { fixed: false });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("linker");
        std::fs::write(&file, "-shared").unwrap();
        check(&format!("-Wl,@{} a.o", file.display()), OutputKind::Library);
    }

    #[test]
    fn headers_and_other_targets_are_not_linked() {
        let check = |line: &str, expected: OutputKind| {
            assert_eq!(ParsedCommand::parse(&words(line)).product(), expected, "{line}")
        };
        for line in [
            "a.h",
            "a.hpp b.hh -o x",
            "-x c-header a.txt",
            "-xc++-header a.txt -o a.pch",
            "--precompile a.cppm -o a.pcm",
            "-verify-pch a.pch",
            "-fsyntax-only a.c",
            "-include a.c a.h",
            "-Xarch_host -v a.h",
        ] {
            check(line, OutputKind::Object);
        }
        check("a.h a.c", OutputKind::Program { fixed: false });
        check("-x c a.h", OutputKind::Program { fixed: false });
        check("-x c-header a.x -x none a.c", OutputKind::Program { fixed: false });
        check("--target=bpf a.c -c", OutputKind::Nothing);
        check("-target wasm32 a.c", OutputKind::Nothing);
        let own = format!("--target={}-pc-linux-gnu a.c", std::env::consts::ARCH);
        check(&own, OutputKind::Program { fixed: false });
    }

    #[test]
    fn the_end_of_options_marker_is_removed() {
        let check = |line: &str, expected: &str| assert_eq!(without_end_of_options(words(line)), words(expected));
        check("-c a.c -o a.o", "-c a.c -o a.o");
        check("-c -- a.c -b.c", "-c a.c ./-b.c");
        check("--", "");
    }

    #[test]
    fn cc1_and_unexpanded_arguments_pass_unchanged() {
        assert_eq!(arguments("-cc1 -emit-obj a.c"), "-cc1 -emit-obj a.c");
        let passed = words("@round a.c");
        let line = CommandLine { arguments: &passed, expanded: None };
        assert_eq!(clang_arguments(&Files(Path::new("/p")), &[], &line), passed);
    }

    #[test]
    fn a_program_gets_plugin_and_run_time() {
        let all = arguments("-O2 a.c -o a");
        for part in [
            "-fpass-plugin=/p/libleeward_pass.so",
            "-Xclang -mllvm -Xclang -leeward-engine=scan",
            "/p/libleeward_rt.a /p/libleeward_shim.a",
            " -O2 a.c -o a --start-no-unused-arguments -x none ",
        ] {
            assert!(all.contains(part), "{all}");
        }
    }

    #[test]
    fn the_assembler_gets_none_of_the_plugins_options() {
        let all = arguments("-c a.S");
        let words: Vec<&str> = all.split(' ').collect();
        for (index, word) in words.iter().enumerate().filter(|(_, word)| word.starts_with("-leeward-")) {
            assert_eq!(words[index - 3..index], ["-Xclang", "-mllvm", "-Xclang"], "{word} in {all}");
        }
        assert!(all.contains("-leeward-only-marked"), "{all}");
    }

    #[test]
    fn objects_and_libraries_get_no_run_time() {
        assert!(!arguments("-c a.c").contains("libleeward_rt"));
        assert!(!arguments("-shared a.o").contains("libleeward_rt"));
        assert!(arguments("-shared a.o").contains("/p/libleeward_stub.a"));
        assert!(!arguments("-static a.o").contains("libleeward_shim"));
    }

    #[test]
    fn query_options_pass_unchanged() {
        assert_eq!(arguments("--version"), "--version");
        assert_eq!(arguments("-print-search-dirs"), "-print-search-dirs");
    }

    #[test]
    fn leeward_options_are_removed() {
        let line = words("--leeward-engine=scan -c --leeward-request-fn=handle:1 a.c --leeward-clang=/c/clang");
        let (options, rest) = take_options(line).unwrap();
        assert_eq!(rest, words("-c a.c"));
        assert_eq!(options.plugin, words("-leeward-engine=scan -leeward-request-fn=handle:1"));
        assert_eq!(options.clang, Some("/c/clang".into()));
        for wrong in [
            "--leeward-engine",
            "--leeward-engine=sedum",
            "--leeward-engine=",
            "--leeward-speed=1",
            "--leeward-clang=",
            "--leeward-exclude=",
            "--leeward-patch=1",
            "--leeward-min-instructions=-1",
        ] {
            assert!(take_options(words(wrong)).unwrap_err().contains(wrong.trim_end_matches('=')));
        }
    }
}
