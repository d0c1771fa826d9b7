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

/// Models under which a tier must answer the same: one of each kind.
pub(crate) const MODELS: [&str; 4] = ["SIP1", "SDB1-4", "ADB1-2-1", "CORE1"];

/// A service with these arguments, ready to be started. Where nothing else is said, a tier waits for its leaves however late a busy machine makes
/// them: an answer without one of them would differ from an oracle's.
pub(crate) fn open(name: &str, arguments: &[(&str, &str)]) -> Box<dyn Backend> {
    let case = Catalogue::builtin().find(name).unwrap_or_else(|| panic!("{name}"));
    let mut values = Values::defaults(case.arguments());
    if case.arguments().iter().any(|argument| argument.name == TIMEOUT.name) {
        values.set(TIMEOUT.name, Value::Text("60s".into()));
    }
    for (name, value) in arguments {
        let argument = case.arguments().iter().find(|argument| argument.name == *name);
        values.set(argument.unwrap_or_else(|| panic!("{name}")).name, Value::Text((*value).into()));
    }
    case.open(&values, 1, &|_| ()).unwrap()
}

/// Starts it there.
pub(crate) fn start_at(backend: &dyn Backend, address: &str) -> Result<Server, ServerError> {
    // Nothing is rejected, however late a busy machine makes the answers: they are compared with an oracle's.
    let none = leeward_controllers::builtin().find("none").unwrap().clone();
    let builder = Server::builder().admission(&none, none.params(&[]).unwrap()).idle(IdlePolicy::Block);
    backend.start(builder, address)
}

/// Starts a service with these arguments.
pub(crate) fn try_start(name: &str, arguments: &[(&str, &str)]) -> Result<Server, ServerError> {
    start_at(&*open(name, arguments), "127.0.0.1:0")
}

/// The same where it starts.
pub(crate) fn start(name: &str, arguments: &[(&str, &str)]) -> Server {
    try_start(name, arguments).unwrap()
}

/// So many leaves, each with its share of the data.
pub(crate) fn leaves(name: &str, count: usize, data: &str) -> Vec<Server> {
    (1..=count).map(|at| start(name, &[("data", data), ("shard", &format!("{at}/{count}"))])).collect()
}

/// Their addresses, as a mid-tier's argument.
pub(crate) fn addresses(leaves: &[Server]) -> String {
    leaves.iter().map(|leaf| leaf.address().to_string()).collect::<Vec<_>>().join(",")
}

/// A client that asks one thing after the other.
pub(crate) struct TestClient(Client);

impl TestClient {
    pub(crate) fn connect(server: &Server) -> TestClient {
        TestClient(Client::builder().replica(server.address().to_string()).build().unwrap())
    }

    /// A result. A tier whose links are not up yet is asked again.
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

    /// The words with which the service says no.
    pub(crate) fn call_error(&self, method: Method, argument: &[u8]) -> String {
        match self.0.call_blocking(method, argument.to_vec()) {
            Err(CallError::Failed { message, .. }) => message,
            other => panic!("{other:?}"),
        }
    }

    /// Asks until an answer is whole: links to leaves take a moment.
    pub(crate) fn call_until_complete(&self, method: Method, argument: &[u8]) -> Vec<u8> {
        loop {
            let answer = self.call(method, argument);
            if answer[0] == answer[1] {
                return answer;
            }
            // The link to a leaf comes up.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
