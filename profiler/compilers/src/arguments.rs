//! Command line that `leeward cc` makes of a compiler's: clang's, with the profiler's plugin and run-time. A function
//! of its arguments; finding the files and running clang is [`crate::clang`]'s.

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

/// The options that are ours: `--leeward-NAME=VALUE`, before or among the compiler's.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// The clang to run instead of the one that the plugin was built for.
    pub(crate) clang: Option<OsString>,
    /// Words for the plugin, without `-mllvm`.
    pub(crate) plugin: Vec<OsString>,
}

/// Values that an option of the plugin's takes.
#[derive(Clone, Copy)]
enum ValueKind {
    /// Exactly the listed words.
    OneOf(&'static [&'static str]),
    /// A number from 0.
    Number,
    /// A text that is not empty.
    Text,
}

/// Our options that the plugin takes as they are: names and values.
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

/// Refuses a wrong value here: clang would end with the exit code of a program that does not compile.
fn check(name: &str, values: ValueKind, value: &str) -> Result<(), String> {
    let refuse = |accepted: &str| Err(format!("--leeward-{name}={value}: accepted is {accepted}"));
    match values {
        ValueKind::OneOf(accepted) if !accepted.contains(&value) => refuse(&accepted.join(", ")),
        ValueKind::Number if value.parse::<u32>().is_err() => refuse("a number from 0 to 4294967295"),
        ValueKind::Text if value.is_empty() => refuse("a text that is not empty"),
        _ => Ok(()),
    }
}

/// Takes our options out of `words`; the rest is the compiler's. An error names the word that is wrong.
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

/// Product that the compiler is asked for, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputKind {
    /// Nothing that could hold our code: a version, freestanding code, another target.
    Nothing,
    /// Object files, assembly, precompiled headers, dependencies: compiled, but not linked.
    Object,
    /// A program.
    Program { fixed: bool },
    /// A shared library.
    Library,
}

/// Options whose value is the next word, which is no input then.
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

/// Beginnings of options whose value is the next word, too.
const WITH_VALUE_PREFIXES: [&str; 3] = ["-Xarch_", "-Xopenmp-target=", "-Xoffload-linker"];

/// Options after which clang links nothing.
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

/// Options that leave us out: code for which our run-time isn't there.
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

/// The linker's options for an object file from others, which the final link puts into a program.
const RELOCATABLE: [&str; 5] = ["-r", "-i", "-Ur", "-relocatable", "--relocatable"];
/// The linker's options for a shared library.
const SHARED: [&str; 4] = ["-shared", "--shared", "-Bshareable", "--Bshareable"];

/// Ends of headers' names, as clang knows them.
const HEADERS: [&str; 5] = ["h", "H", "hh", "hpp", "hxx"];

/// Facts about a command line.
#[derive(Default)]
struct ParsedCommand {
    /// There is something to work on.
    has_inputs: bool,
    /// Of these, not all are headers, which are compiled and not linked.
    has_linked: bool,
    without_linking: bool,
    uninstrumented: bool,
    fixed: bool,
    /// Words for the linker.
    linker: Vec<OsString>,
}

impl ParsedCommand {
    /// Reads a command line without response files.
    fn parse(arguments: &[OsString]) -> ParsedCommand {
        let mut facts = ParsedCommand::default();
        let mut language = String::new();
        let mut words = arguments.iter().map(|word| word.to_string_lossy());
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_default();
            match word.as_ref() {
                "-shared" | "--shared" | "-r" => facts.linker.push(word.as_ref().into()),
                "-static" | "--static" | "-static-pie" => facts.fixed = true,
                "-x" | "--language" => language = value().into_owned(),
                "-Xlinker" | "--for-linker" => facts.linker.push(value().as_ref().into()),
                "-target" => facts.uninstrumented |= is_cross_target(&value()),
                // A library alone can make a program, too.
                "-l" => {
                    value();
                    facts.link(false);
                }
                word if WITHOUT_LINKING.contains(&word) => facts.without_linking = true,
                word if UNINSTRUMENTED.contains(&word) => facts.uninstrumented = true,
                word if WITH_VALUE.contains(&word) => _ = value(),
                word if WITH_VALUE_PREFIXES.iter().any(|begin| word.starts_with(begin)) => _ = value(),
                word => facts.joined(word, &mut language),
            }
        }
        facts
    }

    /// Reads a word that has its value in it, or is an input.
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

    /// Whether the linker is told one of these, also in a response file of its own.
    fn has_linker_option(&self, options: &[&str]) -> bool {
        let expanded = response::expand(&self.linker).ok().flatten().map(|all| all.words);
        let words = expanded.as_ref().unwrap_or(&self.linker);
        words.iter().any(|word| word.to_str().is_some_and(|word| options.contains(&word)))
    }

    fn product(&self) -> OutputKind {
        // `cc --version`, `cc -print-search-dirs`: with an input they would try to link.
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

/// Whether code for a target can't be linked with the run-time, which is for this machine's architecture and Linux.
fn is_cross_target(triple: &str) -> bool {
    let architecture = triple.split('-').next().unwrap_or_default();
    let is_ours = match std::env::consts::ARCH {
        "x86_64" => matches!(architecture, "x86_64" | "amd64"),
        "aarch64" => matches!(architecture, "aarch64" | "arm64"),
        own => own == architecture,
    };
    !is_ours || !triple.contains("linux")
}

/// Command line that says the same without `--`, behind which nothing of ours could stand.
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

/// Command line of the user's, without our options.
pub(crate) struct CommandLine<'a> {
    /// Words that clang gets.
    pub(crate) arguments: &'a [OsString],
    /// The same without response files; `None` where clang refuses one of these.
    pub(crate) expanded: Option<&'a [OsString]>,
}

