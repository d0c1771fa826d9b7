//! Router: a get returns the set value, each key is on three leaves, and the loss of one leaf
//! changes nothing.

use crate::support::{MODELS, TestClient, addresses, start};
use leeward_router::wire::{GET, Pair, SET, TierResult};
use leeward_router::{Acks, Router};
use leeward_rpc::server::Server;
use leeward_testkit::serial::serial_guard;
use leeward_workload::rng::{Purpose, Rng};
use std::collections::BTreeMap;

fn set(key: &str, value: &str) -> Vec<u8> {
    let mut argument = Vec::new();
    Pair { key: key.as_bytes(), value: value.as_bytes() }.append(&mut argument);
    argument
}

fn key(number: u64) -> String {
    format!("key-{number}")
}

#[test]
fn the_router_answers_like_a_map() {
    let _alone = serial_guard();
    for model in MODELS {
        let leaves: Vec<Server> = (0..5).map(|_| start("router-leaf", &[])).collect();
        // Each set reaches all its leaves before the next get, which may ask any of them.
        let arguments = [("leaves", &*addresses(&leaves)), ("threading", model), ("acks", "all")];
        let tier = start("router", &arguments);
        let client = TestClient::connect(&tier);
        // Waits until all links are up.
        (0..60).for_each(|number| _ = client.call_until_complete(SET, &set(&key(number), "first")));
        let mut map: BTreeMap<u64, String> = (0..60).map(|number| (number, "first".into())).collect();
        let mut rng = Rng::new(11, Purpose::Data);
        for turn in 0..400 {
            let number = rng.below(80);
            if rng.below(2) == 0 {
                let value = format!("value {turn}");
                let answer = client.call(SET, &set(&key(number), &value));
                assert_eq!(answer, [3, 3, 3], "{model}");
                map.insert(number, value);
            } else {
                let answer = client.call(GET, key(number).as_bytes());
                let result = TierResult::read(&answer).unwrap();
                let expected = map.get(&number).map_or(vec![0], |value| [&[1], value.as_bytes()].concat());
                assert_eq!((result.asked, result.answered, result.rest), (1, 1, &expected[..]), "{model}");
            }
        }
        let router = Router::new(5, Acks::All);
        let leaf_clients: Vec<TestClient> = leaves.iter().map(TestClient::connect).collect();
        for number in 0..60 {
            let holders: Vec<usize> = router.replicas(key(number).as_bytes()).map(|leaf| usize::from(leaf.0)).collect();
            for (at, leaf) in leaf_clients.iter().enumerate() {
                let is_there = leaf.call(GET, key(number).as_bytes())[0] == 1;
                assert_eq!(is_there, holders.contains(&at), "{number} at {at}");
            }
            assert_eq!(holders.len(), 3);
        }
        let error = client.call_error(SET, &[&[0xff, 0xff][..], &[b'k'; 65_535]].concat());
        assert_eq!(error, "a key of 65535 bytes; accepted: 1 to 250");
    }
}

#[test]
fn losing_one_leaf_loses_no_pair() {
    let _alone = serial_guard();
    let mut leaves: Vec<Server> = (0..4).map(|_| start("router-leaf", &[])).collect();
    let tier = start("router", &[("leaves", &addresses(&leaves)), ("threading", "ADB1-2-1"), ("acks", "all")]);
    let client = TestClient::connect(&tier);
    (0..40).for_each(|number| _ = client.call_until_complete(SET, &set(&key(number), "kept")));
    leaves.remove(2).stop().unwrap();
    for number in 0..40 {
        let answer = client.call(GET, key(number).as_bytes());
        assert_eq!(answer, b"\x01\x01\x01kept", "{number}");
    }
    let stored: Vec<u8> = (0..40).map(|number| client.call(SET, &set(&key(number), "new"))[1]).collect();
    assert!(stored.iter().all(|stored| *stored >= 2) && stored.contains(&2), "{stored:?}");
}
