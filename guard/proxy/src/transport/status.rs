//! What an operator sees of transports: metrics of handshakes and certificates, messages about
//! changed files, reload. Does not contain connections.

use super::accept::Acceptor;
use super::counts::{Counts, Results};
use leeward_host::sync::{Mutex, lock};
use leeward_tls::{ClientTls, ServerTls};
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The certificates and handshakes of a proxy. Clones are the same.
#[derive(Clone, Debug)]
pub struct TransportStatus(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Certificates for clients and for backends.
    certificates: Mutex<(Option<ServerTls>, Option<ClientTls>)>,
    acceptor: Arc<Acceptor>,
    counts: Arc<Counts>,
}

impl TransportStatus {
    pub(crate) fn new(
        server: Option<ServerTls>,
        client: Option<ClientTls>,
        acceptor: Arc<Acceptor>,
        counts: Arc<Counts>,
    ) -> Self {
        TransportStatus(Arc::new(Inner { certificates: Mutex::new((server, client)), acceptor, counts }))
    }

    /// Uses other certificates from now on.
    pub(crate) fn replace(&self, server: Option<ServerTls>, client: Option<ClientTls>) {
        self.0.acceptor.set_certificates(server.clone());
        *lock(&self.0.certificates) = (server, client);
    }

    pub(crate) fn acceptor(&self) -> &Acceptor {
        &self.0.acceptor
    }

    fn certificates(&self) -> (Option<ServerTls>, Option<ClientTls>) {
        lock(&self.0.certificates).clone()
    }

    /// Messages for the operator since the last call.
    pub(crate) fn take_messages(&self) -> Vec<String> {
        let (server, client) = self.certificates();
        let of_server = server.as_ref().map(ServerTls::take_messages).unwrap_or_default();
        let of_client = client.as_ref().map(ClientTls::take_messages).unwrap_or_default();
        let mut messages: Vec<String> = of_server.into_iter().map(|message| format!("tls: {message}")).collect();
        messages.extend(of_client.into_iter().map(|message| format!("backend-tls: {message}")));
        messages
    }

    /// Certificates for clients, each with the time since 1970 of its expiry.
    fn expiries(&self) -> impl Iterator<Item = (String, Duration)> {
        let (server, _) = self.certificates();
        let of_server = server.as_ref().map(ServerTls::expiries).unwrap_or_default();
        of_server.into_iter().filter_map(|(path, expiry)| {
            let expiry = expiry?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
            Some((path.display().to_string(), expiry))
        })
    }

    /// Metrics, as Prometheus text; empty without TLS and PROXY protocol.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        let inner = &*self.0;
        if inner.acceptor.accepts_proxy_protocol() {
            let help = "Headers of the PROXY protocol, by result.";
            results(&mut text, "proxy_protocol_headers", help, &inner.counts.proxy_protocol);
        }
        let (server, client) = self.certificates();
        if let Some(server) = &server {
            results(&mut text, "tls_handshakes", "Handshakes with clients, by result.", &inner.counts.clients);
            let (name, help) = ("tls_handshakes_in_progress", "Handshakes with clients in progress.");
            family(&mut text, name, help, "gauge", &[(String::new(), inner.acceptor.handshakes() as u64)]);
            files(&mut text, "certificate", server.reloads(), server.last_error().is_some());
            let expiries: Vec<_> =
                self.expiries().map(|(path, expiry)| (label("certificate", &path), expiry.as_secs())).collect();
            let help = "Time since 1970 at which the first certificate of a chain expires.";
            family(&mut text, "certificate_expiry_timestamp_seconds", help, "gauge", &expiries);
        }
        if let Some(client) = &client {
            let help = "Handshakes with backends, by result.";
            results(&mut text, "backend_tls_handshakes", help, &inner.counts.backends);
            files(&mut text, "backend_certificate", client.reloads(), client.last_error().is_some());
        }
        text
    }
}

/// Metrics of files that are reloaded.
fn files(text: &mut String, of: &str, reloads: u64, has_failed: bool) {
    let (name, help) = (format!("{of}_reloads_total"), "Times that changed files were loaded.");
    family(text, &name, help, "counter", &[(String::new(), reloads)]);
    let (name, help) =
        (format!("{of}_reload_failed"), "1 if the newest files are unusable, so that old ones are used.");
    family(text, &name, help, "gauge", &[(String::new(), u64::from(has_failed))]);
}

/// A counter by result.
fn results(text: &mut String, of: &str, help: &str, counts: &Results) {
    let values: Vec<_> = counts.all().into_iter().map(|(result, count)| (label("result", result), count)).collect();
    family(text, &format!("{of}_total"), help, "counter", &values);
}

fn family(text: &mut String, name: &str, help: &str, kind: &str, values: &[(String, u64)]) {
    let name = format!("leeward_proxy_{name}");
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (label, value) in values {
        let _ = writeln!(text, "{name}{label} {value}");
    }
}

fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{{{name}=\"{value}\"}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        assert_eq!(label("a", "x\"\\\n"), "{a=\"x\\\"\\\\\\n\"}");
    }
}
