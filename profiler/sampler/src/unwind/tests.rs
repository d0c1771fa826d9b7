//! Tests with copies of stacks that are not stacks.
//!
//! Contains no test with real programs: see `tests/recording.rs`.

use proptest::prelude::*;

use super::*;
use crate::process::Process;

fn own_modules() -> ProcessModules {
    let process = Process::open(std::process::id()).unwrap();
    let (mut files, mut modules) = (ModuleFiles::default(), ProcessModules::default());
    for mapped in process.mappings().unwrap() {
        modules.add(&mut files, process.pid(), &mapped);
    }
    modules
}

#[test]
fn modules_of_this_program_are_found() {
    let modules = own_modules();
    assert!(modules.placed.len() > 2);
    assert!(!modules.signal_returns.is_empty());
    assert!(!modules.is_go());
}

#[test]
fn mappings_replace_what_they_overlap() {
    let mut modules = own_modules();
    let before = modules.placed.len();
    let (first, (length, _)) = modules.placed.iter().next().map(|(first, placed)| (*first, placed.clone())).unwrap();
    let returns = modules.signal_returns.len();
    modules.remove(first + length / 2, 1);
    assert_eq!(modules.placed.len(), before - 1);
    modules.remove(0, u64::MAX);
    assert!(modules.placed.is_empty() && modules.signal_returns.is_empty() && returns > 0);
}

#[test]
fn stacks_of_frame_pointers_need_no_modules() {
    let modules = ProcessModules::default();
    // Two frames at 0x10000 and 0x10020, and an end.
    let words: [u64; 6] = [0x10020, 0x5000, 0, 0, 0, 0];
    let memory: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let from = Registers { instruction: 0x4000, stack: 0x10000, frame: 0x10000, link: 0x5000 };
    let mut stack = Vec::new();
    assert!(modules.unwind(&mut UnwindCache::default(), from, &memory, &mut stack));
    assert_eq!(stack, [0x4000, 0x5000]);
}

/// Read once: the tables of this program are long.
static OWN: std::sync::LazyLock<ProcessModules> = std::sync::LazyLock::new(own_modules);

proptest! {
    /// Neither memory nor registers of a hostile program make the unwinder panic or go on for ever.
    #[test]
    fn arbitrary_memory_is_survived(
        words in prop::collection::vec((0usize..40, any::<u64>()), 0..200),
        instruction in (0usize..40, any::<u64>()), stack: u64, frame in 0u64..2000, bytes in 0usize..8,
    ) {
        let modules = &*OWN;
        // Addresses in real code, which have unwind rules, and others.
        let ranges: Vec<(u64, u64)> = modules.placed.iter().map(|(first, (length, _))| (*first, *length)).collect();
        let address = |(module, value): (usize, u64)| match ranges.get(module) {
            Some((first, length)) => first + value % length,
            None => value,
        };
        let mut memory: Vec<u8> = words.iter().flat_map(|word| address(*word).to_le_bytes()).collect();
        memory.truncate(memory.len().saturating_sub(bytes));
        let from =
            Registers { instruction: address(instruction), stack, frame: stack.wrapping_add(frame), link: frame };
        let mut found = Vec::new();
        modules.unwind(&mut UnwindCache::default(), from, &memory, &mut found);
        prop_assert!(found.len() <= MAX_FRAMES);
    }
}
