//! The 40 bytes before the frame in every datagram: encoding and decoding.

/// Length of every header, in bytes.
pub const LEN: usize = 40;
/// The first two bytes, `LU`.
pub const MAGIC: [u8; 2] = *b"LU";
/// Version of the header. Datagrams of another version are dropped.
pub const VERSION: u8 = 1;
/// Length of a [`Kind::Hello`] with padding, in bytes: more than the cookie that answers it.
pub const HELLO_LEN: usize = 64;

/// Kind of a datagram. The number is the header's kind byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A client requests a cookie.
    Hello = 1,
    /// The server's cookie.
    Cookie = 2,
    /// A client returns its cookie, and registers.
    Open = 3,
    /// The server's welcome.
    Welcome = 4,
    /// A call.
    Call = 5,
    /// The answer to a call.
    Answer = 6,
    /// The server received the call before and has not answered it yet.
    InProgress = 7,
    /// A control frame, neither call nor answer; without a frame, a probe.
    Control = 8,
    /// Acknowledges control frames.
    Ack = 9,
    /// The session does not exist or has ended; with a frame, the reason.
    Close = 10,
}

impl Kind {
    /// All kinds, by number.
    pub const ALL: [Kind; 10] = [
        Kind::Hello,
        Kind::Cookie,
        Kind::Open,
        Kind::Welcome,
        Kind::Call,
        Kind::Answer,
        Kind::InProgress,
        Kind::Control,
        Kind::Ack,
        Kind::Close,
    ];

    /// `None` for an unknown number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).wrapping_sub(1)).copied()
    }
}

/// A datagram header. The meaning of each field depends on the kind: `docs/datagrams.md` has the
/// table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the datagram.
    pub kind: Kind,
    /// The sender's mark, in datagrams from a client.
    pub mark: [u8; 4],
    /// The session's slot at the server; in a cookie, the port of the core.
    pub slot: u32,
    /// Number of the newest control frame that the sender has received.
    pub ack: u32,
    /// The session's key; before the session exists, the client's nonce.
    pub key: u64,
    /// Number of the call or control frame; the cookie; in a welcome, the client's nonce.
    pub number: u64,
    /// Position of the server's frame in the order in which frames were sent; with a cookie, the
    /// cookie's epoch.
    pub order: u64,
}

impl Header {
    /// A header of this kind with all other fields zero.
    pub fn of(kind: Kind) -> Self {
        Header { kind, mark: [0; 4], slot: 0, ack: 0, key: 0, number: 0, order: 0 }
    }

    /// Splits a datagram into header and frame. `None` for a datagram of another protocol.
    #[inline]
    pub fn read(datagram: &[u8]) -> Option<(Header, &[u8])> {
        let (head, frame) = datagram.split_first_chunk::<LEN>()?;
        if head[..2] != MAGIC || head[2] != VERSION || datagram.len() > crate::DatagramSize::MAX.bytes() {
            return None;
        }
        let kind = Kind::from_number(head[3])?;
        let header = Header {
            kind,
            mark: four(head, 4),
            slot: u32::from_le_bytes(four(head, 8)),
            ack: u32::from_le_bytes(four(head, 12)),
            key: u64::from_le_bytes(eight(head, 16)),
            number: u64::from_le_bytes(eight(head, 24)),
            order: u64::from_le_bytes(eight(head, 32)),
        };
        Some((header, frame))
    }

    /// The header's bytes.
    #[inline]
    pub fn bytes(&self) -> [u8; LEN] {
        let mut head = [0; LEN];
        head[..2].copy_from_slice(&MAGIC);
        head[2] = VERSION;
        head[3] = self.kind as u8;
        head[4..8].copy_from_slice(&self.mark);
        head[8..12].copy_from_slice(&self.slot.to_le_bytes());
        head[12..16].copy_from_slice(&self.ack.to_le_bytes());
        head[16..24].copy_from_slice(&self.key.to_le_bytes());
        head[24..32].copy_from_slice(&self.number.to_le_bytes());
        head[32..40].copy_from_slice(&self.order.to_le_bytes());
        head
    }

    /// Replaces `datagram` by this header and `frame`.
    pub fn write(&self, frame: &[u8], datagram: &mut Vec<u8>) {
        datagram.clear();
        datagram.extend_from_slice(&self.bytes());
        datagram.extend_from_slice(frame);
    }
}

#[inline]
fn four(head: &[u8; LEN], at: usize) -> [u8; 4] {
    [head[at], head[at + 1], head[at + 2], head[at + 3]]
}

#[inline]
fn eight(head: &[u8; LEN], at: usize) -> [u8; 8] {
    std::array::from_fn(|index| head[at + index])
}
