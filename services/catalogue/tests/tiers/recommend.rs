//! Recommend: the mean of the leaves' predictions.

use crate::support::{MODELS, TestClient, addresses, leaves, start};
use leeward_recommend::data::Ratings;
use leeward_recommend::neighbours::Model;
use leeward_recommend::wire::{Query, TierResult};
use leeward_rpc::wire::Method;
use leeward_testkit::serial::serial_guard;

const TEXT: &str = "synthetic:200:90:3000:5";

fn argument(user: u32, item: u32) -> Vec<u8> {
    let mut argument = Vec::new();
    Query { user, item }.append(&mut argument);
    argument
}

#[test]
fn a_prediction_is_the_mean_over_leaves_that_know_the_user() {
    let _alone = serial_guard();
    let ratings = Ratings::synthetic(200, 90, 3_000, 5);
    let models: Vec<Model> = (0..3).map(|shard| Model::learn(&ratings.shard(shard, 3), 5)).collect();
    let leaves = leaves("recommend-leaf", 3, TEXT);
    for model in MODELS {
        let tier = start("recommend", &[("leaves", &addresses(&leaves)), ("threading", model)]);
        let client = TestClient::connect(&tier);
        for turn in 0..60 {
            let (user, item) = (turn * 37 % 210, turn * 11 % 95);
            let result = TierResult::read(&client.call_until_complete(Method(0), &argument(user, item))).unwrap();
            let known: Vec<f64> = models.iter().filter_map(|model| model.predict(user, item)).map(f64::from).collect();
            let mean = (!known.is_empty()).then(|| (known.iter().sum::<f64>() / known.len() as f64) as f32);
            assert_eq!(result, TierResult { asked: 3, answered: 3, prediction: mean }, "{user} {item} under {model}");
        }
        assert_eq!(client.call_error(Method(0), &[1; 7]), "7 bytes; accepted: 4 of a user and 4 of an item");
    }
}
