//! Stacks of programs without frame pointers.
