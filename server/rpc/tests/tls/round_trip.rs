//! Successful calls: with and without certificates of clients, long and short, resumed, on several
//! cores.

use crate::certificates::{Authority, Validity, dns, uri};
use crate::peers::{ask, builder, client, start};
use leeward_core::units::Tenant;
use leeward_engine::{PeerIdentity, TenantTable, UnknownIdentities};
use leeward_rpc::server::OwnedRequest;
use leeward_rpc::tls::{ServerFiles, ServerTls};
use leeward_testkit::wait::until;
use std::fs;

#[test]
fn calls_go_through_tls_and_long_ones_too() {
    let authority = Authority::new();
    let server = start(builder(authority.server(None)).cores(2));
    let client = client(&server, Some(authority.client(None)));
    assert_eq!(ask(&client, b"").unwrap(), b"nobody");
    for length in [1, 100, 16_000, 16_384, 20_000, 300_000, 1 << 20] {
        let argument: Vec<u8> = (0..length).map(|index: usize| (index * 7 % 251) as u8).collect();
        assert!(ask(&client, &argument).unwrap() == argument, "{length}");
    }
    let statistics = server.statistics().tls.unwrap();
    assert_eq!((statistics.done, statistics.identified, statistics.waiting), (1, 0, 0));
    assert!(statistics.refused.is_empty(), "{statistics:?}");
    drop(client);
    server.stop().unwrap();
}

#[test]
fn many_simultaneous_handshakes_succeed() {
    let authority = Authority::new();
    let server = start(builder(authority.server(None)).cores(2));
    let tls = authority.client(None);
    let clients: Vec<_> = (0..100).map(|_| client(&server, Some(tls.clone()))).collect();
    for (number, client) in clients.iter().enumerate() {
        let argument = format!("call {number}");
        assert_eq!(ask(client, argument.as_bytes()).unwrap(), argument.as_bytes());
    }
    assert_eq!(server.statistics().tls.unwrap().done, 100);
    server.stop().unwrap();
}

#[test]
fn a_reconnecting_client_resumes_its_session() {
    let authority = Authority::new();
    let server = start(builder(authority.server(None)));
    let tls = authority.client(None);
    for _ in 0..3 {
        let client = client(&server, Some(tls.clone()));
        assert_eq!(ask(&client, b"hello").unwrap(), b"hello");
    }
    let statistics = server.statistics().tls.unwrap();
    assert_eq!((statistics.done, statistics.resumed), (3, 2));
    server.stop().unwrap();
}

#[test]
fn a_handler_sees_the_clients_identity() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let server = start(builder(authority.server(Some(&clients))));
    let names = vec![dns("client.example"), uri("spiffe://example/batch"), uri("spiffe://example/second")];
    let certificates = [
        clients.issue("both", names, Validity::Now),
        clients.issue("dns", vec![dns("client.example")], Validity::Now),
        clients.issue("bare", Vec::new(), Validity::Now),
    ];
    let identities = certificates.map(|identity| {
        let client = client(&server, Some(authority.client(Some(identity))));
        String::from_utf8(ask(&client, b"").unwrap()).unwrap()
    });
    assert_eq!(identities[..2], ["spiffe://example/batch", "dns:client.example"]);
    assert!(identities[2].starts_with("sha256:") && identities[2].len() == 7 + 64, "{}", identities[2]);
    let statistics = server.statistics().tls.unwrap();
    assert_eq!((statistics.done, statistics.identified, statistics.resumed), (3, 3, 0));
    server.stop().unwrap();
}

