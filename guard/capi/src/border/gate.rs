//! Gates: making, freeing, reporting. Does not contain requests.

use super::pointers::{Sized32, read_sized, set_errno, text, write, write_text};
use super::types::{Gate, LW_OK, Options};
use crate::fork::shared_change;
use crate::gates::GateSlot;
use crate::log::{self, Level};
use crate::report::Refused;
use crate::settings::{self, GateSettings};
use crate::status::{self, Failure, uncancelled};
use crate::{report, thread};
use leeward_core::units::Nanos;
use std::ffi::{c_char, c_int, c_void};

// SAFETY: `repr(C)`, begins with its size, and has numbers and pointers only.
unsafe impl Sized32 for Options {
    const FIRST_SIZE: usize = 48;
}

const _: () = assert!(size_of::<Options>() == 48, "the first version's size stays");

/// The place at a gate's address.
#[inline]
pub(crate) fn slot(gate: *const Gate) -> Result<&'static GateSlot, Failure> {
    GateSlot::at(gate.addr())
}

/// Makes a gate with `options` and stores it in `*gate`. On an error, `*gate` is NULL. A gate takes
/// about 5 MB, most of it for decisions that `lw_explain` tells of.
///
/// `LW_E_ARGUMENT`: a setting is wrong; the log says which. `LW_E_LIMIT`: there are 64 gates.
///
/// # Safety
/// `gate` and `options` are as the module says, and `options->size` is right.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_gate_new(gate: *mut *mut Gate, options: *const Options) -> c_int {
    let mut logged = String::new();
    let code = shared_change(|| {
        // SAFETY: `gate` is NULL or points to a pointer of the caller's.
        unsafe { write(gate, std::ptr::null_mut()) }?;
        // SAFETY: `options` is NULL or has as many bytes as it says.
        let options = unsafe { read_sized(options) }?;
        if options.reserved != 0 {
            return Err(Failure::Argument);
        }
        // SAFETY: both are NULL or texts that the caller keeps during this call.
        let texts = unsafe { (text(options.controller), text(options.params)) };
        let (Ok(controller), Ok(params)) = texts else {
            logged = "can't make a gate: the controller or its parameters are not UTF-8".into();
            return Err(Failure::Argument);
        };
        let built = settings::build(&GateSettings {
            slo_ns: options.slo_ns,
            threads: options.threads,
            max_in_flight: options.max_in_flight,
            mode: options.mode,
            share_percent: options.share_percent,
            controller,
            params,
        });
        let built = match built {
            Ok(built) => built,
            Err(sentence) => {
                logged = format!("can't make a gate: {sentence}");
                return Err(Failure::Argument);
            }
        };
        // The first use of the clock and of this thread's number takes longer than later ones.
        let _ = (built.now(), thread::number());
        let slot = GateSlot::open(&built)?;
        logged = format!("gate {} keeps {:?}", slot.number(), built.slo());
        // SAFETY: as above.
        unsafe { write(gate, std::ptr::from_ref(slot).cast_mut().cast()) }?;
        Ok(LW_OK)
    });
    if !logged.is_empty() {
        // Outside, so that the program's function may call this library.
        uncancelled(|| {
            log::message(if code == LW_OK { Level::Info } else { Level::Error }, &logged);
            Ok(LW_OK)
        });
    }
    code
}

/// Frees a gate and ends its admin port. `LW_E_BUSY`: permits of it have not ended.
///
/// Calls with a freed gate return `LW_E_CLOSED`, until a new gate takes its place.
#[unsafe(no_mangle)]
pub extern "C" fn lw_gate_free(gate: *mut Gate) -> c_int {
    // Without keeping forks away: the admin port's thread, which is awaited, does.
    uncancelled(|| slot(gate)?.free().map(|()| LW_OK))
}

/// Queueing delay of requests in front of the service, in nanoseconds; 0 for no gate.
#[unsafe(no_mangle)]
pub extern "C" fn lw_gate_delay_ns(gate: *const Gate) -> u64 {
    let mut delay = 0;
    uncancelled(|| {
        delay = Nanos::from(slot(gate)?.gate()?.delay()).0;
        Ok(LW_OK)
    });
    delay
}

