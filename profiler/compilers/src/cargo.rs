//! `leeward cargo`: runs cargo with the profiler's plugin in rustc, and links its run-time into
//! programs.
//!
//! It requires a plugin for the LLVM of the installed rustc; otherwise the error lists what is
//! missing.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::WrapError;
use crate::arguments::Files;
use crate::clang::{folder, with_environment};

/// Variable from which the plugin reads its options: rustc parses its own before it loads plugins.
const PLUGIN_OPTIONS: &str = "LEEWARD_PASS_OPTIONS";
/// Separator of flags in CARGO_ENCODED_RUSTFLAGS.
const SEPARATOR: &str = "\x1f";

/// Replaces this process by cargo with these arguments. Returns only if cargo can't be run, with
/// the reason.
pub fn cargo(arguments: Vec<OsString>) -> WrapError {
    run(arguments).err().unwrap_or_else(|| WrapError("cargo could not be run".into()))
}

fn run(arguments: Vec<OsString>) -> Result<(), WrapError> {
    let (options, arguments) = with_environment(arguments)?;
    if options.clang.is_some() {
        return Err(WrapError("--leeward-clang: cargo does not use clang".into()));
    }
    let plugin_options: Vec<_> = options.plugin.iter().map(|word| word.to_string_lossy()).collect();
    let plugin_options = plugin_options.join("\n");
    let folder = folder()?;
    // `leeward cargo +stable build` uses that toolchain's rustc.
    let toolchain = arguments.first().filter(|word| word.to_string_lossy().starts_with('+'));
    let rustc = Rustc::query(toolchain)?;
    let plugin = plugin(&folder, &rustc)?;
    let mut flags = user_flags();
    // The v0 mangling keeps the parameters of types in names: they identify a future's `async fn`.
    if !flags.iter().any(|flag| flag.contains("symbol-mangling-version")) {
        flags.push("-Csymbol-mangling-version=v0".into());
    }
    // The run-time finds by frame pointers where a request's future waits.
    if !flags.iter().any(|flag| flag.contains("force-frame-pointers")) {
        flags.push("-Cforce-frame-pointers=yes".into());
    }
    flags.extend(our_flags(&folder, &plugin, &plugin_options)?);

    let program = env::var_os("CARGO").unwrap_or("cargo".into());
    let line = CargoArguments::parse(&arguments);
    if line.is_build
        && let Some(root) = target_folder(&program, toolchain, &line)
    {
        let named = line.target.or_else(|| env::var("CARGO_BUILD_TARGET").ok());
        let folder = root.join(named.as_deref().unwrap_or(&rustc.host)).join(line.profile);
        let here = env::current_dir().unwrap_or_default();
        let folder = folder.strip_prefix(&here).unwrap_or(&folder).display().to_string();
        // A target is always named, so programs are not in cargo's usual folder.
        let _ = writeln!(std::io::stderr(), "leeward: programs go to {folder}");
    }
    let mut cargo = Command::new(program);
    cargo.args(&arguments).env("CARGO_ENCODED_RUSTFLAGS", flags.join(SEPARATOR));
    // Stable rustc accepts plugins only with this variable.
    cargo.env("RUSTC_BOOTSTRAP", "1").env(PLUGIN_OPTIONS, &plugin_options);
    // With a target the flags apply only to it; otherwise they would also apply to build scripts
    // and procedural macros.
    if env::var_os("CARGO_BUILD_TARGET").is_none() && !names_target(&arguments) {
        cargo.env("CARGO_BUILD_TARGET", &rustc.host);
    }
    Err(WrapError::because("cargo could not be run", cargo.exec()))
}

/// Arguments of cargo that determine the folder of programs.
#[derive(Debug, Default, PartialEq, Eq)]
struct CargoArguments {
    /// The command builds programs, and is not quiet.
    is_build: bool,
    /// The named target.
    target: Option<String>,
    /// Name of the profile's folder.
    profile: String,
    /// The folder for all build products, if it is named.
    folder: Option<PathBuf>,
    /// Arguments with which cargo finds the workspace.
    workspace: Vec<OsString>,
}

impl CargoArguments {
    fn parse(arguments: &[OsString]) -> CargoArguments {
        let mut line = CargoArguments { profile: "debug".into(), ..CargoArguments::default() };
        let mut words = arguments.iter().take_while(|word| *word != "--");
        let (mut command, mut is_quiet) = (None, false);
        while let Some(word) = words.next() {
            let text = word.to_string_lossy();
            let (option, inline_value) =
                text.split_once('=').map_or((&*text, None), |(option, value)| (option, Some(value.to_string())));
            let mut value =
                || inline_value.clone().or_else(|| words.next().map(|word| word.to_string_lossy().into_owned()));
            match option {
                "--release" | "-r" => line.profile = "release".into(),
                "--profile" => {
                    line.profile = match value().as_deref() {
                        None | Some("dev" | "test") => "debug".into(),
                        Some("bench") => "release".into(),
                        Some(name) => name.into(),
                    };
                }
                "--target" => {
                    // The name of a target description's file is the name of the folder.
                    let name = value().map(|name| name.strip_suffix(".json").map_or(name.clone(), String::from));
                    line.target = name.and_then(|name| Some(name.rsplit('/').next()?.to_string()));
                }
                "--target-dir" => line.folder = value().map(PathBuf::from),
                "--manifest-path" | "--config" | "-C" => {
                    line.workspace.push(option.into());
                    line.workspace.extend(value().map(OsString::from));
                }
                "-q" | "--quiet" => is_quiet = true,
                "--color" | "-Z" | "-p" | "--package" | "-j" | "--jobs" | "-F" | "--features" => _ = value(),
                _ if option.starts_with(['-', '+']) => {}
                _ => command = command.or(Some(option.to_string())),
            }
        }
        line.is_build = !is_quiet && matches!(command.as_deref(), Some("build" | "b" | "rustc"));
        line
    }
}

