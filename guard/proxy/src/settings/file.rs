//! The configuration file: TOML, read strictly. An unknown key, a wrong kind or a value out of
//! range is an error that names the key. Does not contain defaults ([`super`]).
//!
//! ```toml
//! slo = "50ms"
//! listen = "0.0.0.0:8080"
//! to = ["127.0.0.1:3000"]
//! health = "/healthz"
//!
//! [[rule]]
//! path = "/checkout/*"
//! class = 0
//! ```

use super::access_log::{AccessLogSettings, LogFormat, LogTarget};
pub use super::error::SettingsError;
use super::error::wrong;
use super::rules::{Rule, TenantSource, unreachable};
use super::tls::{BackendTlsSection, TlsSection};
use super::{LimitChoice, PlaceEnd, Settings, Timeouts};
use crate::backend::address::BackendAddress;
use crate::transport::address::{UNIX, check_listener, socket_path};
use crate::transport::proxy_protocol::encode::Version as ProxyProtocolVersion;
use http::Method;
use http::header::HeaderName;
use ipnet::IpNet;
use leeward_core::units::{Tenant, parse_duration};
use leeward_gate::{Class, Mode};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// Keys of a file, and flags of the same names. A later value replaces an earlier one
/// ([`FileSettings::merge`]).
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FileSettings {
    /// Latency objective, such as `50ms`.
    pub slo: Option<String>,
    /// Address to listen on.
    pub listen: Option<String>,
    /// Backends.
    pub to: Option<Vec<String>>,
    /// Whether one limit holds for the sum of all backends.
    pub shared: Option<bool>,
    /// Limit: a name or a number.
    pub limit: Option<String>,
    /// Worker threads.
    pub threads: Option<usize>,
    /// Most open client connections.
    pub connections: Option<usize>,
    /// Trusted networks.
    pub trust: Option<Vec<String>>,
    /// `enforce`, `shadow`, or a percentage such as `10%`.
    pub mode: Option<String>,
    /// Path of the backends' health.
    pub health: Option<String>,
    /// Paths that never wait.
    pub exempt: Option<Vec<String>>,
    /// `first-byte` or `last-byte`.
    pub until: Option<String>,
    /// `client`, or `header NAME`.
    pub tenant_by: Option<String>,
    /// Admin port; the program opens it.
    pub admin: Option<String>,
    /// `off`, `json` or `combined`.
    pub access_log: Option<String>,
    /// `stdout` or a path.
    pub access_log_file: Option<String>,
    /// Bounds of the queue.
    #[serde(default)]
    pub queue: QueueSection,
    /// Time-outs.
    #[serde(default)]
    pub timeouts: TimeoutSection,
    /// Whether clients' connections begin with a header of the PROXY protocol.
    pub accept_proxy_protocol: Option<bool>,
    /// `v1` or `v2`: connections to backends begin with such a header.
    pub send_proxy_protocol: Option<String>,
    /// TLS to clients; without it, none.
    pub tls: Option<TlsSection>,
    /// TLS to backends.
    #[serde(default)]
    pub backend_tls: BackendTlsSection,
    /// Rules.
    #[serde(default, rename = "rule")]
    pub rules: Vec<RuleSection>,
}

/// Section `[queue]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct QueueSection {
    /// Most requests that wait.
    pub requests: Option<usize>,
    /// Most memory that they hold, in MiB.
    pub megabytes: Option<usize>,
}

/// Section `[timeouts]`: spans such as `30s`, or `off`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TimeoutSection {
    /// Connecting to a backend.
    pub connect: Option<String>,
    /// From the end of the request to the first byte of the answer.
    pub first_byte: Option<String>,
    /// Between two pieces of an answer.
    pub idle: Option<String>,
    /// From sending a request to the end of its answer.
    pub total: Option<String>,
    /// For a client's head, and between two requests.
    pub client: Option<String>,
    /// Between two pieces of a request's body, or two reads of an answer.
    pub client_idle: Option<String>,
    /// For requests in progress when the proxy stops.
    pub stop: Option<String>,
}

/// Section `[[rule]]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RuleSection {
    /// Name in metrics.
    pub name: Option<String>,
    /// Path, or its beginning and `*`.
    pub path: Option<String>,
    /// Method.
    pub method: Option<String>,
    /// `name` or `name: value`.
    pub header: Option<String>,
    /// Network of the client.
    pub client: Option<String>,
    /// Class, 0 to 7.
    pub class: Option<u8>,
    /// Tenant.
    pub tenant: Option<u32>,
    /// `first-byte` or `last-byte`.
    pub until: Option<String>,
}