/// Names a route for metrics: its operation, never a text that a client may vary. The first name
/// stays; of a long one, 128 characters are kept.
///
/// `LW_E_ARGUMENT`: the name is empty, or not UTF-8; the log says so.
///
/// # Safety
/// `name` is as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_route_name(gate: *mut Gate, route: u8, name: *const c_char) -> c_int {
    uncancelled(|| {
        let gate = slot(gate)?.gate()?;
        // SAFETY: NULL or a text of the caller's.
        let Some(name) = unsafe { text(name) }.ok().filter(|name| !name.is_empty()) else {
            log::message(Level::Error, &format!("can't name route {route}: the name is empty, or not UTF-8"));
            return Err(Failure::Argument);
        };
        gate.name_route(route, name);
        Ok(LW_OK)
    })
}

/// Writes the gate's state as JSON. Returns the bytes of the whole text, which is cut if `length`
/// is less than that and one.
///
/// # Safety
/// `buffer` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_stats_json(gate: *const Gate, buffer: *mut c_char, length: usize) -> c_int {
    // SAFETY: the caller's buffer has `length` bytes.
    uncancelled(|| unsafe { write_text(buffer, length, &report::stats_json(slot(gate)?)?) })
}

/// Explains a rejection in sentences, as `lw_stats_json` writes. `LW_E_ARGUMENT`: the gate does not
/// keep it any more.
///
/// # Safety
/// `buffer` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_explain(gate: *const Gate, decision: u64, buffer: *mut c_char, length: usize) -> c_int {
    // SAFETY: the caller's buffer has `length` bytes.
    uncancelled(|| unsafe { write_text(buffer, length, &report::explain(slot(gate)?, decision)?) })
}

/// Serves metrics, a dashboard and explanations by HTTP at `address`, such as `127.0.0.1:9464`,
/// from a thread of its own. Stores the port, if `port` is not NULL.
///
/// `LW_E_ARGUMENT`: that is no address; the log says why. `LW_E_BUSY`: the gate has an admin port.
/// `LW_E_SYSTEM`: the log says why, and `errno`; 0: the name was not resolved. A program that
/// closes descriptors it did not open must do so before.
///
/// # Safety
/// `address` and `port` are as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_admin_listen(gate: *mut Gate, address: *const c_char, port: *mut u16) -> c_int {
    let mut refused = None;
    // A fork waits for the start only: a name server may take seconds.
    let mut addresses = Vec::new();
    let mut code = uncancelled(|| {
        slot(gate)?.gate()?;
        // SAFETY: NULL or a text of the caller's.
        let resolved = match unsafe { text(address) } {
            Ok(address) => report::resolve(address),
            Err(_) => Err(Refused::address("", "not UTF-8")),
        };
        match resolved {
            Ok(known) => addresses = known,
            Err(reason) => refused = Some(reason),
        }
        Ok(LW_OK)
    });
    if code == LW_OK && refused.is_none() {
        code = shared_change(|| {
            match report::listen(slot(gate)?, &addresses)? {
                Ok(_) if port.is_null() => {}
                // SAFETY: the caller's number.
                Ok(number) => unsafe { write(port, number) }?,
                Err(reason) => refused = Some(reason),
            }
            Ok(LW_OK)
        });
    }
    let Some(Refused { code, sentence, errno }) = refused else { return code };
    // Outside, so that the program's function may call this library.
    uncancelled(|| {
        log::message(Level::Error, &sentence);
        Ok(LW_OK)
    });
    if code == Failure::System {
        set_errno(errno);
    }
    code as c_int
}

/// Gives messages of the library to `function`, with `user`. NULL: no messages, as at the start.
///
/// # Safety
/// Any thread may call `function` with `user` at any time until the process ends. It returns, and
/// throws nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_log_set(
    function: Option<unsafe extern "C" fn(user: *mut c_void, level: c_int, message: *const c_char)>,
    user: *mut c_void,
) -> c_int {
    shared_change(|| {
        log::set(function, user);
        Ok(LW_OK)
    })
}

/// Version of the library: major × 65536 + minor × 256 + patch.
#[unsafe(no_mangle)]
pub extern "C" fn lw_version() -> u32 {
    const fn number(text: &str) -> u32 {
        let (mut at, mut sum) = (0, 0);
        while at < text.len() {
            sum = sum * 10 + (text.as_bytes()[at] - b'0') as u32;
            at += 1;
        }
        sum
    }
    const MAJOR: u32 = number(env!("CARGO_PKG_VERSION_MAJOR"));
    const MINOR: u32 = number(env!("CARGO_PKG_VERSION_MINOR"));
    const PATCH: u32 = number(env!("CARGO_PKG_VERSION_PATCH"));
    MAJOR << 16 | MINOR << 8 | PATCH
}

/// Text of a result code. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn lw_strerror(code: c_int) -> *const c_char {
    status::text(code).as_ptr()
}
