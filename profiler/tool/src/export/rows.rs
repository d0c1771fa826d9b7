//! An event as one row of a table: what CSV and Parquet share.

use crate::format::event::OffCpu;
use crate::format::{Event, ObjectKind, What};
use crate::symbols::Symbols;

/// A row. Times and spans in nanoseconds; times as in the event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Kind of the event, such as `held`.
    pub kind: &'static str,
    /// When it began.
    pub start: u64,
    /// How long was waited before it.
    pub wait: u64,
    /// Function, or kind of lock; empty for none.
    pub name: String,
    /// Place in the source; empty if it is not known.
    pub place: String,
    /// Address of a lock or queue; 0 for none.
    pub object: u64,
    /// Request, or thread.
    pub id: Option<u64>,
    /// CPU.
    pub cpu: Option<u32>,
}

impl Row {
    /// Row of an event.
    pub fn of(event: &Event, symbols: &mut Symbols) -> Row {
        let now = event.time;
        let plain = |kind| Row { kind, start: now, ..Row::default() };
        let mut locked = |kind, object: ObjectKind, lock, site, wait, reach| Row {
            kind,
            start: now.saturating_sub(reach),
            wait,
            name: object.words().into(),
            place: if site == 0 { String::new() } else { symbols.site(site, now).words() },
            object: lock,
            ..Row::default()
        };
        match event.what {
            What::Held { object, lock, site, wait, hold } => locked("held", object, lock, site, wait, hold),
            What::Waited { object, lock, site, wait } => locked("waited", object, lock, site, wait, wait),
            What::Acquired { object, lock, site, wait } => locked("acquired", object, lock, site, wait, wait),
            What::Released { object, lock, site } => locked("released", object, lock, site, 0, 0),
            What::Call { function, caller, duration, .. } => Row {
                name: symbols.place(function, now).function(),
                place: if caller == 0 { String::new() } else { symbols.caller(caller, now).words() },
                start: now.saturating_sub(duration),
                ..plain("call")
            },
            What::RequestStart { id, queue } => {
                Row { id: Some(id), object: queue.unwrap_or(0), ..plain("request start") }
            }
            What::RequestBlock { id, queue } => {
                Row { id: Some(id), object: queue.unwrap_or(0), ..plain("request block") }
            }
            What::RequestEnd { id } => Row { id: Some(id), ..plain("request end") },
            What::RequestEndAll => plain("requests end"),
            What::RequestLabel { id, label } => {
                Row { id: Some(id), object: u64::from(label), ..plain("request label") }
            }
            What::SwitchedOut { cpu, why, .. } => {
                let kind = if why == OffCpu::Runnable { "switched out, runnable" } else { "switched out, blocked" };
                Row { cpu: Some(cpu), ..plain(kind) }
            }
            What::SwitchedIn { cpu } => Row { cpu: Some(cpu), ..plain("switched in") },
            What::Woken { by } => Row { id: Some(u64::from(by)), ..plain("woken") },
            What::Migrated { from, to } => Row { id: Some(u64::from(from)), cpu: Some(to), ..plain("migrated") },
            What::Lost { count, .. } => Row { id: Some(count), ..plain("lost") },
        }
    }
}