impl FileSettings {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// [`SettingsError::Syntax`], with the line.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        Ok(toml::from_str(text)?)
    }

    /// The text of a file with these keys.
    ///
    /// # Errors
    /// A path is no UTF-8.
    pub fn to_text(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    /// Replaces what `over` states. Its rules come first.
    #[must_use]
    pub fn merge(self, over: FileSettings) -> Self {
        let rules = over.rules.into_iter().chain(self.rules).collect();
        FileSettings {
            slo: over.slo.or(self.slo),
            listen: over.listen.or(self.listen),
            to: over.to.or(self.to),
            shared: over.shared.or(self.shared),
            limit: over.limit.or(self.limit),
            threads: over.threads.or(self.threads),
            connections: over.connections.or(self.connections),
            trust: over.trust.or(self.trust),
            mode: over.mode.or(self.mode),
            health: over.health.or(self.health),
            exempt: over.exempt.or(self.exempt),
            until: over.until.or(self.until),
            tenant_by: over.tenant_by.or(self.tenant_by),
            admin: over.admin.or(self.admin),
            accept_proxy_protocol: over.accept_proxy_protocol.or(self.accept_proxy_protocol),
            send_proxy_protocol: over.send_proxy_protocol.or(self.send_proxy_protocol),
            access_log: over.access_log.or(self.access_log),
            access_log_file: over.access_log_file.or(self.access_log_file),
            queue: QueueSection {
                requests: over.queue.requests.or(self.queue.requests),
                megabytes: over.queue.megabytes.or(self.queue.megabytes),
            },
            timeouts: TimeoutSection {
                connect: over.timeouts.connect.or(self.timeouts.connect),
                first_byte: over.timeouts.first_byte.or(self.timeouts.first_byte),
                idle: over.timeouts.idle.or(self.timeouts.idle),
                total: over.timeouts.total.or(self.timeouts.total),
                client: over.timeouts.client.or(self.timeouts.client),
                client_idle: over.timeouts.client_idle.or(self.timeouts.client_idle),
                stop: over.timeouts.stop.or(self.timeouts.stop),
            },
            tls: match (self.tls, over.tls) {
                (Some(tls), Some(over)) => Some(tls.merge(over)),
                (tls, over) => over.or(tls),
            },
            backend_tls: self.backend_tls.merge(over.backend_tls),
            rules,
        }
    }

    /// Checks all values, and fills in the defaults.
    ///
    /// # Errors
    /// The first value that is missing or wrong.
    pub fn settings(&self) -> Result<Settings, SettingsError> {
        let slo = self
            .slo
            .as_deref()
            .ok_or(SettingsError::Missing { key: "slo", help: "the latency objective, such as `50ms`" })?;
        let slo = span("slo", slo)?;
        let listen = self
            .listen
            .as_deref()
            .ok_or(SettingsError::Missing { key: "listen", help: "an address, such as `:8080`" })?;
        match listen.strip_prefix(UNIX) {
            Some(path) => drop(socket_path(path).map_err(|error| wrong("listen", &error))?),
            None => check_listener(listen).map_err(|error| wrong("listen", &error))?,
        }
        if let Some(admin) = &self.admin {
            check_listener(admin).map_err(|error| wrong("admin", &error))?;
        }
        let to = self.to.as_deref().unwrap_or_default();
        if to.is_empty() {
            return Err(SettingsError::Missing { key: "to", help: "the backends, such as `127.0.0.1:3000`" });
        }
        let backends = to.iter().map(|address| address.parse::<BackendAddress>().map_err(|error| wrong("to", &error)));
        let backends = backends.collect::<Result<Vec<_>, _>>()?;
        if let Some(twice) = backends.iter().enumerate().find(|(at, address)| backends[..*at].contains(address)) {
            return Err(wrong("to", &format!("`{}` is there twice", twice.1)));
        }
        let mut settings = Settings::new(slo, listen, backends);
        settings.admin = self.admin.clone();
        settings.is_shared = self.shared.unwrap_or(false);
        if let Some(limit) = &self.limit {
            settings.limit = LimitChoice::parse(limit).map_err(|error| wrong("limit", &error))?;
        }
        if let Some(threads) = self.threads {
            settings.threads = in_range("threads", threads, 1, 128)?;
        }
        if let Some(connections) = self.connections {
            settings.connections = in_range("connections", connections, 1, 10_000_000)?;
        }
        if let Some(networks) = &self.trust {
            settings.trusted = networks.iter().map(|text| network("trust", text)).collect::<Result<_, _>>()?;
        }
        if let Some(mode) = &self.mode {
            settings.mode = parse_mode(mode)?;
        }
        settings.health = self.health.as_deref().map(|path| absolute_path("health", path)).transpose()?;
        if let Some(paths) = &self.exempt {
            settings.exempt = paths.iter().map(|path| path_pattern("exempt", path)).collect::<Result<_, _>>()?;
        }
        settings.until = self.until.as_deref().map(|until| place_end("until", until)).transpose()?.unwrap_or_default();
        settings.tenant_by = self.tenant_by.as_deref().map(parse_tenant_source).transpose()?;
        settings.access_log = self.access_log()?;
        if let Some(requests) = self.queue.requests {
            settings.queue_requests = in_range("queue.requests", requests, 1, 10_000_000)?;
        }
        if let Some(megabytes) = self.queue.megabytes {
            settings.queue_bytes = in_range("queue.megabytes", megabytes, 1, 1 << 20)? << 20;
        }
        settings.accepts_proxy_protocol = self.accept_proxy_protocol.unwrap_or(false);
        settings.sends_proxy_protocol = match self.send_proxy_protocol.as_deref() {
            None => None,
            Some("v1") => Some(ProxyProtocolVersion::V1),
            Some("v2") => Some(ProxyProtocolVersion::V2),
            Some(_) => return Err(wrong("send-proxy-protocol", &"must be `v1` or `v2`")),
        };
        settings.tls = self.tls.as_ref().map(TlsSection::settings).transpose()?;
        settings.backend_tls = self.backend_tls.settings()?;
        settings.timeouts = self.timeouts.over(settings.timeouts)?;
        settings.rules = self.rules.iter().enumerate().map(|(at, rule)| rule.rule(at)).collect::<Result<_, _>>()?;
        if let Some((at, before)) = unreachable(&settings.rules) {
            let reason = format!("never applies: rule {} comes first, and takes all of its requests", before + 1);
            return Err(wrong(&format!("rule {}", at + 1), &reason));
        }
        Ok(settings)
    }
}

