//! Router in front of memcached servers: the real memcached, and the port of our key-value service.

use crate::support::{TestClient, addresses, start};
use leeward_kv::store::{Store, StoreConfig};
use leeward_router::wire::{GET, Pair, SET};
use leeward_rpc::server::Server;
use leeward_testkit::require::Requirement;
use leeward_testkit::wait::until;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// A memcached process that ends with the test.
struct Memcached(Child, SocketAddr);

impl Memcached {
    /// Starts memcached; `None` if it is not installed.
    fn start() -> Option<Self> {
        // If another program takes the port in between, the test fails loudly.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let port = address.port().to_string();
        let mut command = Command::new("memcached");
        command.args(["-l", "127.0.0.1", "-U", "0", "-u", "nobody", "-t", "1", "-m", "16", "-p", &port]);
        match command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(child) => {
                let memcached = Memcached(child, address);
                until("memcached", || TcpStream::connect(address).is_ok());
                Some(memcached)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Requirement::Memcached.missing("there is no memcached here (`scripts/setup kv`)");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn set(key: &str, value: &[u8]) -> Vec<u8> {
    let mut argument = Vec::new();
    Pair { key: key.as_bytes(), value }.append(&mut argument);
    argument
}

/// Sets and gets pairs through a router whose leaves use these stores.
fn serves_pairs(stores: &[SocketAddr]) {
    let leaves: Vec<Server> =
        stores.iter().map(|store| start("router-leaf", &[("store", &store.to_string())])).collect();
    let tier = start("router", &[("leaves", &addresses(&leaves)), ("threading", "SDB1-2"), ("acks", "all")]);
    let client = TestClient::connect(&tier);
    let key = |number: usize| format!("key-{number}");
    // Line ends and protocol words inside a value are ordinary bytes.
    let value = |number: usize| [b"\r\nEND\r\n", vec![number as u8; number * 40].as_slice()].concat();
    for number in 0..50 {
        assert_eq!(client.call_until_complete(SET, &set(&key(number), &value(number))), [3, 3, 3]);
    }
    for number in 0..50 {
        assert_eq!(
            client.call_until_complete(GET, key(number).as_bytes()),
            [b"\x01\x01\x01", value(number).as_slice()].concat()
        );
    }
    assert_eq!(client.call_until_complete(GET, b"nobody"), [1, 1, 0]);
    // Every leaf rejects a key that would be a separate command.
    let result = client.call(SET, &set("a\r\nflush_all", b""));
    assert_eq!(result[1], 0, "{result:?}");
    assert_eq!(client.call_until_complete(GET, key(7).as_bytes())[2], 1);
}

#[test]
fn router_serves_pairs_of_memcached() {
    let started: Option<Vec<Memcached>> = (0..3).map(|_| Memcached::start()).collect();
    let Some(mut memcached) = started else { return };
    serves_pairs(&memcached.iter().map(|one| one.1).collect::<Vec<_>>());
    // A leaf without its store fails, and other leaves answer.
    let leaves: Vec<Server> =
        memcached.iter().map(|one| start("router-leaf", &[("store", &one.1.to_string())])).collect();
    let tier = start("router", &[("leaves", &addresses(&leaves)), ("threading", "SDB1-2")]);
    let client = TestClient::connect(&tier);
    assert_eq!(client.call_until_complete(GET, b"key-7")[2], 1);
    memcached.remove(1);
    for number in 0..20 {
        assert_eq!(client.call(GET, format!("key-{number}").as_bytes())[2], 1, "another replica has {number}");
    }
}

#[test]
fn router_serves_pairs_of_leewards_memcached_port() {
    let stores: Vec<_> = (0..3)
        .map(|_| {
            let store = Arc::new(Store::new(&StoreConfig::default()).unwrap());
            leeward_kv::server::Server::builder()
                .idle(leeward_runtime::IdlePolicy::Block)
                .start("127.0.0.1:0", &store)
                .unwrap()
        })
        .collect();
    serves_pairs(&stores.iter().map(|store| store.address()).collect::<Vec<_>>());
    stores.into_iter().for_each(|store| _ = store.stop().unwrap());
}
