//! Stacks of programs without frame pointers.
//!
//! The kernel copies registers and stack memory; this module follows the unwind sections
//! (`.eh_frame`) of the modules through the copy. Copies are unwound in memory and never kept.
//! Code without unwind sections, such as that of just-in-time compilers, is unwound by frame
//! pointers.
//!
//! Does not contain perf events.

mod module;

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use framehop::{CacheNative, FrameAddress, MayAllocateDuringUnwind, UnwindRegsNative, Unwinder, UnwinderNative};

use self::module::ModuleSections;
use crate::process::open_mapped_file;
use crate::record::Mapping;

/// Most frames of a stack.
pub const MAX_FRAMES: usize = 256;

/// Most modules of a process that are unwound.
const MAX_MODULES: usize = 8192;

/// Most bytes of unwind sections in memory, for all processes.
const MAX_SECTIONS: usize = 256 << 20;

/// Most files that are remembered.
const MAX_FILES: usize = 1 << 16;

/// First address that a program may use; smaller ones are no code.
const LOWEST_CODE: u64 = 4096;

/// Registers of a thread from which unwinding begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Address of the next instruction.
    pub instruction: u64,
    /// Stack pointer.
    pub stack: u64,
    /// Frame pointer.
    pub frame: u64,
    /// Link register; 0 on architectures without one.
    pub link: u64,
}

/// Unwind sections of files, shared by all processes that map them.
#[derive(Debug, Default)]
pub struct ModuleFiles {
    files: HashMap<(u64, u64), Option<Arc<ModuleSections>>>,
    vdso: Option<Option<Arc<ModuleSections>>>,
    bytes: usize,
}

impl ModuleFiles {
    fn sections(&mut self, pid: u32, mapped: &Mapping) -> Option<Arc<ModuleSections>> {
        if &*mapped.path == "[vdso]" {
            return self.vdso.get_or_insert_with(|| module::read_vdso().map(Arc::new)).clone();
        }
        let file = open_mapped_file(pid, mapped).ok()?;
        let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let key = (metadata.dev(), metadata.ino());
        if let Some(known) = self.files.get(&key) {
            return known.clone();
        }
        if self.files.len() >= MAX_FILES || self.bytes >= MAX_SECTIONS {
            return None;
        }
        let sections = ModuleSections::read(file).map(Arc::new);
        self.bytes += sections.as_ref().map_or(0, |sections| sections.size());
        self.files.insert(key, sections.clone());
        sections
    }
}

/// Rules of unwinding that were found before, and buffers. One serves all processes.
#[derive(Default)]
pub struct UnwindCache {
    rules: CacheNative<MayAllocateDuringUnwind>,
}

impl std::fmt::Debug for UnwindCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnwindCache").finish_non_exhaustive()
    }
}

/// Modules of a process, for unwinding.
#[derive(Clone, Default)]
pub struct ProcessModules {
    unwinder: UnwinderNative<Arc<[u8]>, MayAllocateDuringUnwind>,
    /// Length, and sections of the module, by first address.
    placed: BTreeMap<u64, (u64, Arc<ModuleSections>)>,
    /// Addresses to which signal handlers return.
    signal_returns: Vec<u64>,
}

impl std::fmt::Debug for ProcessModules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessModules").field("placed", &self.placed.len()).finish_non_exhaustive()
    }
}

impl ProcessModules {
    /// Adds a mapping; it replaces those that it overlaps.
    pub fn add(&mut self, files: &mut ModuleFiles, pid: u32, mapping: &Mapping) {
        self.remove(mapping.start, mapping.length);
        if self.placed.len() >= MAX_MODULES || mapping.path.starts_with("//anon") {
            return;
        }
        let Some(sections) = files.sections(pid, mapping) else { return };
        self.place(mapping, sections);
    }

    fn place(&mut self, mapping: &Mapping, sections: Arc<ModuleSections>) {
        if let Some(module) = sections.place(mapping) {
            self.unwinder.add_module(module);
        }
        self.signal_returns.extend(sections.signal_returns(mapping));
        self.placed.insert(mapping.start, (mapping.length, sections));
    }

