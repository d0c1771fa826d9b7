//! `leeward cargo`: cargo, with the profiler's plugin in rustc and its run-time in the programs that are linked. It works where there is a
//! plugin for the LLVM of the installed rustc; what is missing elsewhere is said.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::WrapError;
use crate::arguments::Files;
use crate::clang::{folder, with_environment};

/// Variable from which the plugin reads its options: rustc parses its own before it loads plugins.
const PLUGIN_OPTIONS: &str = "LEEWARD_PASS_OPTIONS";
/// Between flags in CARGO_ENCODED_RUSTFLAGS.
const SEPARATOR: &str = "\x1f";

/// Becomes cargo with these arguments: only comes back if it can't be run, and says why.
pub fn cargo(arguments: Vec<OsString>) -> WrapError {
    run(arguments).err().unwrap_or_else(|| WrapError("cargo could not be run".into()))
}

fn run(arguments: Vec<OsString>) -> Result<(), WrapError> {
    let (options, arguments) = with_environment(arguments)?;
    if options.clang.is_some() {
        return Err(WrapError("--leeward-clang: there is no clang in cargo's work".into()));
    }
    let plugin_options: Vec<_> = options.plugin.iter().map(|word| word.to_string_lossy()).collect();
    let plugin_options = plugin_options.join("\n");
    let folder = folder()?;
    // `leeward cargo +stable build` is about that toolchain's rustc.
    let toolchain = arguments.first().filter(|word| word.to_string_lossy().starts_with('+'));
    let rustc = Rustc::ask(toolchain)?;
    let plugin = plugin(&folder, &rustc)?;
    let mut flags = given_flags();
    flags.extend(our_flags(&folder, &plugin, &plugin_options)?);

    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(&arguments).env("CARGO_ENCODED_RUSTFLAGS", flags.join(SEPARATOR));
    // Stable rustc takes plugins only so.
    cargo.env("RUSTC_BOOTSTRAP", "1").env(PLUGIN_OPTIONS, &plugin_options);
    // With a target the flags are for it alone; without, they'd be for build scripts and procedural macros, too.
    if env::var_os("CARGO_BUILD_TARGET").is_none() && !names_target(&arguments) {
        cargo.env("CARGO_BUILD_TARGET", &rustc.host);
    }
    Err(WrapError::because("cargo could not be run", cargo.exec()))
}

/// Whether cargo is told for which target; what follows `--` is the program's.
fn names_target(arguments: &[OsString]) -> bool {
    let is_named = |word: &OsString| word == "--target" || word.to_string_lossy().starts_with("--target=");
    arguments.iter().take_while(|word| *word != "--").any(is_named)
}

/// Version that `rustc -vV` prints of itself.
#[derive(Debug, PartialEq, Eq)]
struct Rustc {
    release: String,
    host: String,
    /// Major version of its LLVM.
    llvm: u32,
}

impl Rustc {
    fn ask(toolchain: Option<&OsString>) -> Result<Rustc, WrapError> {
        let rustc = env::var_os("RUSTC").unwrap_or("rustc".into());
        let output = Command::new(&rustc).args(toolchain).arg("-vV").output();
        let output = output
            .map_err(|error| WrapError::because(format!("{} could not be run", Path::new(&rustc).display()), error))?;
        let said = String::from_utf8_lossy(&output.stdout);
        Rustc::read(&said).ok_or_else(|| {
            let (rustc, complaint) = (Path::new(&rustc).display(), String::from_utf8_lossy(&output.stderr));
            WrapError(format!("`{rustc} -vV` does not say which LLVM it has: {}", complaint.trim()))
        })
    }

    fn read(said: &str) -> Option<Rustc> {
        let field = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let llvm = field("LLVM version")?.split('.').next()?.parse().ok()?;
        Some(Rustc { release: field("release")?.into(), host: field("host")?.into(), llvm })
    }
}

/// The plugin for rustc's LLVM.
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

/// rustc's flags that the user has given: cargo reads one of the two only, and ours has to be it.
fn given_flags() -> Vec<String> {
    let all = |text: String, between: &str| {
        text.split(between).filter(|flag| !flag.is_empty()).map(String::from).collect::<Vec<_>>()
    };
    match env::var("CARGO_ENCODED_RUSTFLAGS") {
        Ok(text) => all(text, SEPARATOR),
        Err(_) => all(env::var("RUSTFLAGS").unwrap_or_default(), " "),
    }
}

/// The plugin for what is compiled, the run-time for what is linked.
fn our_flags(folder: &Path, plugin: &Path, options: &str) -> Result<Vec<String>, WrapError> {
    let text = |path: &OsStr| {
        let text = path.to_str().filter(|path| !path.contains(char::is_whitespace));
        text.map(String::from)
            .ok_or_else(|| WrapError(format!("{}: a path without blanks is wanted", Path::new(path).display())))
    };
    let link = |word: &str| format!("-Clink-arg={word}");
    let mut all = vec![format!("-Zllvm-plugins={}", text(plugin.as_os_str())?)];
    // Changed options are changed flags, or cargo would see nothing to do.
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
    fn a_target_is_named_before_the_programs_own_words() {
        let named = |words: &str| names_target(&words.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(named("build --target x") && named("run --target=x -- y"));
        assert!(!named("build --release") && !named("run -- --target x") && !named("test -- --target=x"));
    }

    #[test]
    fn rustc_says_which_llvm_it_has() {
        let said = "rustc 1.95.0 (5 2026)\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\nrelease: 1.95.0\nLLVM version: 22.1.2\n";
        let expected = Rustc { release: "1.95.0".into(), host: "x86_64-unknown-linux-gnu".into(), llvm: 22 };
        assert_eq!(Rustc::read(said), Some(expected));
        assert_eq!(Rustc::read("release: 1\nhost: x\nLLVM version: none\n"), None);
        assert_eq!(Rustc::read(""), None);
    }

    #[test]
    fn the_plugin_is_the_one_for_rustc() {
        let folder = tempfile::tempdir().unwrap();
        let rustc = Rustc { release: "1.95.0".into(), host: "h".into(), llvm: 22 };
        std::fs::write(folder.path().join("llvm-version"), "19\n").unwrap();
        let refused = plugin(folder.path(), &rustc).unwrap_err().to_string();
        assert!(refused.contains("LLVM 22") && refused.contains("llvm-22-dev"), "{refused}");
        let other = folder.path().join("libleeward_pass-22.so");
        std::fs::write(&other, "").unwrap();
        assert_eq!(plugin(folder.path(), &rustc).unwrap(), other);
        std::fs::write(folder.path().join("llvm-version"), "22\n").unwrap();
        assert_eq!(plugin(folder.path(), &rustc).unwrap(), folder.path().join("libleeward_pass.so"));
    }

    #[test]
    fn other_options_are_other_flags() {
        let flags = |options: &str| our_flags(Path::new("/p"), Path::new("/p/x.so"), options).unwrap();
        assert_ne!(flags("-leeward-engine=scan"), flags("-leeward-engine=tick"));
        assert!(flags("").contains(&"-Zllvm-plugins=/p/x.so".to_string()));
        assert!(our_flags(Path::new("/p q"), Path::new("/p q/x.so"), "").is_err());
    }
}
