//! Command line that `leeward cc` makes of a compiler's: clang's, with the profiler's plugin and run-time. A function
//! of its arguments; finding the files and running clang is [`crate::clang`]'s.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

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

/// Names of our options that the plugin takes as they are.
const PLUGIN_OPTIONS: [&str; 9] = [
    "bounded-instructions",
    "engine",
    "exclude",
    "exclude-file",
    "exclude-list",
    "min-instructions",
    "patch",
    "request-fn",
    "unwind",
];

/// Takes our options out of `words`; the rest is the compiler's. An error names the word that is wrong.
pub(crate) fn take_options(words: impl IntoIterator<Item = OsString>) -> Result<(Options, Vec<OsString>), String> {
    let mut options = Options::default();
    let mut rest = Vec::new();
    for word in words {
        let Some(ours) = word.to_str().and_then(|word| word.strip_prefix("--leeward-")) else {
            rest.push(word);
            continue;
        };
        match ours.split_once('=') {
            Some(("clang", path)) if !path.is_empty() => options.clang = Some(path.into()),
            Some((name, value)) if PLUGIN_OPTIONS.contains(&name) && !value.is_empty() => {
                options.plugin.push(format!("-leeward-{name}={value}").into());
            }
            _ => {
                let known = PLUGIN_OPTIONS.map(|name| format!("--leeward-{name}=")).join(", ");
                return Err(format!("--leeward-{ours}: accepted are --leeward-clang=, {known}, each with a value"));
            }
        }
    }
    Ok((options, rest))
}

/// Product that the compiler is asked for, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Product {
    /// Nothing that could hold our code: a version, freestanding code, another target.
    Nothing,
    /// Object files, assembly, dependencies: compiled, but not linked.
    Object,
    /// A program.
    Program { fixed: bool },
    /// A shared library.
    Library,
}

/// Options whose value is the next word, which is no input then.
const WITH_VALUE: [&str; 38] = [
    "-o",
    "-I",
    "-D",
    "-U",
    "-L",
    "-l",
    "-x",
    "-T",
    "-u",
    "-e",
    "-z",
    "-h",
    "-include",
    "-imacros",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-iprefix",
    "-iwithprefix",
    "-iwithprefixbefore",
    "-isysroot",
    "-MF",
    "-MT",
    "-MQ",
    "-Xclang",
    "-Xlinker",
    "-Xassembler",
    "-Xpreprocessor",
    "-mllvm",
    "-target",
    "--param",
    "-arch",
    "-aux-info",
    "-A",
    "-B",
    "-rpath",
    "-soname",
    "-F",
];

/// Options that leave us out: code for which our run-time isn't there.
const LEAVE_ALONE: [&str; 7] =
    ["-ffreestanding", "-nostdlib", "-nostartfiles", "-nodefaultlibs", "-m32", "-mx32", "-r"];

fn product(arguments: &[OsString]) -> Product {
    let mut inputs = false;
    let mut product = Product::Program { fixed: false };
    let mut words = arguments.iter().map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        let word = word.as_ref();
        match word {
            "-c" | "-S" | "-E" | "-M" | "-MM" | "-fsyntax-only" | "--analyze" | "-emit-ast" => {
                product = Product::Object
            }
            "-shared" | "--shared" if product != Product::Object => product = Product::Library,
            "-static" | "--static" | "-static-pie" if product == (Product::Program { fixed: false }) => {
                product = Product::Program { fixed: true };
            }
            _ if LEAVE_ALONE.contains(&word) => return Product::Nothing,
            "-" => inputs = true,
            _ if WITH_VALUE.contains(&word) => {
                inputs |= word == "-l";
                words.next();
            }
            // A file of arguments holds inputs, most likely; a library alone can make a program, too.
            _ if !word.starts_with('-') || word.starts_with("-l") => inputs = true,
            _ => {}
        }
    }
    // `cc --version`, `cc -print-search-dirs`: with an input they would try to link.
    if inputs { product } else { Product::Nothing }
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

/// clang's arguments for `arguments`, which are the user's without ours.
pub(crate) fn clang_arguments(files: &Files, plugin: &[OsString], arguments: &[OsString]) -> Vec<OsString> {
    let product = product(arguments);
    let mut all: Vec<OsString> = Vec::new();
    if product == Product::Nothing {
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

fn link_arguments(files: &Files, product: Product) -> Vec<OsString> {
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    // Behind `-x c` an archive would be read as a source.
    let mut all = words(&["-x", "none"]);
    match product {
        Product::Nothing | Product::Object => return Vec::new(),
        Product::Library => all.push(files.path("libleeward_stub.a")),
        Product::Program { fixed } => {
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
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn arguments(line: &str) -> String {
        let all = clang_arguments(&Files(Path::new("/p")), &words("-leeward-engine=scan"), &words(line));
        all.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn products_are_told_apart() {
        let check = |line: &str, expected: Product| assert_eq!(product(&words(line)), expected, "{line}");
        check("-O2 a.c -o a", Product::Program { fixed: false });
        check("-static a.o", Product::Program { fixed: true });
        check("a.o -lm -o a", Product::Program { fixed: false });
        check("-c a.c", Product::Object);
        check("-shared -c a.c", Product::Object);
        check("-c -static a.c", Product::Object);
        check("-E -", Product::Object);
        check("-MM a.c", Product::Object);
        check("-shared -fPIC a.o -o liba.so", Product::Library);
        check("@a.rsp", Product::Program { fixed: false });
        // Values are no inputs, and without inputs nothing is linked.
        check("-o a", Product::Nothing);
        check("--version", Product::Nothing);
        check("-v -I include -D X", Product::Nothing);
        check("", Product::Nothing);
        check("-r a.o b.o -o c.o", Product::Nothing);
        check("-nostdlib a.c", Product::Nothing);
        check("-m32 a.c", Product::Nothing);
    }

    #[test]
    fn a_program_gets_plugin_and_run_time() {
        let all = arguments("-O2 a.c -o a");
        for part in [
            "-fpass-plugin=/p/libleeward_pass.so",
            "-Xclang -mllvm -Xclang -leeward-engine=scan",
            "/p/libleeward_rt.a /p/libleeward_shim.a",
            " -O2 a.c -o a -x none ",
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
        for wrong in ["--leeward-engine", "--leeward-speed=1", "--leeward-clang=", "--leeward-exclude="] {
            assert!(take_options(words(wrong)).unwrap_err().contains(wrong.trim_end_matches('=')));
        }
    }
}
