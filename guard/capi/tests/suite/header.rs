//! `include/leeward.h` is what cbindgen writes, and compiles as C and C++ without a warning.

use crate::support::{cc, folder, run};
use std::fs;

/// Environment variable that renews the header instead of comparing it.
const RENEW: &str = "LEEWARD_RENEW_HEADER";

#[test]
fn the_committed_header_is_that_of_the_sources() {
    let config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).expect("the settings are right");
    let mut written = Vec::new();
    let bindings = cbindgen::generate_with_config(folder(), config).expect("the sources are parsed");
    bindings.write(&mut written);
    let written = tidy(&String::from_utf8(written).expect("the sources are UTF-8"));
    let path = folder().join("include/leeward.h");
    if std::env::var_os(RENEW).is_some() {
        let new = path.with_extension("h.new");
        fs::write(&new, &written).and_then(|()| fs::rename(&new, &path)).expect("the header is written");
    }
    let committed = fs::read_to_string(&path).expect("the header is there");
    assert!(committed == written, "include/leeward.h is not that of the sources: make capi-header");
}

/// Leaves the sections for Rust out, and puts comments of one line into one line.
fn tidy(header: &str) -> String {
    let (mut tidied, mut rest) = (String::new(), header);
    while let Some((before, comment)) = rest.split_once("/*\n") {
        let (comment, after) = comment.split_once("*/").expect("comments end");
        let text = comment.split("# Safety").next().unwrap_or_default().trim();
        let indent: String = before.chars().rev().take_while(|of| *of == ' ').collect();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        tidied += before;
        tidied += &match lines[..] {
            [line] => format!("/* {} */", line.trim()),
            _ => format!("/*\n{indent} {}\n{indent} */", lines.join("\n")),
        };
        rest = after;
    }
    tidied + rest
}

#[test]
fn the_headers_compile_in_both_languages_without_a_warning() {
    let out = tempfile::tempdir().unwrap();
    let flags = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wredundant-decls", "-Werror", "-fsyntax-only"];
    let source = |name: &str, text: &str| {
        let path = out.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let user = "\nlw_mutex m = LW_MUTEX_INIT(\"m\");\nlw_sem s = LW_SEM_INIT(\"s\", 2);\nint main(void) { return (int)lw_version() & 0; }\n";
    // Beside the system's headers, whose functions it must not declare again.
    let c = source("user.c", &format!("#include <pthread.h>\n#include <sys/socket.h>\n#include <leeward.h>{user}"));
    let cpp = source("user.cpp", &format!("#include <leeward.h>\n#include <leeward.hpp>{user}"));
    run(cc("gcc").args(["-std=c11"]).args(flags).arg(&c));
    run(cc("g++").args(["-std=c++17"]).args(flags).arg(&cpp));
}