/// clang's arguments for a command line.
pub(crate) fn clang_arguments(files: &Files, plugin: &[OsString], line: &CommandLine) -> Vec<OsString> {
    let arguments = line.arguments;
    // The parts of clang that it runs by itself, such as `-cc1`, are none of ours.
    let is_inner = arguments.first().is_some_and(|word| word.as_encoded_bytes().starts_with(b"-cc1"));
    let meant = line.expanded.filter(|_| !is_inner);
    let product = meant.map_or(OutputKind::Nothing, |meant| ParsedCommand::parse(meant).product());
    let mut all: Vec<OsString> = Vec::new();
    if product == OutputKind::Nothing {
        all.extend_from_slice(arguments);
        return all;
    }
    let mut say = |words: &[&OsStr]| all.extend(words.iter().map(|word| word.to_os_string()));
    let file = files.plugin();
    let mut pass = OsString::from("-fpass-plugin=");
    pass.push(&file);
    // When it only links or only preprocesses, clang would warn of options that it doesn't need.
    say(&["--start-no-unused-arguments".as_ref()]);
    // Loaded twice: by the front end, so that it knows the plugin's options, and for the pipeline.
    say(&["-Xclang".as_ref(), "-load".as_ref(), "-Xclang".as_ref(), file.as_os_str(), &pass]);
    // Marks functions, so that `__attribute__((no_instrument_function))` reaches the plugin, which takes the marks away.
    say(&["-finstrument-functions-after-inlining".as_ref()]);
    // To the front end alone: clang would give a plain `-mllvm` to its assembler, too, which loads no plugin and refuses the option.
    for option in std::iter::once(OsStr::new("-leeward-only-marked")).chain(plugin.iter().map(OsString::as_os_str)) {
        say(&["-Xclang".as_ref(), "-mllvm".as_ref(), "-Xclang".as_ref(), option]);
    }
    say(&["-idirafter".as_ref(), &files.path("include")]);
    say(&["--end-no-unused-arguments".as_ref()]);
    all.extend_from_slice(arguments);
    all.extend(link_arguments(files, product));
    all
}

fn link_arguments(files: &Files, product: OutputKind) -> Vec<OsString> {
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    // Behind `-x c` an archive would be read as a source. Where nothing is linked after all, clang would warn of libraries.
    let mut all = words(&["--start-no-unused-arguments", "-x", "none"]);
    match product {
        OutputKind::Nothing | OutputKind::Object => return Vec::new(),
        OutputKind::Library => all.push(files.path("libleeward_stub.a")),
        OutputKind::Program { fixed } => {
            all.extend(words(&["-Wl,--whole-archive"]));
            all.push(files.path("libleeward_rt.a"));
            // A static program has no next pthread_mutex_lock that could be called.
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
    fn products_are_told_apart() {
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
        // Values are no inputs, and without inputs nothing is linked.
        check("-o a", OutputKind::Nothing);
        check("--version", OutputKind::Nothing);
        check("-v -I include -D X", OutputKind::Nothing);
        check("", OutputKind::Nothing);
        check("-r a.o b.o -o c.o", OutputKind::Nothing);
        check("-nostdlib a.c", OutputKind::Nothing);
        check("-m32 a.c", OutputKind::Nothing);
    }

    #[test]
    fn the_linkers_own_words_count() {
        let check = |line: &str, expected: OutputKind| {
            assert_eq!(ParsedCommand::parse(&words(line)).product(), expected, "{line}")
        };
        check("-Wl,-shared a.o", OutputKind::Library);
        check("-Wl,--no-undefined,--shared a.o", OutputKind::Library);
        check("-Xlinker -shared a.o", OutputKind::Library);
        check("--for-linker=-Bshareable a.o", OutputKind::Library);
        check("-Wl,-r a.o b.o -o c.o", OutputKind::Nothing);
        check("-Xlinker --relocatable a.o", OutputKind::Nothing);
        // Of a compiler that does not link they mean nothing.
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
    fn nothing_of_ours_stands_behind_the_end_of_options() {
        let check = |line: &str, expected: &str| assert_eq!(without_end_of_options(words(line)), words(expected));
        check("-c a.c -o a.o", "-c a.c -o a.o");
        check("-c -- a.c -b.c", "-c a.c ./-b.c");
        check("--", "");
    }

    #[test]
    fn clangs_own_parts_and_refusals_go_through_unchanged() {
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
        for (place, word) in words.iter().enumerate().filter(|(_, word)| word.starts_with("-leeward-")) {
            assert_eq!(words[place - 3..place], ["-Xclang", "-mllvm", "-Xclang"], "{word} in {all}");
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
    fn questions_go_through_unchanged() {
        assert_eq!(arguments("--version"), "--version");
        assert_eq!(arguments("-print-search-dirs"), "-print-search-dirs");
    }

    #[test]
    fn our_options_are_taken_out() {
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
