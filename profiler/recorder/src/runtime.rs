//! Interface to the run-time, as in `profiler/rt/abi.h` and `leeward_profile.h`.
//!
//! Its symbols are resolved once, when the program is loaded. The run-time exists if it was
//! preloaded or linked. Otherwise the clock is stopped and nothing is recorded.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

#[path = "marks.rs"]
mod marks;

/// A stopped clock: by it every call lasts 0 ns.
static STOPPED_CLOCK: AtomicU64 = AtomicU64::new(0);
/// The first word of `__leeward_clock`: coarse nanoseconds, written by one thread of the run-time.
static CLOCK: AtomicPtr<AtomicU64> = AtomicPtr::new((&raw const STOPPED_CLOCK).cast_mut());

/// A function of the run-time, or null.
struct Function(AtomicPtr<c_void>);

static CALL: Function = Function(AtomicPtr::new(ptr::null_mut()));
static START: Function = Function(AtomicPtr::new(ptr::null_mut()));
static BLOCK: Function = Function(AtomicPtr::new(ptr::null_mut()));
static END: Function = Function(AtomicPtr::new(ptr::null_mut()));
static LABEL: Function = Function(AtomicPtr::new(ptr::null_mut()));
static TRACE: Function = Function(AtomicPtr::new(ptr::null_mut()));
static REMOTE_CALL: Function = Function(AtomicPtr::new(ptr::null_mut()));
static REMOTE_ANSWER: Function = Function(AtomicPtr::new(ptr::null_mut()));
static RECORDING: Function = Function(AtomicPtr::new(ptr::null_mut()));
static NAMED_QUEUE: Function = Function(AtomicPtr::new(ptr::null_mut()));
static STACK_QUEUE: Function = Function(AtomicPtr::new(ptr::null_mut()));

/// The loader runs it before `main`, and before any code of a library that is loaded later.
#[used]
#[unsafe(link_section = ".init_array")]
static RESOLVE_SYMBOLS: extern "C" fn() = resolve_symbols;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

fn look_up(name: &CStr) -> *mut c_void {
    // SAFETY: a null handle is RTLD_DEFAULT in glibc, which searches everything that is loaded; the
    // name ends with a zero.
    unsafe { dlsym(ptr::null_mut(), name.as_ptr()) }
}

// Relaxed throughout: the targets exist before this thread sets the pointers, and no other thread
// runs this crate's code yet.
extern "C" fn resolve_symbols() {
    let clock = look_up(c"__leeward_clock");
    if clock.is_null() {
        return;
    }
    for (function, name) in [
        (&CALL, c"__leeward_tick_slow"),
        (&START, c"leeward_req_start"),
        (&BLOCK, c"leeward_req_block"),
        (&END, c"leeward_req_end"),
        (&LABEL, c"leeward_req_label"),
        (&TRACE, c"leeward_req_trace"),
        (&REMOTE_CALL, c"leeward_req_call"),
        (&REMOTE_ANSWER, c"leeward_req_answer"),
        (&RECORDING, c"__leeward_recording"),
        (&NAMED_QUEUE, c"__leeward_named_queue"),
        (&STACK_QUEUE, c"__leeward_stack_queue"),
    ] {
        function.0.store(look_up(name), Ordering::Relaxed);
    }
    CLOCK.store(clock.cast(), Ordering::Relaxed);
}

pub(crate) fn is_loaded() -> bool {
    !ptr::eq(CLOCK.load(Ordering::Relaxed), &raw const STOPPED_CLOCK)
}

/// Returns the coarse clock's nanoseconds; constant without a run-time and while nothing records.
#[inline(always)]
pub(crate) fn now() -> u64 {
    let clock = CLOCK.load(Ordering::Relaxed);
    // SAFETY: the pointer is to STOPPED_CLOCK or to the run-time's clock, an aligned word of a
    // library. That library is never unloaded: the program is linked with it, or it is preloaded.
    // The run-time writes the word with single stores.
    unsafe { &*clock }.load(Ordering::Relaxed)
}

/// Returns an address in the function that this is inlined into.
#[inline(always)]
pub(crate) fn code_address() -> usize {
    #[cfg(miri)]
    return 0;
    #[cfg(not(miri))]
    {
        let here: usize;
        // SAFETY: only reads the program counter.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!("lea {}, [rip]", out(reg) here, options(pure, nomem, nostack, preserves_flags));
        }
        // SAFETY: only reads the program counter.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!("adr {}, .", out(reg) here, options(pure, nomem, nostack, preserves_flags));
        }
        here
    }
}

/// Records a call of the function that contains the address `here`.
#[cold]
#[inline(never)]
pub(crate) fn call(start: u64, end: u64, here: usize) {
    let function = CALL.0.load(Ordering::Relaxed);
    if function.is_null() {
        return;
    }
    // SAFETY: the symbol is `void __leeward_tick_slow(uint64_t, uint64_t, const void *, const void
    // *)`. It was compiled to preserve more registers than a C function must, with C's parameter
    // registers, so a C call is correct. The addresses are only recorded.
    unsafe {
        let function = transmute::<*mut c_void, extern "C" fn(u64, u64, usize, usize)>(function);
        function(start, end, here, 0);
    }
}

/// Returns whether events of requests go anywhere: to the run-time, or to a recorder that watches
/// from outside.
#[inline(always)]
pub(crate) fn is_recorded() -> bool {
    marks::is_watched() || is_loaded() && is_recording()
}

