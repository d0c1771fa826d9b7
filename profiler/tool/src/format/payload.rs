//! Payloads of the blocks that describe a trace: header, clock, modules, threads.
//!
//! Does not write files, and does not contain events.

use super::meta::{Clock, Engine, Header, Module, Thread};
use super::varint::{put_text, put_varint};

pub(super) fn header_payload(header: &Header) -> Vec<u8> {
    let mut out = header.id.to_vec();
    let clock = &header.clock;
    for number in [clock.scale, clock.anchor, clock.monotonic, clock.wall] {
        out.extend(number.to_le_bytes());
    }
    out.extend(header.pid.to_le_bytes());
    out.push(match header.engine {
        Engine::None => 0,
        Engine::Tick => 1,
        Engine::ScanRecords => 2,
        Engine::ScanShadow => 3,
        Engine::Samples => 4,
        Engine::Unknown => 255,
    });
    for number in [header.call_threshold, header.lock_threshold, header.resolution] {
        put_varint(&mut out, number);
    }
    for text in [&header.architecture, &header.writer, &header.command, &header.boot] {
        put_text(&mut out, text);
    }
    out
}

pub(super) fn clock_payload(clock: &Clock) -> Vec<u8> {
    [clock.anchor, clock.monotonic, clock.wall].into_iter().flat_map(u64::to_le_bytes).collect()
}

pub(super) fn modules_payload(modules: &[Module]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, modules.len() as u64);
    for module in modules {
        put_varint(&mut out, module.id);
        out.push(module.flags);
        for number in [module.loaded, module.unloaded.unwrap_or(0), module.bias] {
            out.extend(number.to_le_bytes());
        }
        out.push(module.ranges.len().min(16) as u8);
        for (start, size) in module.ranges.iter().take(16) {
            out.extend(start.to_le_bytes());
            out.extend(size.to_le_bytes());
        }
        out.push(module.build_id.len().min(64) as u8);
        out.extend(module.build_id.iter().take(64));
        put_text(&mut out, &module.path);
    }
    out
}

pub(super) fn threads_payload(threads: &[Thread]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, threads.len() as u64);
    for thread in threads {
        put_varint(&mut out, u64::from(thread.number));
        put_varint(&mut out, u64::from(thread.tid));
        out.extend(thread.started.unwrap_or(0).to_le_bytes());
        out.extend(thread.ended.unwrap_or(0).to_le_bytes());
        put_text(&mut out, &thread.name);
    }
    out
}
