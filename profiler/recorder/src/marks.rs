//! Functions that do nothing, for recorders that watch the program from outside.
//!
//! `leeward profile record --pid` puts uprobes on them, so a program that was not rebuilt for the
//! profiler still reports its requests. A call costs about a nanosecond while nobody watches.
//!
//! Each is five bytes of nop and a return: Linux replaces such a nop by a call, which is cheaper
//! than a breakpoint. The symbols are weak, because a program may contain two versions of this
//! crate.
//!
//! Does not contain the decision when a request starts or ends.

use std::arch::global_asm;
use std::sync::atomic::{AtomicU16, Ordering};

// Number of recorders that watch. The kernel counts them: the uprobes name this word as their
// reference counter. It must be in a file's mapping, so not in `.bss`.
global_asm!(
    ".pushsection .data.leeward_profile_watched,\"aw\",%progbits",
    ".balign 2",
    ".weak leeward_profile_watched",
    ".hidden leeward_profile_watched",
    ".type leeward_profile_watched, %object",
    "leeward_profile_watched:",
    ".short 0",
    ".size leeward_profile_watched, 2",
    ".popsection",
);

#[cfg(target_arch = "x86_64")]
macro_rules! nop {
    () => {
        ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! nop {
    () => {
        "nop"
    };
}

/// Defines one function; the alignment keeps its nop within a page.
macro_rules! mark {
    ($name:literal) => {
        global_asm!(
            concat!(".pushsection .text.", $name, ",\"ax\",%progbits"),
            ".p2align 4",
            concat!(".weak ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", %function"),
            concat!($name, ":"),
            nop!(),
            "ret",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
        );
    };
}

mark!("leeward_profile_request_started");
mark!("leeward_profile_request_resumed");
mark!("leeward_profile_request_suspended");
mark!("leeward_profile_request_ended");
mark!("leeward_profile_request_labelled");
mark!("leeward_profile_request_awaits");

// SAFETY: all of this is defined above. The functions read and write nothing, not even their
// parameters; only the kernel writes the counter.
unsafe extern "C" {
    #[link_name = "leeward_profile_watched"]
    safe static WATCHED: AtomicU16;
    /// This thread begins request `id`.
    #[link_name = "leeward_profile_request_started"]
    pub(crate) safe fn started(id: u64);
    /// This thread goes on with request `id`.
    #[link_name = "leeward_profile_request_resumed"]
    pub(crate) safe fn resumed(id: u64);
    /// This thread leaves request `id`, which waits in `queue` (see `docs/trace-format.md`). A
    /// request that waits already moves to that queue.
    #[link_name = "leeward_profile_request_suspended"]
    pub(crate) safe fn suspended(id: u64, queue: usize);
    /// Request `id` is over.
    #[link_name = "leeward_profile_request_ended"]
    pub(crate) safe fn ended(id: u64);
    /// Request `id` is of the kind that this text names.
    #[link_name = "leeward_profile_request_labelled"]
    pub(crate) safe fn labelled(id: u64, text: *const u8, length: usize);
    /// The work of this thread on a request is about to wait here. The stack shows for what.
    #[link_name = "leeward_profile_request_awaits"]
    pub(crate) safe fn awaits();
}

/// Returns whether a recorder watches the functions.
#[inline(always)]
pub(crate) fn is_watched() -> bool {
    WATCHED.load(Ordering::Relaxed) != 0
}

/// Changes the number of recorders that watch, modulo 2¹⁶.
#[cfg(test)]
pub(crate) fn add_watcher(number: u16) {
    WATCHED.fetch_add(number, Ordering::Relaxed);
}
