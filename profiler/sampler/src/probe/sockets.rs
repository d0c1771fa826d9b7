//! Requests by input and output: from the read that brings bytes of a connection to the last write
//! before the next read of it.
//!
//! Two tracepoints tell of each transfer on a socket, whichever call asked for it (`read`,
//! `recvmsg`, `writev`, `sendfile`, io_uring …). The kernel keeps the state of a connection with
//! its socket.
//!
//! Contains no reading of the records.

use super::bpf::{
    Assembler, Condition, Field, Helper, KernelTypes, Label, Map, MapKind, Operation, Probe, Program, ProgramError,
    ProgramKind, Register::*, Width,
};
use super::report::{EventKind, MIXED, Shared};
use super::targets::Targets;

/// A server that writes after such a pause, in nanoseconds, tells news; it doesn't answer any more.
const PAUSE: i32 = 600_000_000;

/// Nanoseconds from a request's begin to a read, and from a write to the next, from which they are
/// not parts of one message: those follow at once.
const APART: i32 = 20_000;

/// Families and types of sockets, and flags of a read (`sys/socket.h`).
const UNIX: i32 = libc::AF_UNIX;
const INET: i32 = libc::AF_INET;
const INET6: i32 = libc::AF_INET6;
const STREAM: i32 = libc::SOCK_STREAM;
const DATAGRAM: i32 = libc::SOCK_DGRAM;
const PEEK: i32 = libc::MSG_PEEK;

/// State of a connection: when a request began; last write of the answer, 0 while none; latency
/// that was reported, 0 while none; thread of the begin; bucket in which the request is counted;
/// whether it is one of so many; whether the process asks on this socket instead of answering;
/// whether more was read before an answer, which no further answer has matched yet.
const START: i16 = 0;
const WRITTEN: i16 = 8;
const REPORTED: i16 = 16;
const THREAD: i16 = 24;
const BUCKET: i16 = 28;
const CHOSEN: i16 = 32;
const ASKS: i16 = 36;
const MORE: i16 = 40;
const STATE_BYTES: u32 = 48;
/// Places on a program's stack.
const OLD_BUCKET: i16 = -80;
const FLAGS: i16 = -88;

/// Fields of a socket in the kernel.
#[derive(Clone, Copy, Debug)]
struct SocketFields {
    family: i16,
    kind: i16,
    /// Length of the queue of new connections: a connection that was accepted has its listener's,
    /// one that was opened has 0.
    backlog: i16,
    /// Port of the peer; 0 for a datagram socket that serves anybody.
    peer_port: i16,
    /// Name of a Unix socket: a connection that was accepted has its listener's, and shares it. One
    /// that was opened has none, or its own.
    unix_name: i16,
    unix_name_users: i16,
}

impl SocketFields {
    /// Finds the fields; `None` if this kernel's are others.
    fn find(types: &KernelTypes) -> Option<SocketFields> {
        let find = |structure, field, size| {
            types.field(structure, field).filter(|found: &Field| found.size == size).map(|found| found.offset)
        };
        Some(SocketFields {
            family: find("sock_common", "skc_family", 2)?,
            kind: find("sock", "sk_type", 2)?,
            backlog: find("sock", "sk_max_ack_backlog", 4)?,
            peer_port: find("sock_common", "skc_dport", 2)?,
            unix_name: find("unix_sock", "addr", 8)?,
            // A structure of one number.
            unix_name_users: find("unix_address", "refcnt", 0)?,
        })
    }
}

/// Programs at the transfers of sockets.
#[derive(Debug)]
pub(super) struct SocketProbes {
    _state: Map,
    /// After a write, and after a read.
    programs: [Program; 2],
    /// While recording is on.
    probes: Vec<Probe>,
}

impl SocketProbes {
    /// Loads the programs.
    pub(super) fn load(types: &KernelTypes, targets: &Targets, shared: &Shared) -> Result<SocketProbes, ProgramError> {
        let unknown = || ProgramError::NoTracepoint("sock_recv_length".into());
        let fields = SocketFields::find(types).ok_or_else(unknown)?;
        let state = Map::create(MapKind::OfSocket, "lw_connections", STATE_BYTES)
            .map_err(|source| ProgramError::Load { source, log: String::new() })?;
        let builder = Builder { fields, targets, shared, state: &state };
        let load = |name, program| Program::load(ProgramKind::Tracepoint(types, name), name, program);
        let programs = [load("sock_send_length", builder.sent())?, load("sock_recv_length", builder.received())?];
        Ok(SocketProbes { _state: state, programs, probes: Vec::new() })
    }

