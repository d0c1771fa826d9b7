//! Leaves that do not fit: a mid-tier does not start with one, and does not use one that appears
//! later.

use crate::support::{MODELS, TestClient, addresses, leaves, open, start, start_at, try_start};
use leeward_rpc::server::Server;
use leeward_rpc::wire::Method;
use leeward_sets::data::name;
use leeward_sets::wire::append_words;
use leeward_testkit::serial::serial_guard;

const TEXT: &str = "synthetic:600:20:7";

fn leaf(shard: &str, data: &str) -> Server {
    start("sets-leaf", &[("data", data), ("shard", shard)])
}

/// Returns the reason why a mid-tier over these leaves does not start.
fn start_error(leaves: &[Server], more: &[(&str, &str)]) -> String {
    let addresses = addresses(leaves);
    let arguments = [&[("leaves", &*addresses), ("data", TEXT), ("threading", "SDB1-2")], more].concat();
    let message = try_start("sets", &arguments).err().expect("it has started").to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn a_mid_tier_refuses_shards_that_do_not_fit() {
    let check = |leaves: &[Server], more: &[(&str, &str)], expected: &str| {
        let message = start_error(leaves, more);
        assert!(message.contains(expected), "{message} without {expected}");
    };
    check(&[leaf("1/2", TEXT), leaf("1/2", TEXT)], &[], "has shard 1/2, as leaf 1");
    check(
        &[leaf("2/2", TEXT), leaf("1/2", TEXT)],
        &[],
        "has shard 2/2; accepted at this place of --leaves: --shard 1/2",
    );
    check(&[leaf("1/3", TEXT), leaf("2/3", TEXT)], &[], "has shard 1/3, and 2 leaves have 2 shards");
    check(
        &[leaf("1/2", TEXT), leaf("2/2", "synthetic:600:20:8")],
        &[],
        "has data synthetic:600:20:8; accepted: synthetic:600:20:7",
    );
    check(&[leaf("1/2", TEXT), start("router-leaf", &[])], &[], "serves router-leaf; accepted: sets-leaf");
    check(&[leaf("1/2", TEXT), leaf("2/2", TEXT)], &[("replicas", "2")], "2 leaves with 2 replicas have 1 shards");
    // A mid-tier is not a leaf; neither is a server without a description.
    let below = leaves("sets-leaf", 1, TEXT);
    let middle = start("sets", &[("leaves", &addresses(&below)), ("data", TEXT), ("threading", "SIB1")]);
    check(&[leaf("1/2", TEXT), middle], &[], "serves sets; accepted: sets-leaf");
    // An absent leaf is not a reason for a rejection.
    let gone = leaf("1/2", TEXT);
    let address = gone.address().to_string();
    gone.stop().unwrap();
    start("sets", &[("leaves", &address), ("data", TEXT), ("threading", "SIB1")]).stop().unwrap();
}

#[test]
fn a_wrong_leaf_that_appears_later_is_not_called() {
    let _alone = serial_guard();
    let mut query = Vec::new();
    append_words([name(50).as_bytes()].into_iter(), &mut query);
    for model in MODELS.into_iter().filter(|model| !model.starts_with("CORE")) {
        let mut below = leaves("sets-leaf", 2, TEXT);
        let mut values = vec![("data", TEXT), ("threading", model)];
        let text = addresses(&below);
        values.push(("leaves", &text));
        let backend = open("sets", &values);
        let tier = start_at(&*backend, "127.0.0.1:0").unwrap();
        let client = TestClient::connect(&tier);
        let whole = client.call_until_complete(Method(0), &query);
        assert!(backend.warnings().is_empty(), "{model}");
        let second = below.pop().unwrap();
        let address = second.address().to_string();
        second.stop().unwrap();
        // The same part as the first leaf's: its answers would count twice.
        let wrong = open("sets-leaf", &[("data", TEXT), ("shard", "1/2")]);
        let wrong = start_at(&*wrong, &address).unwrap();
        let warnings = loop {
            let answer = client.call(Method(0), &query);
            // Either the tier has not noticed the second leaf's end, or that part is missing.
            assert!(answer[1] < 2, "{model}: a wrong leaf was asked: {answer:?}");
            let warnings = backend.warnings();
            if !warnings.is_empty() {
                break warnings;
            }
            // The tier reconnects to the leaf.
            std::thread::sleep(std::time::Duration::from_millis(2));
        };
        assert!(warnings[0].contains("has shard 1/2, as leaf 1"), "{warnings:?}");
        for _ in 0..50 {
            assert_eq!(client.call(Method(0), &query)[..2], [2, 1], "{model}");
        }
        wrong.stop().unwrap();
        let right = open("sets-leaf", &[("data", TEXT), ("shard", "2/2")]);
        let right = start_at(&*right, &address).unwrap();
        assert_eq!(client.call_until_complete(Method(0), &query), whole, "{model}");
        tier.stop().unwrap();
        right.stop().unwrap();
    }
}

#[test]
fn a_leaf_with_another_controller_is_reported() {
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let leaf = open("sets-leaf", &[("data", TEXT)]);
    let builder = Server::builder().admission(&breakwater, breakwater.params(&[]).unwrap());
    let leaf = leaf.start(builder.idle(leeward_runtime::IdlePolicy::Block), "127.0.0.1:0").unwrap();
    let address = leaf.address().to_string();
    for (admission, expected) in [
        ("none", "runs breakwater, and its clients here are none's"),
        ("breakwater", "runs breakwater, and the tier none"),
    ] {
        let arguments = [("leaves", &*address), ("data", TEXT), ("threading", "SIB1"), ("leaf-admission", admission)];
        let backend = open("sets", &arguments);
        let tier = start_at(&*backend, "127.0.0.1:0").unwrap();
        let warnings = backend.warnings();
        assert!(warnings.len() == 1 && warnings[0].contains(expected), "{warnings:?}");
        tier.stop().unwrap();
    }
    leaf.stop().unwrap();
}
