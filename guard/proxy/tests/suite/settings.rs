//! The settings file: every key wrong once, unknown keys, any text. Does not contain their effects.

use leeward_proxy::settings::file::{FileSettings, SettingsError};
use leeward_proxy::{Proxy, Settings};
use proptest::prelude::*;
use std::path::Path;

const NEEDED: [(&str, &str); 3] = [("slo", "\"50ms\""), ("listen", "\":0\""), ("to", "[\"127.0.0.1:3000\"]")];

/// The settings of a file with one more line; the line replaces a needed one of the same key.
fn read(line: &str) -> Result<Settings, SettingsError> {
    let key = line.split('=').next().unwrap_or_default().trim();
    let needed: String =
        NEEDED.iter().filter(|(of, _)| *of != key).map(|(of, value)| format!("{of} = {value}\n")).collect();
    FileSettings::parse(&format!("{needed}{line}\n"))?.settings()
}

#[test]
fn every_key_that_is_wrong_is_named() {
    let wrong = [
        ("slo", "\"fast\""),
        ("slo", "\"0s\""),
        ("slo", "\"25h\""),
        ("slo", "5"),
        ("listen", "8080"),
        ("listen", "\":65536\""),
        ("listen", "\"8080\""),
        ("listen", "\"localhost\""),
        ("listen", "\"\""),
        ("listen", "\"a b:80\""),
        ("listen", "\"::1:80\""),
        ("listen", "\"[::1]\""),
        ("listen", "\"[zz]:80\""),
        ("to", "[]"),
        ("to", "[\"nowhere\"]"),
        ("to", "[\"a:1\", \"a:1\"]"),
        ("to", "\"a:1\""),
        ("shared", "\"yes\""),
        ("exempt", "[\"/a?b=1\"]"),
        ("exempt", "[\"/a#b\"]"),
        ("limit", "\"guess\""),
        ("limit", "\"0\""),
        ("limit", "\"99999999999999999999\""),
        ("limit", "4"),
        ("threads", "0"),
        ("threads", "1000"),
        ("threads", "-1"),
        ("connections", "0"),
        ("trust", "[\"everyone\"]"),
        ("trust", "[\"10.0.0.0/33\"]"),
        ("mode", "\"maybe\""),
        ("mode", "\"0%\""),
        ("mode", "\"101%\""),
        ("health", "\"healthz\""),
        ("health", "\"/a b\""),
        ("exempt", "[\"x\"]"),
        ("exempt", "[\"/a/*/b\"]"),
        ("until", "\"never\""),
        ("tenant-by", "\"name\""),
        ("tenant-by", "\"header a b\""),
        ("admin", "1"),
        ("admin", "\"\""),
        ("admin", "\"127.0.0.1\""),
        ("admin", "\":x\""),
        ("admin", "\"unix:/run/admin.sock\""),
        ("access-log", "\"xml\""),
        ("access-log", "true"),
        ("access-log-file", "\"access.log\""),
        ("access-log-file", "[]"),
        // Nothing would be written there.
        ("access-log-file", "\"/var/log/proxy.log\""),
        ("queue.requests", "0"),
        ("queue.megabytes", "0"),
        ("queue.megabytes", "9999999999"),
        ("timeouts.connect", "\"off\""),
        ("timeouts.first-byte", "\"soon\""),
        ("timeouts.idle", "\"0ms\""),
        ("timeouts.total", "\"-1s\""),
        ("timeouts.client", "\"\""),
        ("timeouts.client-idle", "\"1\""),
        ("timeouts.stop", "\"forever\""),
        ("accept-proxy-protocol", "\"v1\""),
        ("send-proxy-protocol", "\"v3\""),
        ("send-proxy-protocol", "true"),
        ("tls.certificate", "1"),
        ("tls.certificate", "[]"),
        ("backend-tls.insecure", "\"yes\""),
        ("backend-tls.server-name", "\"a b\""),
        ("backend-tls.ca", "[]"),
    ];
    for (key, value) in wrong {
        let error = read(&format!("{key} = {value}")).expect_err(&format!("{key} = {value}")).to_string();
        assert!(error.contains(key) || error.contains(key.rsplit('.').next().unwrap()), "{key} = {value}: {error}");
    }
    let tls = "[tls]\ncertificate = \"a.pem\"\nkey = \"a.key\"\n";
    for (section, key) in [
        ("[tls]\ncertificate = \"a.pem\"", "`tls.key`"),
        ("[tls]\ncertificate = [\"a.pem\", \"b.pem\"]\nkey = \"a.key\"", "`tls.key`"),
        (&format!("{tls}client-auth = \"optional\""), "`tls.client-auth`"),
        (&format!("{tls}client-ca = \"c.pem\"\nclient-auth = \"perhaps\""), "`tls.client-auth`"),
        (&format!("{tls}cert = \"a\""), "cert"),
        ("[backend-tls]\nkey = \"a.key\"", "`backend-tls.certificate`"),
        ("[backend-tls]\ncertificate = \"a.pem\"", "`backend-tls.key`"),
        ("[backend-tls]\nca = \"a.pem\"\ninsecure = true", "`backend-tls.insecure`"),
    ] {
        let error = read(section).expect_err(section).to_string();
        assert!(error.contains(key), "{section}: {error}");
    }
    for (key, value) in [
        ("name", "1"),
        ("path", "\"checkout\""),
        ("path", "\"/*/checkout\""),
        ("method", "\"GET it\""),
        ("method", "\"get\""),
        ("header", "\": value\""),
        ("client", "\"10.0.0.0/64\""),
        ("class", "8"),
        ("class", "-1"),
        ("tenant", "\"a\""),
    ] {
        let class = if key == "class" { "" } else { "class = 1\n" };
        let error = read(&format!("[[rule]]\n{class}{key} = {value}")).expect_err(key).to_string();
        assert!(error.contains(key), "{key} = {value}: {error}");
    }
    let error = read("[[rule]]\npath = \"/a\"").expect_err("a rule without effect").to_string();
    assert!(error.contains("rule 1"), "{error}");
}