/// Returns the folder for all build products from cargo; `None` if cargo fails, because the build
/// will report the error.
fn target_folder(program: &OsStr, toolchain: Option<&OsString>, line: &CargoArguments) -> Option<PathBuf> {
    if let Some(folder) = &line.folder {
        return Some(folder.clone());
    }
    let mut cargo = Command::new(program);
    cargo.args(toolchain).args(["metadata", "--no-deps", "--format-version", "1", "--offline"]).args(&line.workspace);
    let output = cargo.output().ok()?;
    quoted(&String::from_utf8_lossy(&output.stdout), "\"target_directory\":\"").map(PathBuf::from)
}

/// Returns the text of a field in JSON, from its last occurrence.
fn quoted(json: &str, field: &str) -> Option<String> {
    let (_, rest) = json.rsplit_once(field)?;
    let mut text = String::new();
    let mut letters = rest.chars();
    loop {
        match letters.next()? {
            '"' => return Some(text),
            '\\' => text.push(letters.next()?),
            letter => text.push(letter),
        }
    }
}

/// Returns whether the arguments name a target; arguments after `--` are the program's.
fn names_target(arguments: &[OsString]) -> bool {
    let is_named = |word: &OsString| word == "--target" || word.to_string_lossy().starts_with("--target=");
    arguments.iter().take_while(|word| *word != "--").any(is_named)
}

/// Version information from `rustc -vV`.
#[derive(Debug, PartialEq, Eq)]
struct Rustc {
    release: String,
    host: String,
    /// Major version of its LLVM.
    llvm: u32,
}

impl Rustc {
    fn query(toolchain: Option<&OsString>) -> Result<Rustc, WrapError> {
        let rustc = env::var_os("RUSTC").unwrap_or("rustc".into());
        let output = Command::new(&rustc).args(toolchain).arg("-vV").output();
        let output = output
            .map_err(|error| WrapError::because(format!("{} could not be run", Path::new(&rustc).display()), error))?;
        let version_text = String::from_utf8_lossy(&output.stdout);
        Rustc::read(&version_text).ok_or_else(|| {
            let (rustc, stderr) = (Path::new(&rustc).display(), String::from_utf8_lossy(&output.stderr));
            WrapError(format!("`{rustc} -vV` does not say which LLVM it has: {}", stderr.trim()))
        })
    }

    fn read(text: &str) -> Option<Rustc> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let llvm = field("LLVM version")?.split('.').next()?.parse().ok()?;
        Some(Rustc { release: field("release")?.into(), host: field("host")?.into(), llvm })
    }
}

/// Returns the plugin for rustc's LLVM.
fn plugin(folder: &Path, rustc: &Rustc) -> Result<PathBuf, WrapError> {
    let Rustc { release, llvm, .. } = rustc;
    let other = folder.join(format!("libleeward_pass-{llvm}.so"));
    let built_for = std::fs::read_to_string(folder.join("llvm-version")).unwrap_or_default();
    if built_for.trim() == llvm.to_string() {
        return Ok(Files(folder).plugin());
    }
    if other.is_file() {
        return Ok(other);
    }
    Err(WrapError(format!(
        "rustc {release} has LLVM {llvm}, and there is no plugin for that in {}: install its headers (Debian: `apt-get install llvm-{llvm}-dev`) \
         and run `make profiler` again. Without, functions can be marked with the crate leeward-trace (docs/profile-build.md, \"Rust programs\")",
        folder.display()
    )))
}

/// Returns the user's flags for rustc. Cargo reads only one of the two variables, and we set the
/// encoded one.
fn user_flags() -> Vec<String> {
    let all = |text: String, between: &str| {
        text.split(between).filter(|flag| !flag.is_empty()).map(String::from).collect::<Vec<_>>()
    };
    match env::var("CARGO_ENCODED_RUSTFLAGS") {
        Ok(text) => all(text, SEPARATOR),
        Err(_) => all(env::var("RUSTFLAGS").unwrap_or_default(), " "),
    }
}

