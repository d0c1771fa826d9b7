//! Opens the events of whole CPUs, of which programs in the kernel keep those of a process.
//!
//! A switch costs the process a tenth of what it costs with events of threads, which the kernel
//! stops and starts at each switch; and threads need no events of their own.
//!
//! Contains no programs.

use std::collections::HashMap;
use std::os::fd::AsRawFd;

use super::attach::{EventKind, EventPlan, OpenEvents, map_ring, online_cpus, raise_file_limit};
use super::attr::{EventAttr, Inheritance};
use super::ring::RingSet;
use super::switches::{SwitchFilter, SwitchSettings};
use super::sys::Event;
use crate::probe::bpf::KernelTypes;
use crate::process::Process;

impl OpenEvents {
    /// Opens and enables the events; `None` where the kernel or the recorder's rights don't allow
    /// it.
    pub(super) fn of_cpus(process: &Process, plan: EventPlan) -> Option<OpenEvents> {
        raise_file_limit();
        let types = KernelTypes::of_kernel().ok()?;
        let cpus = online_cpus();
        let children = plan.inheritance == Inheritance::ThreadsAndChildren;
        let numbers = cpus.iter().max()?.checked_add(1)?;
        let mut filter = SwitchFilter::new(process.pid(), &types, children, numbers).ok()?;
        filter.set(SwitchSettings { period: plan.switch_period, shortest: 0 }).ok()?;
        let mut events: Vec<(EventKind, Event)> = Vec::new();
        let (mut kinds, mut rings) = (HashMap::new(), Vec::new());
        for cpu in &cpus {
            let changes = Event::open(&EventAttr::changes(), None, *cpu).ok()?;
            rings.push(map_ring(&changes, cpus.len()).ok()?);
            let clock = EventAttr::cpu_clock(plan.clock_period, plan.capture).without_idle();
            let clock = Event::open(&clock, None, *cpu).ok()?;
            clock.filter(filter.samples().descriptor()).ok()?;
            let stacks = Event::open(&EventAttr::bpf_output(Some(plan.capture)), None, *cpu).ok()?;
            let waits = Event::open(&EventAttr::bpf_output(None), None, *cpu).ok()?;
            for event in [&clock, &stacks, &waits] {
                event.send_to(&changes).ok()?;
            }
            filter.send_to(*cpu, stacks.as_raw_fd(), waits.as_raw_fd()).ok()?;
            let all = [
                (EventKind::Changes, changes),
                (EventKind::Clock, clock),
                (EventKind::ChosenStack, stacks),
                (EventKind::Wait, waits),
            ];
            for (kind, event) in all {
                kinds.insert(event.id().ok()?, kind);
                event.enable().ok()?;
                events.push((kind, event));
            }
        }
        filter.set_recording(true).ok()?;
        Some(OpenEvents { rings: RingSet::new(rings), kinds, sees_kernel: true, events, filter: Some(filter) })
    }
}