#[test]
fn the_range_that_an_error_states_is_accepted() {
    let error = read("timeouts.stop = \"0ms\"").unwrap_err().to_string();
    let (_, range) = error.split_once("must be from ").expect("a range");
    for end in range.split(" to ") {
        assert!(read(&format!("timeouts.stop = \"{end}\"")).is_ok(), "{end}: {error}");
    }
}

#[test]
fn an_address_without_a_port_is_told_so() {
    for (value, advice) in [("localhost", "has no port"), ("", "has no port"), ("21050", "write `:21050`")] {
        for key in ["listen", "admin"] {
            let error = read(&format!("{key} = \"{value}\"")).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{key}`")) && error.contains(advice), "{error}");
        }
    }
    let error = read("health = \"/a b\"").unwrap_err().to_string();
    assert!(error.contains("%20"), "{error}");
}

/// Settings that pass start, unless an address is in use: systemd's units rely on it.
#[test]
fn a_check_finds_what_a_start_could_not_use() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let path = |path: &Path| format!("access-log = \"json\"\naccess-log-file = \"{}\"", path.display());
    let check = |text: &str| {
        let text = format!("slo = \"50ms\"\nto = [\"127.0.0.1:3000\", \"unix:/run/app.sock\"]\n{text}");
        let settings = FileSettings::parse(&text).and_then(|file| file.settings()).unwrap();
        Proxy::check(&settings).map_err(|error| error.to_string())
    };
    let listen = "listen = \"127.0.0.1:8080\"\n";
    for right in [
        "listen = \"systemd\"\nadmin = \"systemd\"".into(),
        "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"".into(),
        "listen = \"localhost:8080\"\nadmin = \":8081\"".into(),
        format!("listen = \"unix:{}\"", folder.path().join("socket").display()),
        format!("{listen}{}", path(&log)),
        format!("{listen}{}", path(Path::new("/dev/null"))),
        // Without a log, nobody opens its file.
        format!("{listen}access-log = \"off\"\naccess-log-file = \"/none/log\""),
    ] {
        assert_eq!(check(&right), Ok(()), "{right}");
    }
    assert!(!log.exists(), "it would be the checker's");
    for (wrong, key) in [
        (format!("{listen}admin = \"127.0.0.1:8080\""), "admin"),
        (format!("{listen}admin = \":8080\""), "admin"),
        (format!("{listen}admin = \"localhost:3000\""), "admin"),
        (format!("{listen}admin = \"192.0.2.1:80\""), "admin"),
        ("listen = \"192.0.2.1:80\"".into(), "192.0.2.1:80"),
        ("listen = \"host.invalid:80\"".into(), "host.invalid:80"),
        ("listen = \"unix:/none/socket\"".into(), "/none/socket"),
        (format!("{listen}{}", path(Path::new("/none/log"))), "access-log-file"),
        (format!("{listen}{}", path(Path::new("/dev/null/log"))), "access-log-file"),
        (format!("{listen}{}", path(folder.path())), "access-log-file"),
    ] {
        let error = check(&wrong).unwrap_err();
        assert!(error.contains(key), "{wrong}: {error}");
    }
}

#[test]
fn missing_and_unknown_keys_are_named() {
    for (key, _) in NEEDED {
        let text: String =
            NEEDED.iter().filter(|(of, _)| *of != key).map(|(of, value)| format!("{of} = {value}\n")).collect();
        let error = FileSettings::parse(&text).and_then(|file| file.settings()).expect_err(key).to_string();
        assert!(error.contains(&format!("`{key}`")), "{error}");
    }
    for line in ["sla = \"1s\"", "[queue]\nlength = 3", "[timeouts]\nfirst_byte = \"1s\"", "[[rule]]\nclas = 1"] {
        let error = read(line).expect_err(line).to_string();
        let key = line.lines().last().unwrap().split(' ').next().unwrap();
        assert!(error.contains(key), "{line}: {error}");
    }
}

/// The program's own types say nothing to who writes the file.
#[test]
fn a_value_of_the_wrong_kind_is_told_its_form() {
    for (line, form) in [
        ("limit = 16", "must be text in quotes"),
        ("slo = 5", "must be text in quotes"),
        ("mode = [\"shadow\"]", "must be text in quotes"),
        ("to = \"127.0.0.1:3000\"", "must be a list, such as `[\"127.0.0.1:3000\"]`"),
        ("trust = 1", "must be a list"),
        ("connections = -1", "must be a whole number from 0 to 4294967295, without quotes"),
        ("threads = \"2\"", "must be a whole number from 0 to 4294967295, without quotes"),
        ("shared = \"yes\"", "must be `true` or `false`, without quotes"),
        ("[timeouts]\nidle = 0", "must be text in quotes"),
        ("[timeouts]\nidle = \"0\"", ", or `off`"),
        ("[[rule]]\nclass = -1", "must be a whole number from 0 to 255, without quotes"),
        ("[[rule]]\nclass = 300", "must be a whole number from 0 to 255, without quotes"),
    ] {
        let error = read(line).expect_err(line).to_string();
        assert!(error.contains(form) && !error.contains("expected"), "{line}: {error}");
        let key = line.lines().last().unwrap().split(' ').next().unwrap();
        assert!(error.contains(key), "{line}: {error}");
    }
}

#[test]
fn a_rule_that_never_applies_is_an_error() {
    let check =
        |first: &str, second: &str| read(&format!("[[rule]]\n{first}\nclass = 1\n[[rule]]\n{second}\nclass = 2"));
    for (first, second) in [
        ("", "path = \"/a\""),
        ("", ""),
        ("path = \"/*\"", "path = \"/a\"\nmethod = \"GET\""),
        ("path = \"/a*\"", "path = \"/a/b*\""),
        ("path = \"/a\"", "path = \"/a\"\nheader = \"x: y\""),
        ("header = \"x\"", "header = \"X: y\""),
        ("client = \"10.0.0.0/8\"", "client = \"10.1.0.0/16\""),
        ("method = \"GET\"", "method = \"GET\""),
    ] {
        let error = check(first, second).expect_err(second).to_string();
        assert!(error.contains("`rule 2`: never applies: rule 1 comes first"), "{error}");
    }
    for (first, second) in [
        ("path = \"/a\"", ""),
        ("path = \"/a\"", "path = \"/a*\""),
        ("path = \"/a/b*\"", "path = \"/a*\""),
        ("header = \"x: y\"", "header = \"x\""),
        ("header = \"x: y\"", "header = \"x: z\""),
        ("client = \"10.1.0.0/16\"", "client = \"10.0.0.0/8\""),
        ("method = \"GET\"", "path = \"/a\""),
        ("path = \"/*\"", "method = \"GET\""),
    ] {
        check(first, second).unwrap_or_else(|error| panic!("{second}: {error}"));
    }
}

#[test]
fn every_key_has_values_that_are_right() {
    let text = "slo = \"50ms\"\nlisten = \"[::1]:0\"\nto = [\"a.b:1\", \"[::1]:2\", \":3\"]\nshared = true\nlimit = \"8\"\n\
        threads = 3\nconnections = 10\ntrust = [\"10.0.0.0/8\", \"::1\"]\nmode = \"5%\"\nhealth = \"/h\"\n\
        exempt = [\"/a\", \"/b/*\"]\nuntil = \"first-byte\"\ntenant-by = \"header X-Key\"\nadmin = \":1\"\n\
        accept-proxy-protocol = true\nsend-proxy-protocol = \"v2\"\n\
        access-log = \"combined\"\naccess-log-file = \"/var/log/proxy.log\"\n\
        [queue]\nrequests = 5\nmegabytes = 2\n[timeouts]\nconnect = \"1s\"\nfirst-byte = \"off\"\nidle = \"off\"\n\
        total = \"9s\"\nclient = \"1s\"\nclient-idle = \"2s\"\nstop = \"3s\"\n\
        [tls]\ncertificate = [\"a.pem\", \"b.pem\"]\nkey = [\"a.key\", \"b.key\"]\nclient-ca = \"c.pem\"\nclient-auth = \"optional\"\n\
        [backend-tls]\nca = \"d.pem\"\ncertificate = \"e.pem\"\nkey = \"e.key\"\nserver-name = \"api.internal\"\n\
        [[rule]]\nname = \"n\"\npath = \"/p*\"\nmethod = \"GET\"\nheader = \"X: y\"\nclient = \"::/0\"\nclass = 7\ntenant = 3\n";
    let file = FileSettings::parse(text).expect("a file");
    let settings = file.settings().expect("settings");
    assert_eq!((settings.backends.len(), settings.queue_bytes, settings.rules.len()), (3, 2 << 20, 1));
    assert_eq!((settings.timeouts.first_byte, settings.timeouts.idle), (None, None));
    let tls = settings.tls.as_ref().expect("a section");
    assert_eq!((tls.certificates.len(), tls.is_client_optional), (2, true));
    assert_eq!(settings.backend_tls.server_name.as_deref(), Some("api.internal"));
    // What is stated later counts, and its rules come first.
    let over = FileSettings::parse("limit = \"9\"\n[timeouts]\nstop = \"4s\"\n[[rule]]\nclient = \"::1\"\nclass = 1")
        .expect("a file");
    let merged = file.merge(over).settings().expect("settings");
    assert_eq!((merged.timeouts.stop.as_secs(), merged.rules.len(), merged.rules[1].tenant.is_some()), (4, 2, true));
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,12}".prop_map(|text| format!("{text:?}")),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<bool>().prop_map(|value| value.to_string()),
        prop::collection::vec("[ -~]{0,20}", 0..3).prop_map(|texts| format!("{texts:?}")),
        "[0-9]{1,20}(ns|us|ms|s|m|h|%)?".prop_map(|text| format!("{text:?}")),
        "[^\n]{0,10}",
    ]
}

