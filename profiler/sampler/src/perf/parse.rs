//! Records of the kernel's rings.
//!
//! Does not contain rings, and gives records no meaning beyond their fields.

use super::attr::{REGISTERS, StackCapture};

/// Bytes of a record's header.
pub(crate) const HEADER: usize = 8;

const MMAP: u32 = 1;
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const THROTTLE: u32 = 5;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
const LOST_SAMPLES: u32 = 13;
const SWITCH: u32 = 14;

/// Marks of a header: a `COMM` that an `exec` made, a switch away from the CPU, and one that the
/// thread did not ask for.
const COMM_EXEC: u16 = 1 << 13;
const SWITCH_OUT: u16 = 1 << 13;
const SWITCH_OUT_PREEMPTED: u16 = 1 << 14;

/// From this value on the kernel's call chains hold marks instead of addresses.
const CHAIN_MARKS: u64 = -4095_i64 as u64;
/// Mark in front of addresses of user space.
const CHAIN_USER: u64 = -512_i64 as u64;

/// Right to execute, of a mapping.
const PROT_EXEC: u32 = 4;

/// Most frames of a stack.
pub(crate) const MAX_FRAMES: usize = 256;

/// Length and kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    kind: u32,
    misc: u16,
    /// Bytes of the record with its header.
    pub(crate) size: u16,
}

impl Header {
    /// Reads a header; `None` if the size can't be.
    pub(crate) fn parse(bytes: [u8; HEADER]) -> Option<Header> {
        let [k0, k1, k2, k3, m0, m1, s0, s1] = bytes;
        let size = u16::from_le_bytes([s0, s1]);
        let header = Header { kind: u32::from_le_bytes([k0, k1, k2, k3]), misc: u16::from_le_bytes([m0, m1]), size };
        (usize::from(size) >= HEADER && size.is_multiple_of(8)).then_some(header)
    }

    /// Returns where in the record its time is; `None` for records without fields.
    pub(crate) fn time_offset(&self) -> Option<usize> {
        // A sample: header, identifier, ids, time. Others end with ids, time, CPU, identifier.
        let offset = if self.kind == SAMPLE { HEADER + 16 } else { usize::from(self.size).checked_sub(24)? };
        (offset + 8 <= usize::from(self.size) && offset >= HEADER).then_some(offset)
    }
}

/// Fields that the samples of an event have, besides those of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) stack: Option<StackCapture>,
    /// A BPF program has written something.
    pub(crate) has_message: bool,
}

/// Who recorded, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Number of the event.
    pub(crate) event: u64,
    pub(crate) process: u32,
    pub(crate) thread: u32,
    /// Nanoseconds of the monotonic clock.
    pub(crate) time: u64,
    pub(crate) cpu: u32,
}

/// A stack as it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakenStack<'a> {
    /// The event takes none, or the thread has none.
    Nothing,
    /// Addresses, eight bytes each, with the kernel's marks.
    Chain(&'a [u8]),
    /// Registers in the order of their bits, and memory from the stack pointer on.
    Copy { registers: [u64; REGISTERS.count_ones() as usize], memory: &'a [u8] },
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed<'a> {
    /// The message is what a BPF program wrote, and maybe bytes to fill it up.
    Sample {
        origin: Origin,
        stack: TakenStack<'a>,
        message: &'a [u8],
    },
    Switch {
        origin: Origin,
        is_out: bool,
        preempted: bool,
    },
    Mapped {
        origin: Origin,
        process: u32,
        start: u64,
        length: u64,
        offset: u64,
        inode: u64,
        path: &'a [u8],
    },
    Named {
        origin: Origin,
        process: u32,
        thread: u32,
        by_exec: bool,
        name: &'a [u8],
    },
    Forked {
        origin: Origin,
        process: u32,
        thread: u32,
        parent: u32,
        parent_thread: u32,
    },
    Ended {
        origin: Origin,
        process: u32,
        thread: u32,
    },
    Lost {
        origin: Origin,
        count: u64,
    },
    Throttled {
        origin: Origin,
    },
    Unknown,
}

/// Reads the fields of a record. `layout` says which fields the samples of an event have; `None`
/// for an unknown event.
pub(crate) fn parse<'a>(
    header: Header,
    record: &'a [u8],
    layout: impl Fn(u64) -> Option<Layout>,
) -> Option<Parsed<'a>> {
    let mut body = Fields(record.get(HEADER..usize::from(header.size))?);
    if header.kind == SAMPLE {
        return parse_sample(&mut body, layout);
    }
    let origin = body.split_origin()?;
    Some(match header.kind {
        SWITCH => Parsed::Switch {
            origin,
            is_out: header.misc & SWITCH_OUT != 0,
            preempted: header.misc & SWITCH_OUT_PREEMPTED != 0,
        },
        MMAP | MMAP2 => {
            let process = body.u32()?;
            let _thread = body.u32()?;
            let (start, length, offset) = (body.u64()?, body.u64()?, body.u64()?);
            let mut inode = 0;
            if header.kind == MMAP2 {
                let _device = body.u64()?;
                inode = body.u64()?;
                let _generation = body.u64()?;
                let protection = body.u32()?;
                let _flags = body.u32()?;
                if protection & PROT_EXEC == 0 {
                    return Some(Parsed::Unknown);
                }
            }
            Parsed::Mapped { origin, process, start, length, offset, inode, path: body.text() }
        }
        COMM => {
            let (process, thread) = (body.u32()?, body.u32()?);
            Parsed::Named { origin, process, thread, by_exec: header.misc & COMM_EXEC != 0, name: body.text() }
        }
        FORK => {
            let (process, parent) = (body.u32()?, body.u32()?);
            let (thread, parent_thread) = (body.u32()?, body.u32()?);
            Parsed::Forked { origin, process, thread, parent, parent_thread }
        }
        EXIT => {
            let (process, _parent) = (body.u32()?, body.u32()?);
            Parsed::Ended { origin, process, thread: body.u32()? }
        }
        LOST => {
            let _event = body.u64()?;
            Parsed::Lost { origin, count: body.u64()? }
        }
        LOST_SAMPLES => Parsed::Lost { origin, count: body.u64()? },
        THROTTLE => Parsed::Throttled { origin },
        _ => Parsed::Unknown,
    })
}