/// Returns flags with the plugin for compiling and the run-time for linking.
fn our_flags(folder: &Path, plugin: &Path, options: &str) -> Result<Vec<String>, WrapError> {
    let text = |path: &OsStr| {
        let text = path.to_str().filter(|path| !path.contains(char::is_whitespace));
        text.map(String::from)
            .ok_or_else(|| WrapError(format!("{}: the path must not contain blanks", Path::new(path).display())))
    };
    let link = |word: &str| format!("-Clink-arg={word}");
    let mut all = vec![format!("-Zllvm-plugins={}", text(plugin.as_os_str())?)];
    // Changed options must change the flags; otherwise cargo would rebuild nothing.
    let digits: String = options.bytes().map(|byte| format!("{byte:02x}")).collect();
    all.push(format!("--cfg=leeward_options=\"{digits}\""));
    all.push(link("-Wl,--whole-archive"));
    for archive in ["libleeward_rt.a", "libleeward_shim.a"] {
        all.push(link(&text(folder.join(archive).as_os_str())?));
    }
    let rest = ["-Wl,--no-whole-archive", "-pthread", "-ldl", "-Wl,--build-id"];
    let exported = ["-Wl,--export-dynamic-symbol=__leeward_*", "-Wl,--export-dynamic-symbol=leeward_req_*"];
    all.extend(rest.into_iter().chain(exported).map(link));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_counts_only_before_the_programs_arguments() {
        let named = |words: &str| names_target(&words.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(named("build --target x") && named("run --target=x -- y"));
        assert!(!named("build --release") && !named("run -- --target x") && !named("test -- --target=x"));
    }

    #[test]
    fn the_output_folder_follows_from_the_command_line() {
        let of = |line: &str| CargoArguments::parse(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        let where_to = |line: &str| {
            let CargoArguments { target, profile, folder, .. } = of(line);
            let folder = folder.unwrap_or("target".into());
            folder.join(target.unwrap_or("host".into())).join(profile).display().to_string()
        };
        let check = |line: &str, expected: &str| assert_eq!(where_to(line), expected, "{line}");
        check("build", "target/host/debug");
        check("+stable b -r -p one", "target/host/release");
        check("build --release --target arm --target-dir=t", "t/arm/release");
        check("build --profile small --target=a/mine.json", "target/mine/small");
        check("rustc --profile=bench -- --profile x", "target/host/release");
        for (line, is_build) in [
            ("build", true),
            ("-v b -r", true),
            ("-q build", false),
            ("run --release", false),
            ("--config x.toml build", true),
            ("test build", false),
            ("fmt -- build", false),
        ] {
            assert_eq!(of(line).is_build, is_build, "{line}");
        }
        assert_eq!(of("build --manifest-path=a/Cargo.toml").workspace, ["--manifest-path", "a/Cargo.toml"]);
    }

    #[test]
    fn strings_are_extracted_from_json() {
        let check = |json: &str, expected: Option<&str>| assert_eq!(quoted(json, "\"a\":\"").as_deref(), expected);
        check(r#"{"a":"one","b":2,"a":"x \"y\" \\z"}"#, Some(r#"x "y" \z"#));
        check(r#"{"a":"cut off"#, None);
        check("{}", None);
    }

    #[test]
    fn the_llvm_version_is_parsed_from_rustc() {
        let text = "rustc 1.95.0 (5 2026)\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\nrelease: 1.95.0\nLLVM version: 22.1.2\n";
        let expected = Rustc { release: "1.95.0".into(), host: "x86_64-unknown-linux-gnu".into(), llvm: 22 };
        assert_eq!(Rustc::read(text), Some(expected));
        assert_eq!(Rustc::read("release: 1\nhost: x\nLLVM version: none\n"), None);
        assert_eq!(Rustc::read(""), None);
    }

    #[test]
    fn the_plugin_must_match_rustcs_llvm() {
        let folder = tempfile::tempdir().unwrap();
        let rustc = Rustc { release: "1.95.0".into(), host: "h".into(), llvm: 22 };
        std::fs::write(folder.path().join("llvm-version"), "19\n").unwrap();
        let error = plugin(folder.path(), &rustc).unwrap_err().to_string();
        assert!(error.contains("LLVM 22") && error.contains("llvm-22-dev"), "{error}");
        let other = folder.path().join("libleeward_pass-22.so");
        std::fs::write(&other, "").unwrap();
        assert_eq!(plugin(folder.path(), &rustc).unwrap(), other);
        std::fs::write(folder.path().join("llvm-version"), "22\n").unwrap();
        assert_eq!(plugin(folder.path(), &rustc).unwrap(), folder.path().join("libleeward_pass.so"));
    }

    #[test]
    fn different_options_give_different_flags() {
        let flags = |options: &str| our_flags(Path::new("/p"), Path::new("/p/x.so"), options).unwrap();
        assert_ne!(flags("-leeward-engine=scan"), flags("-leeward-engine=tick"));
        assert!(flags("").contains(&"-Zllvm-plugins=/p/x.so".to_string()));
        assert!(our_flags(Path::new("/p q"), Path::new("/p q/x.so"), "").is_err());
    }
}
