//! Builds requests from their kinds.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, TE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use leeward_core::units::Nanos;

use crate::config::Share;
use crate::config::{HttpLoadConfig, HttpLoadError, HttpVersion};
use crate::grpc;
use crate::mix::RequestKind;
use crate::target::Target;

/// Content of a request.
pub(crate) type RequestBody = Full<Bytes>;

/// Leeward's own header, as its layer reads it: `b` is the rest of the budget in microseconds, `p`
/// the priority from 1 to 128.
const LEEWARD: HeaderName = HeaderName::from_static("leeward");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Users of a class, each with a priority of its own.
const USERS: u8 = 16;

/// Number of a class of Leeward's layer, by its name or as a number from 0 to 7.
fn class_number(name: &str) -> Option<u8> {
    match name {
        "critical" => Some(0),
        "normal" => Some(3),
        "batch" => Some(5),
        "sheddable" => Some(7),
        _ => name.parse().ok().filter(|number| *number < 8),
    }
}

/// How requests carry their class.
enum ClassValues {
    /// No class.
    Absent,
    /// Numbers of the classes, for member `p` of the `leeward` header.
    Numbers(Vec<u8>),
    /// A header with the name.
    Named(HeaderName, Vec<HeaderValue>),
}

/// Builds the requests of a run.
pub(crate) struct RequestBuilder {
    method: Method,
    /// URI and fixed headers of each target.
    templates: Vec<(Uri, HeaderMap)>,
    body: Bytes,
    classes: ClassValues,
    tenants: Option<(HeaderName, Vec<HeaderValue>)>,
    is_grpc: bool,
}

impl RequestBuilder {
    /// Creates the builder of a run's requests.
    ///
    /// # Errors
    /// A class that Leeward's layer does not know, or a name that cannot be sent.
    pub(crate) fn new(config: &HttpLoadConfig) -> Result<Self, HttpLoadError> {
        let templates = config.targets.iter().map(|target| template(config, target)).collect::<Result<_, _>>()?;
        let classes = match &config.class_header {
            _ if config.classes.is_empty() => ClassValues::Absent,
            Some(header) => ClassValues::Named(header.clone(), values(&config.classes)?),
            None => {
                let numbers = config.classes.iter().map(|class| {
                    let unknown = || {
                        HttpLoadError::Config(format!(
                            "class `{}` is not one of critical, normal, batch, sheddable and 0 to 7; other names need a \
                             header of their own",
                            class.name
                        ))
                    };
                    class_number(&class.name).ok_or_else(unknown)
                });
                ClassValues::Numbers(numbers.collect::<Result<_, _>>()?)
            }
        };
        let tenants = match config.tenants.is_empty() {
            true => None,
            false => Some((config.tenant_header.clone(), values(&config.tenants)?)),
        };
        let body = if config.is_grpc { grpc::frame(&config.body) } else { config.body.clone() };
        Ok(RequestBuilder { method: config.method.clone(), templates, body, classes, tenants, is_grpc: config.is_grpc })
    }

    /// Builds a request. `rest` is the rest of its budget.
    pub(crate) fn build(&self, kind: RequestKind, rest: Option<Nanos>) -> Request<RequestBody> {
        let (uri, headers) = &self.templates[usize::from(kind.target)];
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri.clone();
        let mut headers = headers.clone();
        let mut priority = None;
        match &self.classes {
            ClassValues::Absent => {}
            ClassValues::Numbers(numbers) => {
                priority = Some(numbers[usize::from(kind.class)] * USERS + kind.user % USERS + 1);
            }
            ClassValues::Named(name, values) => {
                headers.insert(name.clone(), values[usize::from(kind.class)].clone());
            }
        }
        let mut budget = rest;
        if let Some(rest) = rest.filter(|_| self.is_grpc) {
            headers.insert(GRPC_TIMEOUT, grpc::timeout(rest));
            budget = None;
        }
        if let Some(value) = leeward_value(budget, priority) {
            headers.insert(LEEWARD, value);
        }
        if let Some((name, values)) = &self.tenants {
            headers.insert(name.clone(), values[usize::from(kind.tenant)].clone());
        }
        *request.headers_mut() = headers;
        request
    }
}

/// Value of the `leeward` header; `None` without members.
fn leeward_value(budget: Option<Nanos>, priority: Option<u8>) -> Option<HeaderValue> {
    let text = match (budget.map(|rest| rest.0 / 1_000), priority) {
        (None, None) => return None,
        (Some(us), None) => format!("b={us}"),
        (None, Some(level)) => format!("p={level}"),
        (Some(us), Some(level)) => format!("b={us}, p={level}"),
    };
    HeaderValue::from_str(&text).ok()
}

