//! An assembler for eBPF: instructions, labels, calls of the kernel's helpers, and maps.
//!
//! Contains no program, and does not load one.

/// A register. `R1` to `R5` are arguments of helpers, which destroy them; `R0` is the result; `R6`
/// to `R9` survive a call; `R10` points behind the stack of 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// Number of bytes that a load or store moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    /// Eight bytes.
    Double = 0x18,
    /// Four bytes.
    Word = 0x00,
    /// Two bytes.
    Half = 0x08,
}

/// An operation on a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Operation {
    Add = 0x00,
    Subtract = 0x10,
    Multiply = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Move = 0xb0,
}

/// A condition of a jump; both sides are unsigned unless the name says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Condition {
    Equal = 0x10,
    Above = 0x20,
    AboveOrEqual = 0x30,
    /// The two have a bit in common.
    AnyBit = 0x40,
    NotEqual = 0x50,
    Below = 0xa0,
    BelowOrEqual = 0xb0,
    SignedBelowOrEqual = 0xd0,
}

/// The second side of an operation or a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register.
    Register(Register),
    /// A constant, which the machine extends with its sign.
    Constant(i32),
}

impl From<Register> for Operand {
    fn from(register: Register) -> Operand {
        Operand::Register(register)
    }
}

impl From<i32> for Operand {
    fn from(constant: i32) -> Operand {
        Operand::Constant(constant)
    }
}

/// A function of the kernel that programs may call (`enum bpf_func_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the kernel's names")]
pub enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    KtimeGetNs = 5,
    GetCurrentPidTgid = 14,
    SkStorageGet = 107,
    ProbeReadUser = 112,
    GetNsCurrentPidTgid = 120,
    PerfEventOutput = 25,
    RingbufOutput = 130,
    TaskStorageGet = 156,
    GetCurrentTaskBtf = 158,
    TaskPtRegs = 175,
    SkcToUnixSock = 178,
}

/// Place of a program that jumps lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// Why a program can't be assembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssemblyError {
    /// A jump leads to a label without a place.
    #[error("a jump leads to label {0}, which has no place")]
    NoPlace(usize),
    /// A jump is longer than 32,767 instructions.
    #[error("a jump to label {0} is too long")]
    TooFar(usize),
}

/// Class of 64-bit jumps, 64-bit operations and so on: the lowest three bits of a code.
const LOAD_WIDE: u8 = 0x18;
const LOAD: u8 = 0x61;
const STORE_CONSTANT: u8 = 0x62;
const STORE: u8 = 0x63;
const ATOMIC: u8 = 0xdb;
const JUMP: u8 = 0x05;
const ARITHMETIC: u8 = 0x07;
const JUMP_32: u8 = 0x06;
/// Bit of codes whose second side is a register.
const BY_REGISTER: u8 = 0x08;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Marks in the source register of a wide load: the constant is a map's descriptor, or it means
/// the address of an array's first value.
const MAP_DESCRIPTOR: u8 = 1;
const MAP_VALUE: u8 = 2;

