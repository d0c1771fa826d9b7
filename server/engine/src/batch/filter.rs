//! A socket filter in classic BPF. The kernel drops each datagram without its sender address's mark
//! before it takes space in the queue. The filter needs no privilege.

use leeward_datagram::address_mark::AddressMark;
use leeward_datagram::header::{LEN, MAGIC, VERSION};
use std::io;
use std::os::fd::BorrowedFd;

/// The kernel's offset for addresses relative to the network header.
const NETWORK: u32 = libc::SKF_NET_OFF as u32;
/// Bytes of the UDP header, which the filter sees in front of the datagram.
const UDP: u32 = 8;

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_LENGTH: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_LEN) as u16;
const LOAD_MEMORY: u16 = (libc::BPF_LD | libc::BPF_MEM) as u16;
const LOAD_X_MEMORY: u16 = (libc::BPF_LDX | libc::BPF_MEM) as u16;
const STORE: u16 = libc::BPF_ST as u16;
const TO_X: u16 = (libc::BPF_MISC | libc::BPF_TAX) as u16;
const ADD_X: u16 = (libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X) as u16;
const XOR: u16 = (libc::BPF_ALU | libc::BPF_XOR | libc::BPF_K) as u16;
const XOR_X: u16 = (libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X) as u16;
const MULTIPLY: u16 = (libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K) as u16;
const SHIFT: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16;
const IS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IS_X: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_X) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// A program under construction. Failed comparisons jump to its end, where the datagram is dropped.
struct Program(Vec<libc::sock_filter>);

impl Program {
    fn step(&mut self, code: u16, k: u32) {
        self.0.push(libc::sock_filter { code, jt: 0, jf: 0, k });
    }

    /// Continues if the comparison holds, and drops the datagram otherwise. [`Program::end`] sets
    /// the jump.
    fn demand(&mut self, code: u16, k: u32) {
        self.0.push(libc::sock_filter { code, jt: 0, jf: u8::MAX, k });
    }

    /// `A ^= A >> bits`.
    fn fold(&mut self, bits: u32) {
        self.step(STORE, 1);
        self.step(SHIFT, bits);
        self.step(LOAD_X_MEMORY, 1);
        self.step(XOR_X, 0);
    }

    fn end(mut self) -> Vec<libc::sock_filter> {
        self.step(RETURN, u32::MAX);
        let last = self.0.len();
        for (index, step) in self.0.iter_mut().enumerate().filter(|(_, step)| step.jf == u8::MAX) {
            step.jf = (last - index - 1) as u8;
        }
        self.step(RETURN, 0);
        self.0
    }
}

/// Computes [`AddressMark::of`] in the kernel.
fn program(mark: &AddressMark, is_v6: bool) -> Vec<libc::sock_filter> {
    let [xor, address_mul, port_mul, last_mul] = mark.keys;
    let mut program = Program(Vec::with_capacity(40));
    program.step(LOAD_LENGTH, 0);
    program.demand(AT_LEAST, UDP + LEN as u32);
    program.step(LOAD_HALF, UDP);
    program.demand(IS, u32::from(u16::from_be_bytes(MAGIC)));
    program.step(LOAD_HALF, UDP + 2);
    // Version, and a kind of at most 15.
    program.step(SHIFT, 4);
    program.demand(IS, u32::from(VERSION) << 4);
    // The address.
    let words: &[u32] = if is_v6 { &[8, 12, 16, 20] } else { &[12] };
    for (index, offset) in words.iter().enumerate() {
        if index > 0 {
            program.step(MULTIPLY, address_mul);
            program.step(STORE, 0);
        }
        program.step(LOAD_WORD, NETWORK.wrapping_add(*offset));
        if index > 0 {
            program.step(LOAD_X_MEMORY, 0);
            program.step(ADD_X, 0);
        }
    }
    program.step(XOR, xor);
    program.step(MULTIPLY, address_mul);
    program.fold(15);
    program.step(STORE, 0);
    // The sender's port.
    program.step(LOAD_HALF, 0);
    program.step(MULTIPLY, port_mul);
    program.step(LOAD_X_MEMORY, 0);
    program.step(ADD_X, 0);
    program.step(MULTIPLY, last_mul);
    program.fold(13);
    program.step(STORE, 0);
    program.step(LOAD_WORD, UDP + 4);
    program.step(TO_X, 0);
    program.step(LOAD_MEMORY, 0);
    program.demand(IS_X, 0);
    program.end()
}

/// Attaches the filter: the kernel drops datagrams for `socket` that lack their sender's mark.
///
/// # Errors
/// The kernel doesn't accept the filter. Each datagram then has to be checked in user space.
pub fn attach(socket: BorrowedFd<'_>, mark: &AddressMark, is_v6: bool) -> io::Result<()> {
    let mut program = program(mark, is_v6);
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the option is such a structure. It points at `program`, which lives until the kernel
    // has copied it within the call.
    unsafe { super::set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_datagram::header::{Header, Kind};
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    fn passes(address: &str, is_v6: bool) {
        let Ok(server) = UdpSocket::bind(address) else { return };
        let mark = AddressMark::new([0x1234_5678_9ABC_DEF0, 0x0FED_CBA9_8765_4321]);
        attach(server.as_fd(), &mark, is_v6).unwrap();
        server.set_nonblocking(true).unwrap();
        for _ in 0..20 {
            let peer = UdpSocket::bind(address).unwrap();
            peer.connect(server.local_addr().unwrap()).unwrap();
            let right = Header { mark: mark.of(peer.local_addr().unwrap()), ..Header::of(Kind::Call) }.bytes();
            let (mut foreign, mut strange) = (right, right);
            foreign[5] ^= 1;
            strange[1] ^= 1;
            for (bytes, passes) in
                [(&right[..], true), (&foreign[..], false), (&strange[..], false), (&right[..39], false)]
            {
                peer.send(bytes).unwrap();
                // Loopback delivers within the send.
                assert_eq!(server.recv(&mut [0; 100]).is_ok(), passes, "{bytes:?}");
            }
        }
    }

    #[test]
    fn the_kernel_computes_the_same_marks() {
        passes("127.0.0.1:0", false);
        passes("[::1]:0", true);
    }
}
