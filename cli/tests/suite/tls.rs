//! TLS of the program: serving, loading and observing with certificates, and flags that exclude
//! each other. `server/rpc/tests/tls` tests the kinds of failures.

use crate::server::{Server, leeward};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Certificates and keys: an authority's certificate, and a server's and a client's with their
/// keys.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    write("ca.pem", authority.pem());
    let names = [
        ("server", SanType::DnsName("leeward.example".try_into().unwrap())),
        ("client", SanType::URI("spiffe://example/batch".try_into().unwrap())),
    ];
    for (name, san) in names {
        let (mut params, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
        params.subject_alt_names = vec![san];
        write(&format!("{name}.pem"), params.signed_by(&key, &authority).unwrap().pem());
        write(&format!("{name}.key"), key.serialize_pem());
    }
    folder
}

/// Runs a command; returns whether it succeeded, with stdout and stderr.
fn run(arguments: &[&str], folder: &Path) -> (bool, String) {
    let output = leeward(arguments, folder);
    (output.status.success(), [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat())
}

#[test]
fn a_server_with_tls_is_loaded_and_watched() {
    let folder = folder();
    let config = "tls-cert = \"server.pem\"\ntls-key = \"server.key\"\ntls-client-ca = \"ca.pem\"\nidle = \"block\"\n";
    fs::write(folder.path().join("server.toml"), config).unwrap();
    let server = Server::start(&["--config", "server.toml", "--slo", "1s"], folder.path());
    let trust = ["--tls-ca", "ca.pem", "--tls-name", "leeward.example"];
    let shown = ["--tls-cert", "client.pem", "--tls-key", "client.key"];
    let load = ["load", &server.1, "--clients", "4", "--closed", "1", "--duration", "300ms", "--slo", "1s"];
    let (is_well, printed) = run(&[&load[..], &trust, &shown].concat(), folder.path());
    assert!(is_well && printed.contains("goodput"), "{printed}");
    let (is_well, printed) = run(&[&["top", &server.1, "--json"][..], &trust, &shown].concat(), folder.path());
    assert!(is_well && printed.contains("\"identified\":5"), "{printed}");
    // Without a client certificate, and without TLS.
    let (is_well, printed) = run(&[&load[..], &trust].concat(), folder.path());
    assert!(!is_well && printed.contains("it wants a certificate (--tls-cert, --tls-key)"), "{printed}");
    let (is_well, printed) = run(&load, folder.path());
    assert!(!is_well && printed.contains("this port speaks TLS alone: connect with TLS (--tls-ca)"), "{printed}");
}

#[test]
fn a_table_names_tenants_and_unknown_identities_are_reported() {
    let folder = folder();
    let config = "tls-cert = \"server.pem\"\ntls-key = \"server.key\"\ntls-client-ca = \"ca.pem\"\ntls-tenants = \"tenants.toml\"\nidle = \"block\"\n";
    fs::write(folder.path().join("server.toml"), config).unwrap();
    let of = |table: &str| {
        fs::write(folder.path().join("tenants.toml"), table).unwrap();
        let server = Server::start(&["--config", "server.toml", "--slo", "1s"], folder.path());
        let load = ["load", &server.1, "--clients", "1", "--closed", "1", "--duration", "200ms", "--slo", "1s"];
        let shown = [
            "--tls-ca",
            "ca.pem",
            "--tls-name",
            "leeward.example",
            "--tls-cert",
            "client.pem",
            "--tls-key",
            "client.key",
        ];
        run(&[&load[..], &shown].concat(), folder.path())
    };
    let (is_well, printed) = of("strangers = \"refused\"\n[tenants]\n\"spiffe://example/batch\" = 7\n");
    assert!(is_well && printed.contains("goodput"), "{printed}");
    let (is_well, printed) = of("strangers = \"refused\"\n[tenants]\n\"spiffe://example/web\" = 7\n");
    assert!(!is_well && printed.contains("this server takes no client of this certificate's name"), "{printed}");
}

#[test]
fn the_admin_port_serves_tls() {
    let folder = folder();
    let config = "admin = \"127.0.0.1:0\"\nadmin-tls-cert = \"server.pem\"\nadmin-tls-key = \"server.key\"\n\
                  admin-tls-client-ca = \"ca.pem\"\nidle = \"block\"\n";
    fs::write(folder.path().join("server.toml"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_leeward"));
    command.args(["serve", "--config", "server.toml", "--listen", "127.0.0.1:0"]).current_dir(folder.path());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let admin = lines.find_map(|line| Some(line.strip_prefix("admin: https://")?.trim_end_matches('/').to_string()));
    let admin = admin.unwrap();
    let why = ["why", "8f3a", &admin];
    let trust = ["--tls-ca", "ca.pem", "--tls-name", "leeward.example"];
    let shown = ["--tls-cert", "client.pem", "--tls-key", "client.key"];
    let check = |arguments: &[&str], words: &str| {
        let (is_well, printed) = run(arguments, folder.path());
        assert!(!is_well && printed.contains(words) && printed.lines().count() == 1, "{arguments:?}: {printed}");
    };
    // No request was rejected yet, so this message proves that the port responds.
    check(&[&why[..], &trust, &shown].concat(), "no decision 8f3a");
    check(&[&why[..], &trust].concat(), "it wants a certificate (--tls-cert, --tls-key)");
    check(&why, "this port speaks TLS alone");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn incompatible_tls_flags_are_rejected_with_a_message() {
    let folder = folder();
    let pair = ["--tls-cert", "server.pem", "--tls-key", "server.key"];
    let check = |arguments: &[&str], words: &str| {
        let (is_well, printed) = run(arguments, folder.path());
        assert!(!is_well && printed.contains(words) && printed.lines().count() == 1, "{arguments:?}: {printed}");
    };
    check(&["serve", "--tls-cert", "server.pem"], "--tls-key is missing");
    check(&["serve", "--tls-key", "server.key"], "--tls-cert is missing");
    check(&["serve", "--tls-client-ca", "ca.pem"], "a server needs a certificate, too");
    check(&[&["serve", "--tls-tenants", "t.toml"], &pair[..]].concat(), "--tls-client-ca is missing");
    let clients = ["--tls-client-ca", "ca.pem", "--tls-tenants", "missing.toml"];
    check(&[&["serve"], &pair[..], &clients].concat(), "missing.toml");
    check(&["serve", "--admin-tls-cert", "server.pem", "--admin-tls-key", "server.key"], "--admin is missing");
    check(&["serve", "--admin-tls-key", "server.key"], "--admin-tls-cert is missing");
    check(&["serve", "--admin-tls-client-ca", "ca.pem"], "--admin-tls-cert and --admin-tls-key are missing");
    check(&[&["serve", "--udp", "127.0.0.1:0"][..], &pair].concat(), "datagrams are not encrypted");
    check(&["serve", "--tls-cert", "server.pem", "--tls-key", "client.key"], "is not that of the certificate");
    check(&["serve", "--tls-cert", "missing.pem", "--tls-key", "server.key"], "can't read missing.pem");
    check(&["load", "--udp", "127.0.0.1:1", "--tls-ca", "ca.pem"], "datagrams are not encrypted");
    check(&["load", "127.0.0.1:1", "--tls-name", "leeward.example"], "--tls-ca");
    check(&["load", "127.0.0.1:1", "--tls-ca", "server.key"], "contains no certificate in PEM");
}
