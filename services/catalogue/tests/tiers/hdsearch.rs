//! HDSearch: with the same candidates, the result is identical to the bit for any number of leaves.

use crate::support::{MODELS, TestClient, addresses, leaves, start};
use leeward_hdsearch::data::Source;
use leeward_hdsearch::distance::{Nearest, Neighbour, squared};
use leeward_hdsearch::hashing::{SearchScratch, Tables};
use leeward_hdsearch::wire::{append_query, read_neighbours};
use leeward_rpc::wire::Method;
use leeward_services::tiers::queries::DataSource;
use leeward_testkit::serial::serial_guard;

const TEXT: &str = "synthetic:32:4000:3";

/// Points of a file are served and found; a malformed file is rejected with one line.
#[test]
fn a_file_of_points_is_served() {
    let folder = std::env::temp_dir().join(format!("leeward-points-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (good, bad) = (folder.join("good.txt"), folder.join("bad.txt"));
    let lines: Vec<String> = (0..500).map(|at| format!("word{at} {} {} 1", at % 23, at / 23)).collect();
    std::fs::write(&good, lines.join("\n")).unwrap();
    std::fs::write(&bad, "1 2\n3").unwrap();
    let text = good.to_str().unwrap();
    let leaves = leaves("hdsearch-leaf", 2, text);
    let tier = start("hdsearch", &[("leaves", &addresses(&leaves)), ("data", text), ("threading", "SDB1-2")]);
    let client = TestClient::connect(&tier);
    let mut argument = Vec::new();
    append_query(1, &[7.0, 5.0, 1.0], &mut argument);
    let answer = client.call_until_complete(Method(0), &argument);
    let found: Vec<Neighbour> = read_neighbours(&answer[2..]).unwrap().collect();
    assert_eq!(found, [Neighbour { id: 5 * 23 + 7, distance: 0.0 }]);
    let error = Source::parse(bad.to_str().unwrap()).unwrap_err();
    assert!(error.contains("line 2: 1 numbers") && error.lines().count() == 1, "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn any_number_of_leaves_finds_the_nearest_candidates() {
    let _alone = serial_guard();
    let data = Source::parse(TEXT).unwrap();
    let points = data.points(0..data.count());
    let tables = Tables::new(&points, data.seed());
    let mut scratch = SearchScratch::default();
    for (count, model) in [1, 2, 4, 7].into_iter().zip(MODELS) {
        let leaves = leaves("hdsearch-leaf", count, TEXT);
        let tier = start("hdsearch", &[("leaves", &addresses(&leaves)), ("data", TEXT), ("threading", model)]);
        let client = TestClient::connect(&tier);
        for turn in 0..30 {
            let query = data.query(turn);
            let mut nearest = Nearest::default();
            nearest.reset(10);
            for id in tables.candidates(&query, &mut scratch) {
                let distance = squared(&query, points.get(*id as usize).unwrap());
                nearest.offer(Neighbour { id: *id, distance });
            }
            let mut argument = Vec::new();
            append_query(10, &query, &mut argument);
            let answer = client.call_until_complete(Method(0), &argument);
            let found: Vec<Neighbour> = read_neighbours(&answer[2..]).unwrap().collect();
            assert_eq!(found, nearest.sorted(), "turn {turn}, {count} leaves, {model}");
        }
        let mut other = Vec::new();
        append_query(10, &[1.0, f32::NAN], &mut other);
        assert_eq!(client.call_error(Method(0), &other), "a point of 2 dimensions; accepted: 32");
    }
}
