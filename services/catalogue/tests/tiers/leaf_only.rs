//! Leaves that are asked by themselves, as `leeward load` does: each answer is the one that a plain computation gives.

use crate::support::{TestClient, start};
use leeward_catalogue::Catalogue;
use leeward_core::params::Params;
use leeward_core::units::Nanos;
use leeward_rpc::generator::RequestGenerator;
use leeward_rpc::server::Server;
use leeward_services::definition::Target;
use std::sync::Arc;

/// Questions of a text, prepared for a server.
fn prepare(text: &str, server: &Server) -> Arc<dyn RequestGenerator> {
    let none = leeward_controllers::builtin().find("none").unwrap().clone();
    let (params, slo) = (Params::default(), Nanos::from_secs(1));
    let target =
        Target { address: server.address(), algorithm: &none, params: &params, rtt: Nanos(1), slo, encryption: None };
    Catalogue::builtin().requests(text).unwrap().prepare(&target).unwrap().unwrap()
}

/// How many of so many answers are right.
fn right(server: &Server, asks: &dyn RequestGenerator, count: u64) -> u64 {
    let asker = TestClient::connect(server);
    let is_right = |random: u64| {
        let mut argument = Vec::new();
        let method = asks.generate(random, &mut argument);
        let answer = asker.call(method, &argument);
        u64::from(asks.is_answer(random, method, &answer))
    };
    (0..count).map(is_right).sum()
}

#[test]
fn leaves_answer_as_their_oracles() {
    for (leaf, data) in [
        ("hdsearch-leaf", "synthetic:16:2000:3"),
        ("sets-leaf", "synthetic:900:20:3"),
        ("sets-leaf", "small"),
        ("recommend-leaf", "synthetic:200:90:3000:5"),
    ] {
        let server = start(leaf, &[("data", data), ("shard", "2/3")]);
        let asks = prepare(&format!("{leaf}:2/3:{data}"), &server);
        assert_eq!(right(&server, &*asks, 200), 200, "{leaf} {data}");
        server.stop().unwrap();
    }
}

#[test]
fn a_leaf_with_another_part_is_found_out() {
    let data = "synthetic:900:20:3";
    let server = start("sets-leaf", &[("data", data), ("shard", "1/3")]);
    let asks = prepare(&format!("sets-leaf:2/3:{data}"), &server);
    assert_eq!(right(&server, &*asks, 100), 0, "each question finds a document of the second part");
    server.stop().unwrap();
}

#[test]
fn a_leaf_of_router_keeps_pairs() {
    let server = start("router-leaf", &[]);
    let asks = prepare("router-leaf", &server);
    assert_eq!(right(&server, &*asks, 300), 300);
    server.stop().unwrap();
}