    /// Lets the programs run, or stops them.
    pub(super) fn set_recording(&mut self, is_on: bool) -> Result<(), ProgramError> {
        self.probes.clear();
        if is_on {
            // Answers first: a request whose begin was seen has an end.
            for program in &self.programs {
                self.probes.push(program.at_tracepoint()?);
            }
        }
        Ok(())
    }

    /// Returns the programs.
    pub(super) fn programs(&self) -> &[Program] {
        &self.programs
    }
}

/// Builds the two programs. Their arguments: the socket, the bytes or an error, flags of the read.
struct Builder<'a> {
    fields: SocketFields,
    targets: &'a Targets,
    shared: &'a Shared,
    state: &'a Map,
}

impl Builder<'_> {
    /// Emits: `R8` = the socket, `R6` = its state or 0; jumps unless bytes moved.
    fn emit_begin(&self, a: &mut Assembler, out: Label) {
        a.load(Width::Double, R2, R1, 8);
        a.jump_if_32(R2, Condition::SignedBelowOrEqual, 0, out);
        a.load(Width::Double, R8, R1, 0);
        a.jump_if(R8, Condition::Equal, 0, out);
        self.emit_state(a, false);
    }

    /// Emits: `R6` = state of the socket in `R8`, which is made if `create`; 0 if there is none.
    fn emit_state(&self, a: &mut Assembler, create: bool) {
        a.set_map(R1, self.state.number());
        a.set(R2, R8);
        a.set(R3, 0);
        a.set(R4, i32::from(create));
        a.call(Helper::SkStorageGet);
        a.set(R6, R0);
    }

    /// Program after a read: a request begins, if the process answers on this socket.
    ///
    /// A socket with a state belongs to a recorded process. Calls are what costs here, so this is
    /// asked first.
    fn received(&self) -> Assembler {
        let mut a = Assembler::default();
        let (out, known, inet, datagram) = (a.label(), a.label(), a.label(), a.label());
        let (serves, next, begins, further) = (a.label(), a.label(), a.label(), a.label());
        // Bytes that are only looked at will be read again.
        a.load(Width::Double, R2, R1, 16);
        a.jump_if(R2, Condition::AnyBit, PEEK, out);
        self.emit_begin(&mut a, out);
        a.jump_if(R6, Condition::NotEqual, 0, known);
        self.targets.emit_filter(&mut a, out);
        a.load(Width::Half, R1, R8, self.fields.family);
        a.load(Width::Half, R2, R8, self.fields.kind);
        a.jump_if(R1, Condition::Equal, INET, inet);
        a.jump_if(R1, Condition::Equal, INET6, inet);
        a.jump_if(R1, Condition::NotEqual, UNIX, out);
        a.jump_if(R2, Condition::Equal, DATAGRAM, out);
        a.set(R1, R8);
        a.call(Helper::SkcToUnixSock);
        a.jump_if(R0, Condition::Equal, 0, out);
        a.load(Width::Double, R1, R0, self.fields.unix_name);
        a.jump_if(R1, Condition::Equal, 0, out);
        a.load(Width::Word, R1, R1, self.fields.unix_name_users);
        a.jump_if(R1, Condition::Below, 2, out);
        a.jump(serves);

        a.place(inet);
        a.jump_if(R2, Condition::Equal, DATAGRAM, datagram);
        a.jump_if(R2, Condition::NotEqual, STREAM, out);
        a.load(Width::Word, R1, R8, self.fields.backlog);
        a.jump_if(R1, Condition::Equal, 0, out);
        a.jump(serves);
        a.place(datagram);
        a.load(Width::Half, R1, R8, self.fields.peer_port);
        a.jump_if(R1, Condition::NotEqual, 0, out);

        a.place(serves);
        self.emit_state(&mut a, true);
        a.jump_if(R6, Condition::Equal, 0, out);
        a.jump(begins);

        a.place(known);
        a.load(Width::Word, R1, R6, ASKS);
        a.jump_if(R1, Condition::NotEqual, 0, out);
        // A further part of a request that is being read.
        a.load(Width::Double, R1, R6, START);
        a.jump_if(R1, Condition::Equal, 0, next);
        a.load(Width::Double, R1, R6, WRITTEN);
        a.jump_if(R1, Condition::Equal, 0, further);
        a.place(next);
        self.targets.emit_thread(&mut a, out);
        a.place(begins);
        a.call(Helper::KtimeGetNs);
        a.store(Width::Double, R6, START, R0);
        a.store(Width::Double, R6, WRITTEN, 0);
        a.store(Width::Double, R6, REPORTED, 0);
        a.store(Width::Word, R6, THREAD, R7);
        a.jump(out);

        // Or another request of the same connection, if it came a while later.
        a.place(further);
        a.load(Width::Word, R1, R6, MORE);
        a.jump_if(R1, Condition::NotEqual, 0, out);
        a.call(Helper::KtimeGetNs);
        a.load(Width::Double, R1, R6, START);
        a.apply(Operation::Subtract, R0, R1);
        a.jump_if(R0, Condition::Below, APART, out);
        a.store(Width::Word, R6, MORE, 1);
        a.place(out);
        a.exit();
        a
    }

    /// Program after a write: the request ends for now.
    fn sent(&self) -> Assembler {
        let mut a = Assembler::default();
        let (out, known, later, same, report) = (a.label(), a.label(), a.label(), a.label(), a.label());
        let (goes_on, earlier, alone) = (a.label(), a.label(), a.label());
        self.emit_begin(&mut a, out);
        self.emit_state(&mut a, false);
        a.jump_if(R6, Condition::NotEqual, 0, known);
        // A datagram socket on which the process writes first asks.
        a.load(Width::Half, R1, R8, self.fields.kind);
        a.jump_if(R1, Condition::NotEqual, DATAGRAM, out);
        self.targets.emit_filter(&mut a, out);
        self.emit_state(&mut a, true);
        a.jump_if(R6, Condition::Equal, 0, out);
        a.store(Width::Word, R6, ASKS, 1);
        a.jump(out);

        a.place(known);
        a.load(Width::Double, R1, R6, START);
        a.jump_if(R1, Condition::Equal, 0, out);
        // Nobody saw all of a request that began in an earlier window. The next one is whole.
        self.shared.emit_if_earlier(&mut a, R1, earlier);
        a.call(Helper::KtimeGetNs);
        a.set(R8, R0);
        a.set(R9, R0);
        a.load(Width::Double, R1, R6, START);
        a.apply(Operation::Subtract, R9, R1);
        a.load(Width::Double, R1, R6, WRITTEN);
        a.jump_if(R1, Condition::NotEqual, 0, later);
        // The first write.
        self.targets.emit_answered(&mut a, earlier);
        a.store(Width::Double, R6, WRITTEN, R8);
        Shared::emit_bucket(&mut a);
        a.store(Width::Word, R6, BUCKET, R1);
        self.shared.emit_count(&mut a, 1, out);
        self.shared.emit_choice(&mut a);
        a.store(Width::Word, R6, CHOSEN, R0);
        a.jump(report);

        a.place(later);
        a.store(Width::Double, R6, WRITTEN, R8);
        a.set(R2, R8);
        a.apply(Operation::Subtract, R2, R1);
        a.jump_if(R2, Condition::BelowOrEqual, PAUSE, goes_on);
        a.place(earlier);
        a.store(Width::Double, R6, START, 0);
        a.jump(out);
        a.place(goes_on);
        // Once there were two reads before an answer, and now two answers without a read.
        a.load(Width::Word, R1, R6, MORE);
        a.jump_if(R1, Condition::Equal, 0, alone);
        a.jump_if(R2, Condition::Below, APART, alone);
        a.store(Width::Word, R6, MORE, 0);
        a.set(R1, MIXED);
        self.shared.emit_count(&mut a, 1, out);
        a.place(alone);
        Shared::emit_bucket(&mut a);
        a.load(Width::Word, R2, R6, BUCKET);
        a.jump_if(R1, Condition::Equal, R2, same);
        a.store(Width::Word, R6, BUCKET, R1);
        a.store(Width::Double, R10, OLD_BUCKET, R2);
        self.shared.emit_count(&mut a, 1, out);
        a.load(Width::Double, R1, R10, OLD_BUCKET);
        self.shared.emit_count(&mut a, -1, out);
        a.place(same);
        a.load(Width::Word, R0, R6, CHOSEN);

        a.place(report);
        self.shared.emit_slow(&mut a);
        a.jump_if(R0, Condition::Equal, 0, out);
        // An answer in many parts is reported again when it has grown by a sixteenth.
        a.load(Width::Double, R1, R6, REPORTED);
        a.set(R2, R1);
        a.apply(Operation::ShiftRight, R2, 4);
        a.apply(Operation::Add, R1, R2);
        a.jump_if(R9, Condition::BelowOrEqual, R1, out);
        a.store(Width::Double, R6, REPORTED, R9);
        a.store(Width::Double, R10, FLAGS, R0);
        self.targets.emit_filter(&mut a, out);
        a.load(Width::Double, R0, R10, FLAGS);
        a.load(Width::Double, R1, R6, START);
        a.set(R2, 0);
        a.load(Width::Word, R3, R6, THREAD);
        self.shared.emit_report(&mut a, EventKind::Request, out);
        a.place(out);
        a.exit();
        a
    }
}