    /// Removes mappings that overlap a range of addresses.
    fn remove(&mut self, start: u64, length: u64) {
        let end = start.saturating_add(length);
        let before = self.placed.range(..start).next_back();
        let before = before.filter(|(first, (length, _))| first.saturating_add(*length) > start);
        let within = self.placed.range(start..end);
        let gone: Vec<(u64, u64)> =
            before.into_iter().chain(within).map(|(first, (length, _))| (*first, *length)).collect();
        for (first, length) in gone {
            self.unwinder.remove_module(first);
            self.placed.remove(&first);
            self.signal_returns.retain(|address| address.checked_sub(first).is_none_or(|offset| offset >= length));
        }
    }

    /// Returns true if the program is Go's, which keeps frame pointers and has no unwind sections.
    ///
    /// Compilers of other languages leave them out of functions that call nothing, even if asked
    /// for frame pointers, so that the callers of these functions are missing.
    pub fn is_go(&self) -> bool {
        self.placed.values().any(|(_, sections)| sections.is_go)
    }

    /// Unwinds a copy of a stack, which begins at the stack pointer. Puts addresses into `stack`,
    /// the innermost first; returns false if the copy ended before the stack did.
    pub fn unwind(&self, cache: &mut UnwindCache, from: Registers, memory: &[u8], stack: &mut Vec<u64>) -> bool {
        stack.clear();
        let mut read = |address: u64| {
            let offset = usize::try_from(address.wrapping_sub(from.stack)).map_err(drop)?;
            let word = memory.get(offset..).and_then(<[u8]>::first_chunk::<8>).ok_or(())?;
            Ok(u64::from_le_bytes(*word))
        };
        let mut registers = native(from);
        let mut address = FrameAddress::from_instruction_pointer(from.instruction);
        loop {
            if address.address() < LOWEST_CODE {
                return true;
            }
            stack.push(address.address());
            if stack.len() >= MAX_FRAMES {
                return false;
            }
            if address.is_return_address() && self.signal_returns.contains(&address.address()) {
                let Some(interrupted) = interrupted(registers.sp(), &mut read) else { return false };
                registers = native(interrupted);
                address = FrameAddress::from_instruction_pointer(interrupted.instruction);
                continue;
            }
            match self.unwinder.unwind_frame(address, &mut registers, &mut cache.rules, &mut read) {
                Ok(Some(next)) => match FrameAddress::from_return_address(next) {
                    Some(next) => address = next,
                    None => return true,
                },
                Ok(None) => return true,
                Err(framehop::Error::CouldNotReadStack(missing)) => {
                    // Beyond the copy the stack may go on; elsewhere no stack is.
                    return missing.wrapping_sub(from.stack) > 1 << 24;
                }
                Err(_) => return true,
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn native(registers: Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.instruction, registers.stack, registers.frame)
}

#[cfg(target_arch = "aarch64")]
fn native(registers: Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.link, registers.stack, registers.frame)
}

/// Registers that a signal interrupted, from the frame that the kernel put on the stack: when the
/// handler has returned, the stack pointer is at a `ucontext`.
#[cfg(target_arch = "x86_64")]
fn interrupted(stack: u64, read: &mut impl FnMut(u64) -> Result<u64, ()>) -> Option<Registers> {
    let mut word = |offset| read(stack.checked_add(offset).ok_or(())?);
    let (frame, stack, instruction) = (word(120), word(160), word(168));
    Some(Registers { instruction: instruction.ok()?, stack: stack.ok()?, frame: frame.ok()?, link: 0 })
}

/// The stack pointer is at a `siginfo` of 128 bytes, and a `ucontext` follows, whose registers
/// begin at 184.
#[cfg(target_arch = "aarch64")]
fn interrupted(stack: u64, read: &mut impl FnMut(u64) -> Result<u64, ()>) -> Option<Registers> {
    let mut word = |offset| read(stack.checked_add(offset).ok_or(())?);
    let registers = 128 + 184;
    let (frame, link) = (word(registers + 29 * 8), word(registers + 30 * 8));
    let (stack, instruction) = (word(registers + 31 * 8), word(registers + 32 * 8));
    Some(Registers { instruction: instruction.ok()?, stack: stack.ok()?, frame: frame.ok()?, link: link.ok()? })
}

#[cfg(test)]
mod tests;
