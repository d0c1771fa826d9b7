//! Stacks that all threads of a process have at a place where they wait.
//!
//! A wait whose own stack was not taken may have it: that is inferred. Threads that run the same
//! code wait at the same distance from their stack's end, which is at a page's end. Others may by
//! chance, and so a place has no stack from the first two on that differ.

use std::collections::HashMap;

use super::switches::STACK_SHIFT;
use crate::record::Stack;

/// Most places of all processes.
const MAX_PLACES: usize = 1 << 14;

/// Where threads of a process wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    process: u32,
    instruction: u64,
    /// The stack pointer within its page.
    pointer: u64,
}

impl Place {
    /// `key` is a thread's place as the program in the kernel says it.
    fn new(process: u32, key: u64, instruction: u64) -> Place {
        Place { process, instruction, pointer: key.wrapping_sub(instruction) >> STACK_SHIFT & 0xfff }
    }
}

/// The stack at each place; `None` where two differ.
#[derive(Debug, Default)]
pub(super) struct CommonStacks(HashMap<Place, Option<Stack>>);

impl CommonStacks {
    /// Adds the stack of a wait.
    pub(super) fn add(&mut self, process: u32, key: u64, stack: &Stack) {
        let Some(instruction) = stack.first() else { return };
        let place = Place::new(process, key, *instruction);
        if let Some(known) = self.0.get_mut(&place) {
            if known.as_ref().is_some_and(|known| known != stack) {
                *known = None;
            }
        } else if self.0.len() < MAX_PLACES {
            self.0.insert(place, Some(stack.clone()));
        }
    }

    /// Returns the stack of all waits at a place, if they have one in common.
    pub(super) fn get(&self, process: u32, key: u64, instruction: u64) -> Option<&Stack> {
        self.0.get(&Place::new(process, key, instruction))?.as_ref()
    }

    /// Forgets a process that has ended, or executes another program.
    pub(super) fn forget(&mut self, process: u32) {
        self.0.retain(|place, _| place.process != process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTRUCTION: u64 = 0x7f00_0000_0099;

    fn key(pointer: u64, instruction: u64) -> u64 {
        (pointer << STACK_SHIFT).wrapping_add(instruction)
    }

    #[test]
    fn a_place_has_the_stack_that_all_waits_there_have() {
        let stack = |caller: u64| Stack::from([INSTRUCTION, caller]);
        let mut common = CommonStacks::default();
        common.add(7, key(0x7f00_1234_5670, INSTRUCTION), &stack(0x20));
        common.add(7, key(0x7f00_9876_5670, INSTRUCTION), &stack(0x20));
        let at = |common: &CommonStacks, process, pointer, instruction| {
            common.get(process, key(pointer, instruction), instruction).cloned()
        };
        assert_eq!(at(&common, 7, 0x7f00_abcd_e670, INSTRUCTION), Some(stack(0x20)));
        assert_eq!(at(&common, 7, 0x7f00_abcd_e680, INSTRUCTION), None, "of another depth");
        assert_eq!(at(&common, 8, 0x7f00_abcd_e670, INSTRUCTION), None, "of another process");
        // The same sum of instruction and stack pointer.
        assert_eq!(at(&common, 7, 0x7f00_abcd_e66f, INSTRUCTION + (1 << STACK_SHIFT)), None);
        common.add(7, key(0x7f00_1234_5670, INSTRUCTION), &stack(0x30));
        assert_eq!(at(&common, 7, 0x7f00_abcd_e670, INSTRUCTION), None, "two stacks");
        common.add(7, key(0x7f00_1234_5670, INSTRUCTION), &stack(0x30));
        assert_eq!(at(&common, 7, 0x7f00_abcd_e670, INSTRUCTION), None, "still");
    }

    #[test]
    fn places_are_bounded_and_processes_forgotten() {
        let mut common = CommonStacks::default();
        for number in 0..2 * MAX_PLACES as u64 {
            common.add(7, key(0, number), &Stack::from([number]));
        }
        assert_eq!(common.0.len(), MAX_PLACES);
        common.add(7, key(0, 5), &Stack::from([5, 6]));
        assert_eq!(common.get(7, key(0, 5), 5), None, "known places are still compared");
        common.forget(7);
        common.add(8, key(0, 5), &Stack::from([5]));
        common.forget(7);
        assert_eq!(common.0.len(), 1);
    }
}
