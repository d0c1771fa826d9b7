//! First bytes of many protocols, for tests that send them to every port.
//!
//! Each greeting is followed by commands of other protocols, which no port may execute.

/// Appends a memcached command, as a form's field or a request's body may contain one.
macro_rules! smuggled {
    ($greeting:literal) => {
        concat!($greeting, "set smuggled 0 0 1\r\nx\r\n").as_bytes()
    };
}

/// Names of protocols, and first bytes of their clients.
pub const GREETINGS: [(&str, &[u8]); 13] = [
    ("HTTP/1", smuggled!("GET / HTTP/1.1\r\nHost: a\r\n\r\n")),
    ("HTTP/1", smuggled!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 27\r\n\r\n")),
    ("HTTP/1", smuggled!("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")),
    ("HTTP/2", smuggled!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")),
    ("TLS", smuggled!("\x16\x03\x01\0\x2f\x01\0\0\x2b\x03\x03\r\n")),
    ("memcached's text protocol", smuggled!("mn\r\n")),
    ("memcached's text protocol", smuggled!("get a\r\n")),
    (
        "memcached's binary protocol",
        b"\x80\x0b\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\nset smuggled 0 0 1\r\nx\r\n",
    ),
    ("the protocol of Redis", smuggled!("*1\r\n$4\r\nPING\r\n")),
    ("the PROXY protocol", smuggled!("PROXY TCP4 192.0.2.1 192.0.2.2 40000 11211\r\n")),
    (
        "the PROXY protocol",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\x9c\x40\x2b\xcb\r\nset smuggled 0 0 1\r\nx\r\n",
    ),
    ("Leeward's protocol", LEEWARD),
    ("Leeward's protocol over UDP", LEEWARD_DATAGRAM),
];

/// A client's `Register`, followed by a memcached command.
const LEEWARD: &[u8] = &{
    const LINE: &[u8] = b"\r\nset smuggled 0 0 1\r\nx\r\n";
    let mut bytes = [0; 64 + LINE.len()];
    (bytes[0], bytes[1], bytes[2], bytes[3]) = (b'L', b'W', 1, 1);
    // The longest accepted payload: 64 KiB.
    bytes[42] = 1;
    let mut at = 0;
    while at < LINE.len() {
        bytes[64 + at] = LINE[at];
        at += 1;
    }
    bytes
};

/// A client's `Hello`.
const LEEWARD_DATAGRAM: &[u8] = &{
    let mut bytes = [0; 64];
    (bytes[0], bytes[1], bytes[2], bytes[3]) = (b'L', b'U', 1, 1);
    bytes
};
