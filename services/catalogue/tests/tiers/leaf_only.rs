//! Direct requests to leaves, as from `leeward load`: each answer equals the result of a plain
//! computation.

use crate::support::{TestClient, start};
use leeward_catalogue::Catalogue;
use leeward_core::params::Params;
use leeward_core::units::Nanos;
use leeward_rpc::generator::RequestGenerator;
use leeward_rpc::server::Server;
use leeward_services::definition::Target;
use std::sync::Arc;

/// Prepares the requests of a text for a server.
fn prepare(text: &str, server: &Server) -> Arc<dyn RequestGenerator> {
    let none = leeward_controllers::builtin().find("none").unwrap().clone();
    let (params, slo) = (Params::default(), Nanos::from_secs(1));
    let target =
        Target { address: server.address(), algorithm: &none, params: &params, rtt: Nanos(1), slo, encryption: None };
    Catalogue::builtin().requests(text).unwrap().prepare(&target).unwrap().unwrap()
}

/// Counts the correct answers to `count` requests.
fn right(server: &Server, generator: &dyn RequestGenerator, count: u64) -> u64 {
    let client = TestClient::connect(server);
    let is_right = |random: u64| {
        let mut argument = Vec::new();
        let method = generator.generate(random, &mut argument);
        let answer = client.call(method, &argument);
        u64::from(generator.is_answer(random, method, &answer))
    };
    (0..count).map(is_right).sum()
}

#[test]
fn leaf_answers_match_the_expected_ones() {
    for (leaf, data) in [
        ("hdsearch-leaf", "synthetic:16:2000:3"),
        ("sets-leaf", "synthetic:900:20:3"),
        ("sets-leaf", "small"),
        ("recommend-leaf", "synthetic:200:90:3000:5"),
    ] {
        let server = start(leaf, &[("data", data), ("shard", "2/3")]);
        let generator = prepare(&format!("{leaf}:2/3:{data}"), &server);
        assert_eq!(right(&server, &*generator, 200), 200, "{leaf} {data}");
        server.stop().unwrap();
    }
}

#[test]
fn a_leaf_with_the_wrong_shard_is_detected() {
    let data = "synthetic:900:20:3";
    let server = start("sets-leaf", &[("data", data), ("shard", "1/3")]);
    let generator = prepare(&format!("sets-leaf:2/3:{data}"), &server);
    assert_eq!(right(&server, &*generator, 100), 0, "each question finds a document of the second part");
    server.stop().unwrap();
}

#[test]
fn a_router_leaf_stores_pairs() {
    let server = start("router-leaf", &[]);
    let generator = prepare("router-leaf", &server);
    assert_eq!(right(&server, &*generator, 300), 300);
    server.stop().unwrap();
}