impl FileSettings {
    fn access_log(&self) -> Result<AccessLogSettings, SettingsError> {
        let format = match self.access_log.as_deref() {
            None | Some("off") => None,
            Some("json") => Some(LogFormat::Json),
            Some("combined") => Some(LogFormat::Combined),
            Some(_) => return Err(wrong("access-log", &"must be `json`, `combined` or `off`")),
        };
        let target = match self.access_log_file.as_deref() {
            None | Some("stdout") => LogTarget::Stdout,
            Some(path) if path.starts_with('/') => LogTarget::File(path.into()),
            Some(_) => {
                return Err(wrong("access-log-file", &"must be `stdout` or a path that begins with `/`"));
            }
        };
        if self.access_log.is_none() && target != LogTarget::Stdout {
            return Err(wrong("access-log-file", &"stays empty without `access-log`: `json`, `combined`, or `off`"));
        }
        Ok(AccessLogSettings { format, target })
    }
}

impl TimeoutSection {
    fn over(&self, mut timeouts: Timeouts) -> Result<Timeouts, SettingsError> {
        let required = |key: &str, text: &Option<String>, into: &mut Duration| {
            if let Some(text) = text {
                *into = span(key, text)?;
            }
            Ok::<_, SettingsError>(())
        };
        required("timeouts.connect", &self.connect, &mut timeouts.connect)?;
        required("timeouts.client", &self.client, &mut timeouts.client)?;
        required("timeouts.client-idle", &self.client_idle, &mut timeouts.client_idle)?;
        required("timeouts.stop", &self.stop, &mut timeouts.stop)?;
        let optional = |key: &str, text: &Option<String>, into: &mut Option<Duration>| {
            if let Some(text) = text {
                let or_off = |error: SettingsError| wrong(key, &format!("{}, or `off`", error.reason()));
                *into = if text == "off" { None } else { Some(span(key, text).map_err(or_off)?) };
            }
            Ok::<_, SettingsError>(())
        };
        optional("timeouts.first-byte", &self.first_byte, &mut timeouts.first_byte)?;
        optional("timeouts.idle", &self.idle, &mut timeouts.idle)?;
        optional("timeouts.total", &self.total, &mut timeouts.total)?;
        Ok(timeouts)
    }
}