fn values(shares: &[Share]) -> Result<Vec<HeaderValue>, HttpLoadError> {
    let invalid = |name: &str| HttpLoadError::Config(format!("`{}` cannot be sent in a header", name.escape_debug()));
    shares.iter().map(|share| HeaderValue::from_str(&share.name).map_err(|_| invalid(&share.name))).collect()
}

/// URI and headers that all requests to `target` have.
fn template(config: &HttpLoadConfig, target: &Target) -> Result<(Uri, HeaderMap), HttpLoadError> {
    let mut headers = config.headers.clone();
    let authority = target.endpoint.authority();
    let invalid = |_| HttpLoadError::Config(format!("`{authority}` is no valid host"));
    let uri = match config.version {
        // Origin form (RFC 9112 §3.2.1).
        HttpVersion::Http1 => {
            if !headers.contains_key(HOST) {
                headers.insert(HOST, HeaderValue::from_str(&authority).map_err(|error| invalid(error.into()))?);
            }
            Uri::from(target.path.clone())
        }
        // The library makes the pseudo-headers of scheme, authority and path.
        HttpVersion::Http2 => {
            let scheme = if target.endpoint.is_encrypted { "https" } else { "http" };
            let host = headers.remove(HOST).and_then(|value| value.to_str().ok().map(String::from));
            let uri = Uri::builder().scheme(scheme).authority(host.unwrap_or_else(|| authority.clone()));
            uri.path_and_query(target.path.clone()).build().map_err(invalid)?
        }
    };
    if config.is_grpc {
        let mut set = |name, value| {
            if !headers.contains_key(&name) {
                headers.insert(name, HeaderValue::from_static(value));
            }
        };
        set(CONTENT_TYPE, "application/grpc");
        set(TE, "trailers");
    }
    Ok((uri, headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> HttpLoadConfig {
        HttpLoadConfig::new(vec![Target::parse("http://a:8080/x?y").unwrap()], Nanos::from_millis(1))
    }

    fn shares(names: &[&str]) -> Vec<Share> {
        names.iter().map(|name| Share { name: (*name).into(), weight: 1.0 }).collect()
    }

    #[test]
    fn class_budget_and_tenant_are_sent_as_the_layer_reads_them() {
        let config = HttpLoadConfig { classes: shares(&["critical", "6"]), tenants: shares(&["t1", "t2"]), ..config() };
        let builder = RequestBuilder::new(&config).unwrap();
        let kind = RequestKind { target: 0, class: 1, tenant: 1, user: 4 };
        let request = builder.build(kind, Some(Nanos::from_micros(1_500)));
        assert_eq!(request.headers()["leeward"], "b=1500, p=101");
        assert_eq!(request.headers()["x-tenant"], "t2");
        assert_eq!(request.headers()["host"], "a:8080");
        assert_eq!(request.uri().to_string(), "/x?y");
        let request = builder.build(RequestKind { class: 0, user: 0, ..kind }, None);
        assert_eq!(request.headers()["leeward"], "p=1");
    }

    #[test]
    fn a_header_of_its_own_takes_any_name_of_a_class() {
        let header = Some(HeaderName::from_static("x-importance"));
        let named = HttpLoadConfig { classes: shares(&["gold"]), class_header: header, ..config() };
        let request = RequestBuilder::new(&named).unwrap().build(RequestKind::default(), None);
        assert_eq!(request.headers()["x-importance"], "gold");
        assert!(!request.headers().contains_key("leeward"));
        let unknown = HttpLoadConfig { classes: shares(&["gold"]), ..config() };
        assert!(matches!(RequestBuilder::new(&unknown), Err(HttpLoadError::Config(_))));
    }

    #[test]
    fn a_grpc_call_has_its_headers_and_prefix() {
        let call = HttpLoadConfig {
            version: HttpVersion::Http2,
            is_grpc: true,
            method: Method::POST,
            body: Bytes::from_static(b"ab"),
            ..config()
        };
        let request = RequestBuilder::new(&call).unwrap().build(RequestKind::default(), Some(Nanos::from_millis(2)));
        let headers = request.headers();
        assert_eq!(
            (&headers["te"], &headers["content-type"]),
            (&"trailers".parse().unwrap(), &"application/grpc".parse().unwrap())
        );
        assert_eq!(headers["grpc-timeout"], "2000u");
        assert!(!headers.contains_key("host") && !headers.contains_key("leeward"));
        assert_eq!(request.uri().to_string(), "http://a:8080/x?y");
    }
}
