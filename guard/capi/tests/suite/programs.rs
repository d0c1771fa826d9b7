//! C programs that use the library: rightly, wrongly, from many threads, and across a fork.

use crate::support::{SYSTEM, cc, folder, libraries, run};
use std::process::Command;
use tempfile::TempDir;

/// Compiles a program with the static library and runs it.
fn passes(source: &str, compiler: &str, flags: &[&str]) {
    let out = libraries();
    let program = out.path().join("program");
    let source = folder().join("tests/c").join(source);
    let language = if source.extension() == Some("cpp".as_ref()) { "-std=c++17" } else { "-std=gnu11" };
    run(cc(compiler)
        .args([language, "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-o"])
        .arg(&program)
        .args(flags)
        .arg(source)
        .arg(out.path().join("libleeward.a"))
        .args(SYSTEM));
    run_program(&mut Command::new(program));
}

fn run_program(program: &mut Command) {
    let output = run(program.env("TSAN_OPTIONS", "halt_on_error=1 ignore_noninstrumented_modules=1"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "as it should be\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "the library is silent");
}

#[test]
fn wrong_uses_are_error_codes() {
    passes("abuse.c", "gcc", &[]);
}

#[test]
fn wrong_uses_are_clean_for_the_sanitizers_of_addresses_and_undefined_behaviour() {
    passes("abuse.c", "gcc", &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
}

#[test]
fn threads_share_a_gate_and_locks() {
    passes("threads.c", "gcc", &[]);
}

/// `threads.c` with the shared library: the sanitizer then knows that it was compiled without it.
fn with_thread_sanitizer(flags: &[&str]) -> (Command, TempDir) {
    let out = libraries();
    let program = out.path().join("program");
    let source = folder().join("tests/c/threads.c");
    let library = out.path().join("libleeward.so.0");
    run(cc("gcc")
        .args(["-std=gnu11", "-g", "-O1", "-fsanitize=thread", "-o"])
        .arg(&program)
        .args(flags)
        .arg(source)
        .arg(library));
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", out.path());
    (command, out)
}

#[test]
fn threads_are_clean_for_the_sanitizer_of_threads() {
    let (mut command, _out) = with_thread_sanitizer(&[]);
    run_program(&mut command);
}

#[test]
fn canary_a_missing_lock_is_found_by_the_sanitizer_of_threads() {
    let (mut command, _out) = with_thread_sanitizer(&["-DCANARY"]);
    let output = command.env("TSAN_OPTIONS", "halt_on_error=1 ignore_noninstrumented_modules=1").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("data race"), "{output:?}");
}

#[test]
fn threads_are_clean_for_the_sanitizer_of_addresses() {
    passes("threads.c", "gcc", &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
}

#[test]
fn a_process_forks_closes_descriptors_and_drops_privileges() {
    passes("process.c", "gcc", &[]);
}

#[test]
fn requests_allocate_nothing() {
    passes("allocations.c", "gcc", &[]);
}

#[test]
fn scopes_of_cpp_end_permits_and_locks() {
    passes("scopes.cpp", "g++", &["-fsanitize=address,undefined"]);
}