impl RuleSection {
    fn rule(&self, at: usize) -> Result<Rule, SettingsError> {
        let key = |name: &str| format!("rule {}: {name}", at + 1);
        if self.class.is_none() && self.tenant.is_none() && self.name.is_none() && self.until.is_none() {
            return Err(wrong(&key("class"), &"a rule needs a `class`, a `tenant`, an `until` or a `name`"));
        }
        if let Some(path) = &self.path {
            path_pattern(&key("path"), path)?;
        }
        if let Some(method) = &self.method {
            Method::from_bytes(method.as_bytes()).map_err(|_| wrong(&key("method"), &"is no method"))?;
            if method.bytes().any(|byte| byte.is_ascii_lowercase()) {
                return Err(wrong(&key("method"), &"must be in capitals, such as `GET`: the case counts"));
            }
        }
        let header = self.header.as_deref().map(|text| {
            let (name, value) = match text.split_once(':') {
                Some((name, value)) => (name, Some(value.trim().to_owned())),
                None => (text, None),
            };
            Ok::<_, SettingsError>((header_name(&key("header"), name)?, value))
        });
        let class = self.class.map(|class| match class {
            0..Class::COUNT => Ok(Class::new(class)),
            _ => Err(wrong(&key("class"), &"must be from 0 (rejected last) to 7 (rejected first)")),
        });
        Ok(Rule {
            name: self.name.clone(),
            path: self.path.clone(),
            method: self.method.clone(),
            header: header.transpose()?,
            client: self.client.as_deref().map(|text| network(&key("client"), text)).transpose()?,
            class: class.transpose()?,
            tenant: self.tenant.map(Tenant),
            until: self.until.as_deref().map(|until| place_end(&key("until"), until)).transpose()?,
            route: 0,
        })
    }
}

fn span(key: &str, text: &str) -> Result<Duration, SettingsError> {
    let span = parse_duration(text).map_err(|error| wrong(key, &error))?;
    let span = Duration::from_nanos(span.0);
    if (Duration::from_micros(1)..=Duration::from_secs(86_400)).contains(&span) {
        Ok(span)
    } else {
        Err(wrong(key, &"must be from 1us to 86400s"))
    }
}

fn in_range(key: &str, value: usize, least: usize, most: usize) -> Result<usize, SettingsError> {
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(wrong(key, &format!("must be from {least} to {most}")))
    }
}

fn network(key: &str, text: &str) -> Result<IpNet, SettingsError> {
    let alone = || text.parse::<IpAddr>().map(IpNet::from);
    let parsed = text.parse::<IpNet>().or_else(|_| alone());
    parsed.map_err(|_| wrong(key, &format!("`{text}` is no network, such as `10.0.0.0/8`")))
}

fn absolute_path(key: &str, path: &str) -> Result<String, SettingsError> {
    if !path.starts_with('/') {
        return Err(wrong(key, &"must be a path that begins with `/`"));
    }
    if path.contains('#') {
        return Err(wrong(key, &"must be a path without `#`, which clients do not send"));
    }
    match path.parse::<http::uri::PathAndQuery>() {
        Ok(_) => Ok(path.into()),
        Err(_) => Err(wrong(key, &"has a character that a path must encode, such as `%20` for a blank")),
    }
}

/// A path, or the beginning of paths and `*`.
fn path_pattern(key: &str, pattern: &str) -> Result<String, SettingsError> {
    if pattern.strip_suffix('*').unwrap_or(pattern).contains('*') {
        return Err(wrong(key, &"may have `*` at its end only, as in `/users/*`"));
    }
    if pattern.contains('?') {
        return Err(wrong(key, &"must be a path alone: what follows `?` is not compared"));
    }
    absolute_path(key, pattern)
}

fn header_name(key: &str, text: &str) -> Result<HeaderName, SettingsError> {
    text.trim().parse().map_err(|_| wrong(key, &"is no header name"))
}

fn place_end(key: &str, text: &str) -> Result<PlaceEnd, SettingsError> {
    match text {
        "last-byte" => Ok(PlaceEnd::LastByte),
        "first-byte" => Ok(PlaceEnd::FirstByte),
        _ => Err(wrong(key, &"must be `last-byte` or `first-byte`")),
    }
}

fn parse_mode(text: &str) -> Result<Mode, SettingsError> {
    let percent = || text.strip_suffix('%')?.trim().parse::<u8>().ok().filter(|percent| (1..=100).contains(percent));
    match text {
        "enforce" => Ok(Mode::Enforce),
        "shadow" => Ok(Mode::Shadow),
        // All is not a share: where each rejection is enforced, requests can wait.
        "100%" => Ok(Mode::Enforce),
        _ => percent().map(Mode::Share).ok_or_else(|| wrong("mode", &"must be `enforce`, `shadow` or `1%` to `100%`")),
    }
}

fn parse_tenant_source(text: &str) -> Result<TenantSource, SettingsError> {
    match text.split_once(' ') {
        None if text == "client" => Ok(TenantSource::Client),
        Some(("header", name)) => Ok(TenantSource::Header(header_name("tenant-by", name)?)),
        _ => Err(wrong("tenant-by", &"must be `client` or `header NAME`")),
    }
}
