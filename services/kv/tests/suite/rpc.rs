//! The store under Leeward's own protocol.

use crate::support::store;
use leeward_core::units::Nanos;
use leeward_kv::service::{DELETE, GET, GET_MANY, Kv, SET};
use leeward_rpc::client::{CallError, Client};
use leeward_rpc::server::Server;
use leeward_rpc::wire::Method;
use leeward_runtime::IdlePolicy;
use std::sync::Arc;

#[test]
fn pairs_are_set_got_and_deleted() {
    let store = store();
    let idle = IdlePolicy::Adaptive(Nanos::from_micros(20));
    let server = Server::builder().idle(idle).start("127.0.0.1:0", Kv::new(Arc::clone(&store))).unwrap();
    let client = Client::builder().replica(server.address().to_string()).build().unwrap();
    let call = |method, argument: &[u8]| client.call_blocking(method, argument);
    assert_eq!(call(GET, b"a").unwrap().payload, [0]);
    assert_eq!(call(SET, b"\x01ahello").unwrap().payload, [1]);
    assert_eq!(call(GET, b"a").unwrap().payload, b"\x01hello");
    assert_eq!(call(GET_MANY, b"\x01a\x02bb\x01a").unwrap().payload, b"\x01\x05\0\0\0hello\0\x01\x05\0\0\0hello");
    assert_eq!(call(GET_MANY, b"").unwrap().payload, b"");
    // Memcached's clients see the same pairs.
    let port = crate::support::serve(&store);
    let mut memcached = crate::support::Client::new(port.address());
    memcached.send(b"get a\r\n");
    assert_eq!(memcached.until(b"END\r\n"), b"VALUE a 0 5\r\nhello\r\nEND\r\n");
    assert_eq!(call(DELETE, b"a").unwrap().payload, [1]);
    assert_eq!(call(DELETE, b"a").unwrap().payload, [0]);
    for (method, argument) in [
        (GET, &b""[..]),
        (SET, b""),
        (SET, b"\x05ab"),
        (SET, b"\x00ab"),
        (GET, &[b'k'; 251]),
        (GET_MANY, b"\x01a\x00"),
        (GET_MANY, b"\x02a"),
    ] {
        assert!(matches!(call(method, argument), Err(CallError::Failed { .. })), "{argument:?}");
    }
    assert!(matches!(call(Method(77), b"a"), Err(CallError::UnknownMethod { .. })));
    client.shut_down();
    port.stop().unwrap();
    server.stop().unwrap();
}
