//! Tiers and leaves as the catalogue starts them, and a client.

use leeward_catalogue::Catalogue;
use leeward_rpc::client::{CallError, Client};
use leeward_rpc::server::{Server, ServerError};
use leeward_rpc::wire::Method;
use leeward_runtime::IdlePolicy;
use leeward_services::arguments::{Value, Values};
use leeward_services::backend::Backend;
use leeward_services::tier::TIMEOUT;
use std::time::Duration;

/// Models under which a tier must give the same answers: one of each kind.
pub(crate) const MODELS: [&str; 4] = ["SIP1", "SDB1-4", "ADB1-2-1", "CORE1"];

/// Opens a service with these arguments.
///
/// By default a tier waits 60 s for its leaves, so that a busy machine does not cause partial
/// answers, which differ from the oracle's.
pub(crate) fn open(name: &str, arguments: &[(&str, &str)]) -> Box<dyn Backend> {
    let service = Catalogue::builtin().find(name).unwrap_or_else(|| panic!("{name}"));
    let mut values = Values::defaults(service.arguments());
    if service.arguments().iter().any(|argument| argument.name == TIMEOUT.name) {
        values.set(TIMEOUT.name, Value::Text("60s".into()));
    }
    for (name, value) in arguments {
        let argument = service.arguments().iter().find(|argument| argument.name == *name);
        values.set(argument.unwrap_or_else(|| panic!("{name}")).name, Value::Text((*value).into()));
    }
    service.open(&values, 1, &|_| ()).unwrap()
}

/// Starts a server of the backend at `address`.
pub(crate) fn start_at(backend: &dyn Backend, address: &str) -> Result<Server, ServerError> {
    // The server rejects nothing, so that late answers on a busy machine still arrive for the
    // comparison.
    let none = leeward_controllers::builtin().find("none").unwrap().clone();
    let builder = Server::builder().admission(&none, none.params(&[]).unwrap()).idle(IdlePolicy::Block);
    backend.start(builder, address)
}

/// Starts a service with these arguments.
pub(crate) fn try_start(name: &str, arguments: &[(&str, &str)]) -> Result<Server, ServerError> {
    start_at(&*open(name, arguments), "127.0.0.1:0")
}

/// Starts a service like [`try_start`]; panics on an error.
pub(crate) fn start(name: &str, arguments: &[(&str, &str)]) -> Server {
    try_start(name, arguments).unwrap()
}

/// Starts `count` leaves, each with its share of the data.
pub(crate) fn leaves(name: &str, count: usize, data: &str) -> Vec<Server> {
    (1..=count).map(|at| start(name, &[("data", data), ("shard", &format!("{at}/{count}"))])).collect()
}

/// Joins the leaves' addresses to a mid-tier's argument.
pub(crate) fn addresses(leaves: &[Server]) -> String {
    leaves.iter().map(|leaf| leaf.address().to_string()).collect::<Vec<_>>().join(",")
}

/// A client that sends one request at a time.
pub(crate) struct TestClient(Client);

impl TestClient {
    pub(crate) fn connect(server: &Server) -> TestClient {
        TestClient(Client::builder().replica(server.address().to_string()).build().unwrap())
    }

    /// Returns a result; repeats the call while the tier's links are not up yet.
    pub(crate) fn call(&self, method: Method, argument: &[u8]) -> Vec<u8> {
        for _ in 0..2_000 {
            match self.0.call_blocking(method, argument.to_vec()) {
                Ok(answer) => return answer.payload,
                // Links come up within milliseconds.
                Err(error) if error.is_overload() => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => panic!("{error}"),
            }
        }
        panic!("rejected again and again")
    }

    /// Returns the service's error message.
    pub(crate) fn call_error(&self, method: Method, argument: &[u8]) -> String {
        match self.0.call_blocking(method, argument.to_vec()) {
            Err(CallError::Failed { message, .. }) => message,
            other => panic!("{other:?}"),
        }
    }

    /// Repeats the call until the answer is complete: links to leaves take a moment.
    pub(crate) fn call_until_complete(&self, method: Method, argument: &[u8]) -> Vec<u8> {
        loop {
            let answer = self.call(method, argument);
            if answer[0] == answer[1] {
                return answer;
            }
            // The link to a leaf is being established.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
