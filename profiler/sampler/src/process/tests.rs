//! Tests with processes of this machine.
//!
//! Contains no test of the parser.

use std::process::{Command, Stdio};

use super::*;

#[test]
fn this_process_is_described() {
    let process = Process::open(std::process::id()).unwrap();
    assert!(process.is_running());
    let threads = process.threads().unwrap();
    assert!(threads.iter().any(|thread| thread.id == std::process::id()));
    let mappings = process.mappings().unwrap();
    let own = std::env::current_exe().unwrap().to_string_lossy().into_owned();
    let program = mappings.iter().find(|mapped| *mapped.path == *own).unwrap();
    let mut magic = [0; 4];
    process.open_file(program).unwrap().read_exact(&mut magic).unwrap();
    assert_eq!(&magic, b"\x7fELF");
    assert!(mappings.is_sorted_by_key(|mapped| mapped.start));
    assert!(mappings.iter().any(|mapped| &*mapped.path == "[vdso]"));
    assert!(!process.has_runtime());
}

#[test]
fn no_process_has_an_id_beyond_the_limit() {
    for pid in [0, i32::MAX as u32, u32::MAX] {
        assert!(matches!(Process::open(pid), Err(SourceError::NoProcess(_))), "{pid}");
    }
}

#[test]
fn a_process_that_ended_is_named() {
    let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
    let process = Process::open(child.id()).unwrap();
    assert_eq!(process.name().unwrap(), "sleep");
    child.kill().unwrap();
    // Until its parent waits for it, the child is a zombie.
    while process.is_running() {
        std::thread::yield_now();
    }
    assert!(matches!(Process::open(child.id()), Err(SourceError::NoProcess(_))));
    child.wait().unwrap();
    assert!(matches!(process.threads(), Err(SourceError::NoProcess(_))));
    assert!(matches!(process.mappings(), Err(SourceError::NoProcess(_))));
    assert!(matches!(Process::open(child.id()), Err(SourceError::NoProcess(_))));
}

#[test]
fn a_thread_is_no_process() {
    let (send, receive) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        send.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
        std::thread::park();
    });
    let error = Process::open(receive.recv().unwrap()).unwrap_err();
    assert!(error.to_string().contains(&format!("is a thread of process {}", std::process::id())), "{error}");
    thread.thread().unpark();
    thread.join().unwrap();
}

#[test]
fn threads_of_the_kernel_are_refused() {
    // The kernel's thread daemon has this id unless this is a container.
    if crate::probe::targets::namespace().unwrap().is_none() {
        let error = Process::open(2).unwrap_err().to_string();
        assert!(error.contains("thread of the kernel"), "{error}");
    }
}