fn keys() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "slo",
        "listen",
        "to",
        "shared",
        "limit",
        "threads",
        "connections",
        "trust",
        "mode",
        "health",
        "exempt",
        "until",
        "tenant-by",
        "admin",
        "access-log",
        "access-log-file",
        "queue.requests",
        "queue.megabytes",
        "timeouts.connect",
        "timeouts.first-byte",
        "timeouts.idle",
        "timeouts.total",
        "timeouts.client",
        "timeouts.client-idle",
        "timeouts.stop",
        "rule",
        "tls.certificate",
        "tls.key",
        "tls.client-ca",
        "tls.client-auth",
        "backend-tls.ca",
        "backend-tls.certificate",
        "backend-tls.key",
        "backend-tls.server-name",
        "backend-tls.insecure",
        "accept-proxy-protocol",
        "send-proxy-protocol",
    ])
}

proptest! {
    #[test]
    fn any_text_is_read_or_rejected(text in "\\PC{0,200}") {
        let _ = FileSettings::parse(&text).and_then(|file| file.settings());
    }

    #[test]
    fn settings_survive_their_own_text(key in keys(), value in value()) {
        if let Ok(file) = FileSettings::parse(&format!("{key} = {value}\n")) {
            let read = FileSettings::parse(&file.to_text().unwrap()).unwrap();
            prop_assert_eq!(format!("{read:?}"), format!("{file:?}"));
        }
    }

    #[test]
    fn any_value_is_read_or_rejected(
        key in keys(),
        value in value(),
    ) {
        if let Err(error) = read(&format!("{key} = {value}")) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn any_rule_is_read_or_rejected(
        key in prop::sample::select(vec!["name", "path", "method", "header", "client", "class", "tenant"]),
        value in value(),
    ) {
        let _ = read(&format!("[[rule]]\n{key} = {value}"));
    }
}