#[inline(never)]
fn is_recording() -> bool {
    let function = RECORDING.0.load(Ordering::Relaxed);
    if function.is_null() {
        return false;
    }
    // SAFETY: the symbol is `int __leeward_recording(void)`.
    unsafe { transmute::<*mut c_void, extern "C" fn() -> c_int>(function)() != 0 }
}

/// Begins a request.
pub(crate) fn request_start(id: u64) {
    marks::started(id);
    with_queue(&START, id, 0);
}

/// Continues a request that waited in a queue.
pub(crate) fn request_resume(id: u64, queue: usize) {
    marks::resumed(id);
    with_queue(&START, id, queue);
}

pub(crate) fn request_block(id: u64, queue: usize) {
    with_queue(&BLOCK, id, queue);
    marks::suspended(id, queue);
}

fn with_queue(function: &Function, id: u64, queue: usize) {
    let function = function.0.load(Ordering::Relaxed);
    if function.is_null() {
        return;
    }
    // SAFETY: the symbols are `void leeward_req_start(uint64_t, const void *)` and
    // `leeward_req_block` likewise; the queue's address is only recorded.
    unsafe { transmute::<*mut c_void, extern "C" fn(u64, usize)>(function)(id, queue) }
}

pub(crate) fn request_label(id: u64, label: &str) {
    let (text, length) = short_text(label);
    marks::labelled(id, text.as_ptr(), length);
    let function = LABEL.0.load(Ordering::Relaxed);
    if function.is_null() {
        return;
    }
    // SAFETY: the symbol is `void leeward_req_label(uint64_t, const char *)`, which copies the
    // text; its last byte is zero.
    unsafe { transmute::<*mut c_void, extern "C" fn(u64, *const u8)>(function)(id, text.as_ptr()) }
}

pub(crate) fn request_trace(id: u64, trace: &[u8; 16], span: u64, parent: u64) {
    let function = TRACE.0.load(Ordering::Relaxed);
    if function.is_null() {
        return;
    }
    // SAFETY: the symbol is `void leeward_req_trace(uint64_t, const uint8_t[16], uint64_t,
    // uint64_t)`, which copies the bytes.
    unsafe {
        let function = transmute::<*mut c_void, extern "C" fn(u64, *const u8, u64, u64)>(function);
        function(id, trace.as_ptr(), span, parent);
    }
}

pub(crate) fn request_call(id: u64, span: u64, peer: &str) {
    let function = REMOTE_CALL.0.load(Ordering::Relaxed);
    if function.is_null() {
        return;
    }
    let (text, _) = short_text(peer);
    // SAFETY: the symbol is `void leeward_req_call(uint64_t, uint64_t, const char *)`, which copies
    // the text; its last byte is zero.
    unsafe { transmute::<*mut c_void, extern "C" fn(u64, u64, *const u8)>(function)(id, span, text.as_ptr()) }
}

pub(crate) fn request_answer(id: u64, span: u64) {
    let function = REMOTE_ANSWER.0.load(Ordering::Relaxed);
    if function.is_null() {
        return;
    }
    // SAFETY: the symbol is `void leeward_req_answer(uint64_t, uint64_t)`.
    unsafe { transmute::<*mut c_void, extern "C" fn(u64, u64)>(function)(id, span) }
}

/// Returns the part of a text that the run-time keeps, with zeros behind it, and its length.
fn short_text(label: &str) -> ([u8; 64], usize) {
    let mut text = [0_u8; 64];
    let length = label.floor_char_boundary(63);
    text[..length].copy_from_slice(&label.as_bytes()[..length]);
    (text, length)
}

/// Returns the queue in which requests wait for what has this name; 0 if there is none.
pub(crate) fn named_queue(name: &str) -> usize {
    let function = NAMED_QUEUE.0.load(Ordering::Relaxed);
    if function.is_null() {
        return 0;
    }
    let (text, _) = short_text(name);
    // SAFETY: the symbol is `uint64_t __leeward_named_queue(const char *)`, which copies the text;
    // its last byte is zero.
    unsafe { transmute::<*mut c_void, extern "C" fn(*const u8) -> usize>(function)(text.as_ptr()) }
}

/// Returns the queue that stands for the calls that this thread is in; 0 if there is none.
pub(crate) fn stack_queue() -> usize {
    marks::awaits();
    let function = STACK_QUEUE.0.load(Ordering::Relaxed);
    if function.is_null() {
        return 0;
    }
    // SAFETY: the symbol is `uint64_t __leeward_stack_queue(void)`. It reads no memory but this
    // thread's stack.
    unsafe { transmute::<*mut c_void, extern "C" fn() -> usize>(function)() }
}

pub(crate) fn request_end(id: u64) {
    marks::ended(id);
    let function = END.0.load(Ordering::Relaxed);
    if function.is_null() {
        return;
    }
    // SAFETY: the symbol is `void leeward_req_end(uint64_t)`.
    unsafe { transmute::<*mut c_void, extern "C" fn(u64)>(function)(id) }
}

/// Gives the calls of threads numbers without the run-time.
#[cfg(test)]
pub(crate) fn set_stack_queue_for_test(function: extern "C" fn() -> usize) {
    STACK_QUEUE.0.store(function as *mut c_void, Ordering::Relaxed);
}

/// Makes the program think that a recorder watches it, until the returned value is dropped.
#[cfg(test)]
pub(crate) fn watch_for_test() -> impl Drop {
    struct Watched;

    impl Drop for Watched {
        fn drop(&mut self) {
            marks::add_watcher(u16::MAX);
        }
    }

    marks::add_watcher(1);
    Watched
}
