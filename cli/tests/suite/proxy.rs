//! `docs/proxy-reference.md` and the settings of `leeward proxy` agree. Does not contain requests
//! (`leeward-proxy`).

use crate::architecture::root;
use leeward_proxy::settings::file::FileSettings;
use std::collections::BTreeSet;

/// Keys that a section accepts, from the error about one that it does not know.
fn keys(section: &str, prefix: &str) -> Vec<String> {
    let error = FileSettings::parse(&format!("{section}\nsedum = 1\n")).unwrap_err().to_string();
    let (_, expected) = error.split_once("expected one of ").or(error.split_once("expected ")).unwrap();
    let names = expected.lines().next().unwrap().split('`').skip(1).step_by(2);
    names.map(|name| format!("{prefix}{name}")).collect()
}

/// Rows of the table of settings: the keys of a row, and the default.
fn rows(document: &str) -> Vec<(Vec<String>, String)> {
    let table = document.lines().skip_while(|line| !line.starts_with("| key |")).skip(2);
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let names = cells[1].split('`').skip(1).step_by(2).map(String::from).collect();
        (names, cells[2].to_string())
    };
    table.take_while(|line| line.starts_with('|')).map(row).collect()
}

fn document(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).unwrap()
}

#[test]
fn the_reference_has_every_key() {
    let sections = ["queue", "timeouts", "rule", "tls", "backend-tls"];
    let top: Vec<String> = keys("", "").into_iter().filter(|key| !sections.contains(&key.as_str())).collect();
    let nested = sections.map(|name| match name {
        "rule" => keys("[[rule]]", "rule."),
        _ => keys(&format!("[{name}]"), &format!("{name}.")),
    });
    let accepted: BTreeSet<String> = top.into_iter().chain(nested.concat()).collect();
    assert!(
        accepted.len() > 25 && accepted.contains("timeouts.first-byte"),
        "the search for keys is broken: {accepted:?}"
    );
    let documented: BTreeSet<String> =
        rows(&document("proxy-reference.md")).into_iter().flat_map(|(names, _)| names).collect();
    assert_eq!(accepted, documented, "keys of the file, and of the table in docs/proxy-reference.md");
}

#[test]
fn the_reference_has_the_defaults() {
    let required = "slo = \"50ms\"\nlisten = \":8080\"\nto = [\"127.0.0.1:3000\"]\n";
    let settings = |text: &str| {
        let settings = format!("{:#?}", FileSettings::parse(text).unwrap().settings().unwrap());
        // One function may have two addresses.
        settings.lines().filter(|line| !line.contains("build: 0x")).map(String::from).collect::<Vec<_>>()
    };
    let mut text = String::from(required);
    let mut stated = 0;
    for (names, default) in rows(&document("proxy-reference.md")) {
        let Some(value) = default.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')) else { continue };
        text += &format!("{} = {value}\n", names[0]);
        stated += 1;
    }
    assert!(stated > 12, "the search for defaults is broken: {text}");
    assert_eq!(settings(&text), settings(required));
    // Another value is seen.
    assert_ne!(settings(&text.replace("20000", "20001")), settings(required));
}

#[test]
fn the_guide_is_short() {
    let words = document("proxy.md").split_whitespace().count();
    assert!(words <= 1_800, "docs/proxy.md has {words} words");
}
