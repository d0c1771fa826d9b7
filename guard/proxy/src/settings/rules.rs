//! Rules that give a request its class, tenant and route. Does not contain headers that a trusted
//! peer sets about a request.

use super::PlaceEnd;
use http::HeaderMap;
use http::header::HeaderName;
use http::request::Parts;
use ipnet::IpNet;
use leeward_core::units::Tenant;
use leeward_gate::{Class, RequestInfo};
use std::net::IpAddr;

/// A rule: all conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rule {
    /// Name of the requests in metrics.
    pub name: Option<String>,
    /// Path, or its beginning if it ends with `*`.
    pub path: Option<String>,
    /// Method.
    pub method: Option<String>,
    /// Header, and its value if one is given.
    pub header: Option<(HeaderName, Option<String>)>,
    /// Network of the client.
    pub client: Option<IpNet>,
    /// Class of the requests.
    pub class: Option<Class>,
    /// Tenant of the requests.
    pub tenant: Option<Tenant>,
    /// Event that frees their places, if it is not that of the settings.
    pub until: Option<PlaceEnd>,
    /// Number of the requests in counters, which the queue sets; 0: without a number of their own.
    pub(crate) route: u8,
}

/// Origin of a request's tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TenantSource {
    /// The client's address.
    Client,
    /// The value of this header.
    Header(HeaderName),
}

/// Event that frees the place of a request with this route, if its rule names one.
pub(crate) fn place_end(rules: &[Rule], route: u8) -> Option<PlaceEnd> {
    rules.iter().find(|rule| route > 0 && rule.route == route)?.until
}

/// The first rule that never applies, and the earlier one that takes all of its requests.
pub(super) fn unreachable(rules: &[Rule]) -> Option<(usize, usize)> {
    rules.iter().enumerate().find_map(|(at, rule)| {
        let before = rules[..at].iter().position(|before| before.covers(rule))?;
        Some((at, before))
    })
}

impl Rule {
    /// Whether it applies to every request of `other`.
    fn covers(&self, other: &Rule) -> bool {
        let has_path = |path: &String| other.path.as_ref().is_some_and(|other| covers_path(path, other));
        let has_header = |header: &(HeaderName, Option<String>)| {
            other
                .header
                .as_ref()
                .is_some_and(|(name, value)| *name == header.0 && (header.1.is_none() || header.1 == *value))
        };
        let has_client = |client: &IpNet| other.client.is_some_and(|other| client.contains(&other));
        self.path.as_ref().is_none_or(has_path)
            && (self.method.is_none() || self.method == other.method)
            && self.header.as_ref().is_none_or(has_header)
            && self.client.as_ref().is_none_or(has_client)
    }

    fn matches(&self, request: &Parts, client: IpAddr) -> bool {
        self.path.as_ref().is_none_or(|path| matches_path(path, request.uri.path()))
            && self.method.as_ref().is_none_or(|method| request.method.as_str() == method)
            && self.client.is_none_or(|network| network.contains(&client))
            && self.header.as_ref().is_none_or(|(name, value)| has_header(&request.headers, name, value.as_deref()))
    }
}

/// Whether a path is `pattern`, or begins with it if it ends with `*`.
pub(crate) fn matches_path(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(begin) => path.starts_with(begin),
        None => path == pattern,
    }
}

/// Whether all paths of `other` are paths of `pattern`.
fn covers_path(pattern: &str, other: &str) -> bool {
    match (pattern.strip_suffix('*'), other.strip_suffix('*')) {
        (Some(begin), other_begin) => other_begin.unwrap_or(other).starts_with(begin),
        (None, Some(_)) => false,
        (None, None) => pattern == other,
    }
}

fn has_header(headers: &HeaderMap, name: &HeaderName, value: Option<&str>) -> bool {
    headers.get_all(name).iter().any(|found| value.is_none_or(|value| found.as_bytes() == value.as_bytes()))
}

/// Applies the first rule that matches.
pub(crate) fn apply(rules: &[Rule], request: &Parts, client: IpAddr, info: RequestInfo) -> RequestInfo {
    let Some(rule) = rules.iter().find(|rule| rule.matches(request, client)) else {
        return info;
    };
    let mut info = info.with_route(rule.route);
    if let Some(class) = rule.class {
        info = info.with_class(class);
    }
    if let Some(tenant) = rule.tenant {
        info = info.with_tenant(tenant);
    }
    info
}

/// The tenant by its source; tenants are numbered by a hash, and never 0.
pub(crate) fn tenant(source: &TenantSource, headers: &HeaderMap, client: IpAddr) -> Tenant {
    // Tenants are few, and a collision shares a turn.
    let hashed = |bytes: &[u8]| Tenant((leeward_tower::hash(bytes) as u32).max(1));
    match source {
        TenantSource::Client => match client {
            IpAddr::V4(address) => hashed(&address.octets()),
            // A subscriber has a whole /64.
            IpAddr::V6(address) => hashed(&address.octets()[..8]),
        },
        TenantSource::Header(name) => headers.get(name).map_or(Tenant::DEFAULT, |value| hashed(value.as_bytes())),
    }
}