fn parse_sample<'a>(body: &mut Fields<'a>, layout: impl Fn(u64) -> Option<Layout>) -> Option<Parsed<'a>> {
    let event = body.u64()?;
    let (process, thread) = (body.u32()?, body.u32()?);
    let time = body.u64()?;
    let cpu = body.u32()?;
    let _reserved = body.u32()?;
    let origin = Origin { event, process, thread, time, cpu };
    let layout = layout(event)?;
    let mut stack = TakenStack::Nothing;
    if layout.stack == Some(StackCapture::FramePointers) {
        let count = usize::try_from(body.u64()?).ok()?;
        stack = TakenStack::Chain(body.take(count.checked_mul(8)?)?);
    }
    let mut message: &[u8] = &[];
    if layout.has_message {
        let size = usize::try_from(body.u32()?).ok()?;
        message = body.take(size)?;
    }
    if let Some(StackCapture::Copy(_)) = layout.stack {
        stack = parse_copy(body)?;
    }
    Some(Parsed::Sample { origin, stack, message })
}

/// Reads registers and memory.
fn parse_copy<'a>(body: &mut Fields<'a>) -> Option<TakenStack<'a>> {
    // Zero: a thread of the kernel, or none of the program any more.
    let is_present = body.u64()? != 0;
    let mut registers = [0; REGISTERS.count_ones() as usize];
    if is_present {
        for register in &mut registers {
            *register = body.u64()?;
        }
    }
    let size = usize::try_from(body.u64()?).ok()?;
    let memory = body.take(size)?;
    let copied = if size > 0 { usize::try_from(body.u64()?).ok()? } else { 0 };
    Some(match is_present {
        true => TakenStack::Copy { registers, memory: memory.get(..copied.min(size))? },
        false => TakenStack::Nothing,
    })
}

/// Returns the addresses of user space in a call chain, the innermost first.
pub(crate) fn chain_addresses(chain: &[u8]) -> impl Iterator<Item = u64> {
    let mut is_user = false;
    chain
        .chunks_exact(8)
        .filter_map(|bytes| bytes.try_into().ok().map(u64::from_le_bytes))
        .filter(move |word| {
            if *word >= CHAIN_MARKS {
                is_user = *word == CHAIN_USER;
                return false;
            }
            is_user && *word != 0
        })
        .take(MAX_FRAMES)
}

/// The rest of a record.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Text up to its first zero.
    fn text(&mut self) -> &'a [u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Takes the fields off the end of a record that is no sample.
    fn split_origin(&mut self) -> Option<Origin> {
        let (rest, end) = self.0.split_at_checked(self.0.len().checked_sub(32)?)?;
        self.0 = rest;
        let mut end = Fields(end);
        let (process, thread) = (end.u32()?, end.u32()?);
        let time = end.u64()?;
        let (cpu, _reserved) = (end.u32()?, end.u32()?);
        Some(Origin { event: end.u64()?, process, thread, time, cpu })
    }
}

#[cfg(test)]
mod tests;
