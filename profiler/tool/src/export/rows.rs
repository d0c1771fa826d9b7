//! An event as one row of a table, shared by CSV and Parquet.

use crate::format::event::OffCpu;
use crate::format::{Event, EventKind, ObjectKind};
use crate::symbols::Symbols;

/// A row. Times and spans in nanoseconds; times as in the event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventRow {
    /// Kind of the event, such as `held`.
    pub kind: &'static str,
    /// Start of the event.
    pub start: u64,
    /// Duration of the wait before it.
    pub wait: u64,
    /// Function, or kind of lock; empty for none.
    pub name: String,
    /// Location in the source; empty if unknown.
    pub location: String,
    /// Address of a lock or queue, or span id of a call to another process; 0 for none.
    pub object: u64,
    /// Request, or thread.
    pub id: Option<u64>,
    /// CPU.
    pub cpu: Option<u32>,
}

impl EventRow {
    /// Creates the row of an event.
    pub fn from_event(event: &Event, symbols: &mut Symbols) -> EventRow {
        let now = event.time;
        let plain = |kind| EventRow { kind, start: now, ..EventRow::default() };
        let mut locked = |kind, object: ObjectKind, lock, site, wait, reach| EventRow {
            kind,
            start: now.saturating_sub(reach),
            wait,
            name: object.name().into(),
            location: if site == 0 { String::new() } else { symbols.site(site, now).describe() },
            object: lock,
            ..EventRow::default()
        };
        match event.kind {
            EventKind::Held { object, lock, site, wait, hold } => locked("held", object, lock, site, wait, hold),
            EventKind::Waited { object, lock, site, wait } => locked("waited", object, lock, site, wait, wait),
            EventKind::Acquired { object, lock, site, wait } => locked("acquired", object, lock, site, wait, wait),
            EventKind::Released { object, lock, site } => locked("released", object, lock, site, 0, 0),
            EventKind::Call { function, caller, duration, .. } => EventRow {
                name: symbols.location(function, now).function(),
                location: if caller == 0 { String::new() } else { symbols.caller(caller, now).describe() },
                start: now.saturating_sub(duration),
                ..plain("call")
            },
            EventKind::RequestStart { id, queue } => {
                EventRow { id: Some(id), object: queue.unwrap_or(0), ..plain("request start") }
            }
            EventKind::RequestBlock { id, queue } => {
                EventRow { id: Some(id), object: queue.unwrap_or(0), ..plain("request block") }
            }
            EventKind::RequestEnd { id } => EventRow { id: Some(id), ..plain("request end") },
            EventKind::RequestEndAll => plain("requests end"),
            EventKind::RequestLabel { id, label } => {
                EventRow { id: Some(id), object: u64::from(label), ..plain("request label") }
            }
            EventKind::RequestContext { id, value, .. } => {
                EventRow { id: Some(id), object: value, ..plain("request context") }
            }
            EventKind::RemoteCall { id, span, .. } => EventRow { id: Some(id), object: span, ..plain("remote call") },
            EventKind::RemoteAnswer { id, span } => EventRow { id: Some(id), object: span, ..plain("remote answer") },
            EventKind::SwitchedOut { cpu, reason: why, .. } => {
                let kind = match why {
                    OffCpu::Blocked => "switched out, blocked",
                    OffCpu::Runnable => "switched out, runnable",
                    OffCpu::Stopped => "switched out, stopped",
                };
                EventRow { cpu: Some(cpu), ..plain(kind) }
            }
            EventKind::SwitchedIn { cpu } => EventRow { cpu: Some(cpu), ..plain("switched in") },
            EventKind::Woken { waker: by } => EventRow { id: Some(u64::from(by)), ..plain("woken") },
            EventKind::Migrated { from, to } => {
                EventRow { id: Some(u64::from(from)), cpu: Some(to), ..plain("migrated") }
            }
            EventKind::Lost { count, .. } => EventRow { id: Some(count), ..plain("lost") },
        }
    }
}