/// Assembles one program.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<[u8; 8]>,
    places: Vec<Option<usize>>,
    /// Jumps and their labels.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// Creates a label, whose place [`Assembler::place`] says.
    pub fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Lets a label mean the next instruction.
    pub fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.code.len());
    }

    fn push(&mut self, code: u8, destination: u8, source: u8, offset: i16, constant: i32) {
        let ([o0, o1], [c0, c1, c2, c3]) = (offset.to_le_bytes(), constant.to_le_bytes());
        self.code.push([code, destination | source << 4, o0, o1, c0, c1, c2, c3]);
    }

    /// `destination = destination ∘ operand`, in 64 bits.
    pub fn apply(&mut self, operation: Operation, destination: Register, operand: impl Into<Operand>) {
        let code = operation as u8 | ARITHMETIC;
        match operand.into() {
            Operand::Register(source) => self.push(code | BY_REGISTER, destination as u8, source as u8, 0, 0),
            Operand::Constant(constant) => self.push(code, destination as u8, 0, 0, constant),
        }
    }

    /// `destination = operand`.
    pub fn set(&mut self, destination: Register, operand: impl Into<Operand>) {
        self.apply(Operation::Move, destination, operand);
    }

    /// `destination = constant`, of 64 bits.
    pub fn set_wide(&mut self, destination: Register, constant: u64) {
        self.wide(destination, 0, constant);
    }

    fn wide(&mut self, destination: Register, source: u8, constant: u64) {
        self.push(LOAD_WIDE, destination as u8, source, 0, constant as u32 as i32);
        self.push(0, 0, 0, 0, (constant >> 32) as u32 as i32);
    }

    /// `destination = ` the map with this file descriptor.
    pub fn set_map(&mut self, destination: Register, descriptor: i32) {
        self.wide(destination, MAP_DESCRIPTOR, u64::from(descriptor as u32));
    }

    /// `R0` = the address of the map's value for the key at this place of the stack; jumps if there
    /// is none. Destroys `R1` to `R5`.
    pub fn look_up(&mut self, descriptor: i32, key: i16, none: Label) {
        self.set_map(Register::R1, descriptor);
        self.set(Register::R2, Register::R10);
        self.apply(Operation::Add, Register::R2, i32::from(key));
        self.call(Helper::MapLookup);
        self.jump_if(Register::R0, Condition::Equal, 0, none);
    }

    /// `destination = ` the address of an array's first value.
    pub fn set_map_value(&mut self, destination: Register, descriptor: i32) {
        self.wide(destination, MAP_VALUE, u64::from(descriptor as u32));
    }

    /// `destination = *(base + offset)`, extended with zeros.
    pub fn load(&mut self, width: Width, destination: Register, base: Register, offset: i16) {
        self.push(LOAD | width as u8, destination as u8, base as u8, offset, 0);
    }

    /// `*(base + offset) = source`.
    pub fn store(&mut self, width: Width, base: Register, offset: i16, source: impl Into<Operand>) {
        match source.into() {
            Operand::Register(source) => self.push(STORE | width as u8, base as u8, source as u8, offset, 0),
            Operand::Constant(constant) => self.push(STORE_CONSTANT | width as u8, base as u8, 0, offset, constant),
        }
    }

    /// `*(base + offset) += source`, at once, on 64 bits.
    pub fn add_atomically(&mut self, base: Register, offset: i16, source: Register) {
        self.push(ATOMIC, base as u8, source as u8, offset, 0);
    }

    /// Jumps.
    pub fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JUMP, 0, 0, 0, 0);
    }

    /// Jumps if the condition holds for 64 bits.
    pub fn jump_if(&mut self, left: Register, condition: Condition, right: impl Into<Operand>, to: Label) {
        self.branch(JUMP, left, condition, right.into(), to);
    }

    /// Jumps if the condition holds for the lower 32 bits.
    pub fn jump_if_32(&mut self, left: Register, condition: Condition, right: impl Into<Operand>, to: Label) {
        self.branch(JUMP_32, left, condition, right.into(), to);
    }

    fn branch(&mut self, class: u8, left: Register, condition: Condition, right: Operand, to: Label) {
        self.jumps.push((self.code.len(), to));
        let code = condition as u8 | class;
        match right {
            Operand::Register(source) => self.push(code | BY_REGISTER, left as u8, source as u8, 0, 0),
            Operand::Constant(constant) => self.push(code, left as u8, 0, 0, constant),
        }
    }

    /// Calls a helper.
    pub fn call(&mut self, helper: Helper) {
        self.push(CALL, 0, 0, 0, i32::from(helper as u8));
    }

    /// Ends the program with result 0.
    pub fn exit(&mut self) {
        self.exit_with(0);
    }

    /// Ends the program with a result.
    pub fn exit_with(&mut self, result: i32) {
        self.set(Register::R0, result);
        self.push(EXIT, 0, 0, 0, 0);
    }

    /// Returns the instructions.
    ///
    /// # Errors
    /// A jump has no target, or one that is too far away.
    pub fn finish(mut self) -> Result<Vec<[u8; 8]>, AssemblyError> {
        for (at, label) in self.jumps {
            let place = self.places[label.0].ok_or(AssemblyError::NoPlace(label.0))?;
            let distance =
                i16::try_from(place as i64 - at as i64 - 1).map_err(|_| AssemblyError::TooFar(label.0))?.to_le_bytes();
            self.code[at][2..4].copy_from_slice(&distance);
        }
        Ok(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::Register::*;
    use super::*;

    fn one(build: impl FnOnce(&mut Assembler)) -> Vec<[u8; 8]> {
        let mut assembler = Assembler::default();
        build(&mut assembler);
        assembler.finish().unwrap()
    }

    #[test]
    fn instructions_have_the_kernels_encoding() {
        // Beside `bpftool prog dump xlated` and the macros of `linux/filter.h`.
        let check = |build: &dyn Fn(&mut Assembler), expected: &[[u8; 8]]| assert_eq!(one(build), expected);
        check(&|a| a.set(R0, 0), &[[0xb7, 0x00, 0, 0, 0, 0, 0, 0]]);
        check(&|a| a.set(R6, R1), &[[0xbf, 0x16, 0, 0, 0, 0, 0, 0]]);
        check(&|a| a.apply(Operation::Add, R2, -8), &[[0x07, 0x02, 0, 0, 0xf8, 0xff, 0xff, 0xff]]);
        check(&|a| a.apply(Operation::ShiftRight, R3, R4), &[[0x7f, 0x43, 0, 0, 0, 0, 0, 0]]);
        check(&|a| a.load(Width::Double, R6, R1, 16), &[[0x79, 0x16, 16, 0, 0, 0, 0, 0]]);
        check(&|a| a.load(Width::Half, R0, R7, 2), &[[0x69, 0x70, 2, 0, 0, 0, 0, 0]]);
        check(&|a| a.store(Width::Word, R10, -4, 7), &[[0x62, 0x0a, 0xfc, 0xff, 7, 0, 0, 0]]);
        check(&|a| a.store(Width::Double, R10, -16, R8), &[[0x7b, 0x8a, 0xf0, 0xff, 0, 0, 0, 0]]);
        check(&|a| a.add_atomically(R0, 8, R1), &[[0xdb, 0x10, 8, 0, 0, 0, 0, 0]]);
        check(&|a| a.call(Helper::RingbufOutput), &[[0x85, 0, 0, 0, 130, 0, 0, 0]]);
        check(
            &|a| a.set_wide(R2, 0x1122_3344_5566_7788),
            &[[0x18, 0x02, 0, 0, 0x88, 0x77, 0x66, 0x55], [0, 0, 0, 0, 0x44, 0x33, 0x22, 0x11]],
        );
        check(&|a| a.set_map(R1, 5), &[[0x18, 0x11, 0, 0, 5, 0, 0, 0], [0; 8]]);
    }

    #[test]
    fn jumps_count_from_the_next_instruction() {
        let code = one(|a| {
            let (back, out) = (a.label(), a.label());
            a.place(back);
            a.jump_if(R1, Condition::Equal, 0, out);
            a.jump_if_32(R1, Condition::SignedBelowOrEqual, R2, back);
            a.jump(out);
            a.place(out);
            a.exit();
        });
        assert_eq!(code[0], [0x15, 0x01, 2, 0, 0, 0, 0, 0]);
        assert_eq!(code[1], [0xde, 0x21, 0xfe, 0xff, 0, 0, 0, 0]);
        assert_eq!(code[2], [0x05, 0x00, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_jump_to_nowhere_is_an_error() {
        let mut assembler = Assembler::default();
        let label = assembler.label();
        assembler.jump(label);
        assert_eq!(assembler.finish(), Err(AssemblyError::NoPlace(0)));
    }
}
