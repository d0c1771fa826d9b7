//! The memcached port from outside, over real sockets: what clients see, and what bad ones can do.

mod support;

use leeward_control::units::Nanos;
use leeward_kv::store::Visit;
use std::io::Read;
use support::{Client, builder, serve, store, until};

#[test]
fn what_is_set_is_got() {
    let server = serve(&store());
    let mut client = Client::new(server.address());
    assert_eq!(client.ask(b"set a 7 0 5\r\nhello\r\n"), "STORED\r\n");
    client.send(b"get a b\r\n");
    assert_eq!(client.until(b"END\r\n"), b"VALUE a 7 5\r\nhello\r\nEND\r\n");
    assert_eq!(client.ask(b"delete a\r\n"), "DELETED\r\n");
    assert_eq!(client.ask(b"get a\r\n"), "END\r\n");
    let counts = server.stop().unwrap();
    assert_eq!((counts.received, counts.completed), (4, 4));
}