#[test]
fn an_identity_is_one_tenant_on_all_its_connections() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let server = start(builder(authority.server(Some(&clients))).watched(true));
    let source = server.source().unwrap();
    let identities = [
        clients.issue("one", vec![uri("spiffe://example/one")], Validity::Now),
        clients.issue("again", vec![uri("spiffe://example/one")], Validity::Now),
        clients.issue("other", vec![uri("spiffe://example/other")], Validity::Now),
    ];
    let tenants = identities.map(|identity| {
        let client = client(&server, Some(authority.client(Some(identity))));
        // The server keeps one in 64 admissions.
        (0..64).for_each(|_| _ = ask(&client, b"hello").unwrap());
        source.decisions(1)[0].tenant
    });
    let named = |name: &str| PeerIdentity::Uri(format!("spiffe://example/{name}")).tenant();
    assert_eq!(tenants, [named("one"), named("one"), named("other")]);
    assert_ne!(tenants[0], tenants[2]);
    server.stop().unwrap();
    // A table takes precedence.
    let table = TenantTable::new([("spiffe://example/one".into(), Tenant(7))], UnknownIdentities::Refused);
    let server = start(builder(authority.server(Some(&clients))).tenants(table).watched(true));
    let [one, other] = ["one", "other"].map(|name| {
        let identity = clients.issue(name, vec![uri(&format!("spiffe://example/{name}"))], Validity::Now);
        client(&server, Some(authority.client(Some(identity))))
    });
    (0..64).for_each(|_| _ = ask(&one, b"hello").unwrap());
    assert_eq!(server.source().unwrap().decisions(1)[0].tenant, Tenant(7));
    assert!(ask(&other, b"hello").is_err());
    assert!(server.statistics().tls.unwrap().refused["stranger"] > 0);
    server.stop().unwrap();
    // Without certificates all clients are the same tenant.
    let server = start(builder(authority.server(None)).watched(true));
    let client = client(&server, Some(authority.client(None)));
    (0..64).for_each(|_| _ = ask(&client, b"hello").unwrap());
    assert_eq!(server.source().unwrap().decisions(1)[0].tenant, Tenant::DEFAULT);
    server.stop().unwrap();
}

#[test]
fn an_async_handler_sees_the_clients_identity() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let identify =
        |request: OwnedRequest| async move { Ok(request.peer.map_or(vec![], |peer| peer.to_string().into())) };
    let server = builder(authority.server(Some(&clients))).start_async("127.0.0.1:0", identify).unwrap();
    let identity = clients.issue("batch", vec![uri("spiffe://example/batch")], Validity::Now);
    let client = client(&server, Some(authority.client(Some(identity))));
    assert_eq!(ask(&client, b"").unwrap(), b"spiffe://example/batch");
    server.stop().unwrap();
}

#[test]
fn a_reload_accepts_new_files_and_ignores_broken_ones() {
    let (old, new) = (Authority::new(), Authority::new());
    let (cert, key) = old.localhost();
    let tls = ServerTls::open(ServerFiles { cert: cert.clone(), key: key.clone(), client_ca: None }).unwrap();
    let server = start(builder(tls.clone()));
    let early = client(&server, Some(old.client(None)));
    assert_eq!(ask(&early, b"before").unwrap(), b"before");

    fs::write(&cert, "no certificate").unwrap();
    until("the broken file is reported", || {
        tls.check_files();
        tls.last_error().is_some()
    });
    assert!(server.statistics().tls.unwrap().trouble.unwrap().contains("contains no certificate in PEM"));
    assert!(tls.take_messages().pop().unwrap().contains("the old certificates stay"));
    let meanwhile = client(&server, Some(old.client(None)));
    assert_eq!(ask(&meanwhile, b"meanwhile").unwrap(), b"meanwhile");

    let (expired_cert, expired_key) = old.issue("expired", vec![dns("localhost")], Validity::LongAgo);
    fs::copy(&expired_cert, &cert).unwrap();
    fs::copy(&expired_key, &key).unwrap();
    until("the expired certificate is reported", || {
        tls.check_files();
        tls.last_error().is_some_and(|error| error.contains("the certificate has expired"))
    });
    let meanwhile = client(&server, Some(old.client(None)));
    assert_eq!(ask(&meanwhile, b"not expired").unwrap(), b"not expired");

    let (other_cert, other_key) = new.localhost();
    fs::copy(other_cert, &cert).unwrap();
    fs::copy(other_key, &key).unwrap();
    until("the new files are read", || {
        tls.check_files();
        tls.reloads() == 1
    });
    let late = client(&server, Some(new.client(None)));
    assert_eq!(ask(&late, b"after").unwrap(), b"after");
    assert_eq!(ask(&early, b"still there").unwrap(), b"still there");
    let statistics = server.statistics().tls.unwrap();
    assert_eq!((statistics.renewed, statistics.trouble), (1, None));
    server.stop().unwrap();

    // At the start there is nothing better: it is used, with a warning.
    let expired = ServerFiles { cert: expired_cert, key: expired_key, client_ca: None };
    let tls = ServerTls::open(expired).unwrap();
    assert!(tls.take_messages().pop().unwrap().ends_with("expired.pem has expired"));
    assert!(tls.take_messages().is_empty());
}
