//! Flags of a load on HTTP services, and their values as a configuration.

use anyhow::{Context, anyhow};
use leeward_core::budget::Budget;
use leeward_core::units::Nanos;
use leeward_http_load::bytes::Bytes;
use leeward_http_load::http::uri::PathAndQuery;
use leeward_http_load::http::{HeaderMap, HeaderName, HeaderValue, Method};
use leeward_http_load::{HttpLoadConfig, HttpVersion, Share, Target};
use leeward_rpc::tls::{ClientFiles, ClientTls};

use crate::failure::{Failure, file_failure};
use crate::tls::TlsArgs;

/// Files with the authorities that systems trust, by distribution.
const SYSTEM_AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Flags of a load on HTTP services.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "HTTP and gRPC", group = clap::ArgGroup::new("http_target").args(["http", "grpc"]))]
pub(crate) struct HttpArgs {
    /// Send HTTP requests to this URL instead of Leeward's protocol. May be repeated; a number
    /// behind a URL is its weight: --http 'http://a/x 3' --http http://a/y
    #[arg(long, value_name = "URL", conflicts_with_all = OTHER_PROTOCOL)]
    pub(crate) http: Vec<String>,
    /// Make unary gRPC calls of a method, such as package.Service/Method; --body is the encoded
    /// message
    #[arg(long, num_args = 2, value_names = ["URL", "METHOD"], conflicts_with_all = OTHER_PROTOCOL)]
    pub(crate) grpc: Vec<String>,
    /// Use HTTP/2; on http:// the server must expect it (prior knowledge)
    #[arg(long, requires = "http_target")]
    pub(crate) http2: bool,
    /// Method of the requests; POST by default if there is a --body, else GET
    #[arg(long, value_name = "METHOD", requires = "http_target")]
    pub(crate) method: Option<String>,
    /// Header of each request; may be repeated
    #[arg(long, value_name = "NAME: VALUE", requires = "http_target")]
    pub(crate) header: Vec<String>,
    /// Content of each request: text, or the content of @FILE. With --grpc hexadecimal digits, or
    /// @FILE
    #[arg(long, value_name = "TEXT|@FILE", requires = "http_target", allow_hyphen_values = true)]
    pub(crate) body: Option<String>,
    /// A class with its share of the requests, such as critical=1; may be repeated. Leeward's layer
    /// knows critical, normal, batch, sheddable and 0 to 7
    #[arg(long, value_name = "NAME=SHARE", requires = "http_target")]
    pub(crate) class: Vec<String>,
    /// Send the class's name, whatever it is, in this header, instead of `p` in `leeward`
    #[arg(long, value_name = "NAME", requires = "class")]
    pub(crate) class_header: Option<String>,
    /// A tenant with its share of the requests, such as t1=9; may be repeated
    #[arg(long, value_name = "NAME=SHARE", requires = "http_target")]
    pub(crate) tenant: Vec<String>,
    /// Header with the tenant's name
    #[arg(long, value_name = "NAME", requires = "tenant", default_value = "x-tenant")]
    pub(crate) tenant_header: String,
}

/// Flags, by their identifiers, that only Leeward's protocol has.
const OTHER_PROTOCOL: [&str; 7] = ["address", "udp", "service", "payload", "name", "overrides", "rtt"];

impl HttpArgs {
    /// Whether the load is for an HTTP service.
    pub(crate) fn is_given(&self) -> bool {
        !self.http.is_empty() || !self.grpc.is_empty()
    }

    /// The configuration that these flags and TLS describe; the others have their defaults.
    pub(super) fn config(&self, tls: &TlsArgs, slo: Nanos, budget: Budget) -> Result<HttpLoadConfig, Failure> {
        let is_grpc = !self.grpc.is_empty();
        let targets = if is_grpc { vec![grpc_target(&self.grpc)?] } else { self.targets()? };
        let version = if is_grpc || self.http2 { HttpVersion::Http2 } else { HttpVersion::Http1 };
        let body = self.body.as_deref().map(|text| read_body(text, is_grpc)).transpose()?.unwrap_or_default();
        let method = match &self.method {
            Some(_) if is_grpc => return Err(Failure::Input(anyhow!("--method: a gRPC call is always a POST"))),
            Some(name) => method(name)?,
            None if is_grpc || self.body.is_some() => Method::POST,
            None => Method::GET,
        };
        let tls = open_tls(tls, version, targets.iter().any(|target| target.endpoint.is_encrypted))?;
        let class_header = self.class_header.as_deref().map(|name| header_name("--class-header", name)).transpose()?;
        Ok(HttpLoadConfig {
            version,
            is_grpc,
            method,
            headers: headers(&self.header)?,
            body,
            classes: shares("--class", &self.class)?,
            class_header,
            tenants: shares("--tenant", &self.tenant)?,
            tenant_header: header_name("--tenant-header", &self.tenant_header)?,
            budget: budget.remaining(),
            tls,
            ..HttpLoadConfig::new(targets, slo)
        })
    }

    fn targets(&self) -> Result<Vec<Target>, Failure> {
        let parse = |text: &String| Target::parse(text).map_err(|error| Failure::Input(anyhow!("--http: {error}")));
        self.http.iter().map(parse).collect()
    }
}

/// Target of a gRPC call: the path is the method.
fn grpc_target(words: &[String]) -> Result<Target, Failure> {
    let [url, method] = words else {
        return Err(Failure::Input(anyhow!("--grpc: one URL and one method, such as http://127.0.0.1:50051 a.B/C")));
    };
    let wrong = |problem: String| Failure::Input(anyhow!("--grpc: {problem}"));
    let target = Target::parse(url).map_err(|error| wrong(error.to_string()))?;
    if target.path.as_str() != "/" {
        return Err(wrong(format!("`{url}`: the URL of a gRPC server has no path; the method follows it")));
    }
    let name = method.trim_start_matches('/');
    let is_method = name.split_once('/').is_some_and(|(service, call)| !service.is_empty() && !call.is_empty());
    let path = PathAndQuery::try_from(format!("/{name}")).ok().filter(|path| is_method && path.query().is_none());
    let path = path.ok_or_else(|| wrong(format!("`{method}` is no method such as package.Service/Method")))?;
    Ok(Target { path, ..target })
}

fn method(name: &str) -> Result<Method, Failure> {
    match Method::from_bytes(name.as_bytes()) {
        Ok(Method::CONNECT) => Err(Failure::Input(anyhow!("--method CONNECT: tunnels are not supported"))),
        Ok(method) => Ok(method),
        Err(_) => Err(Failure::Input(anyhow!("--method: `{name}` is no method of HTTP"))),
    }
}

fn header_name(flag: &str, name: &str) -> Result<HeaderName, Failure> {
    name.parse().map_err(|_| Failure::Input(anyhow!("{flag}: `{name}` is no name of a header")))
}

fn headers(lines: &[String]) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for line in lines {
        let wrong = || Failure::Input(anyhow!("--header: `{line}` is no header such as 'accept: text/plain'"));
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
        headers.append(header_name("--header", name.trim())?, value);
    }
    Ok(headers)
}

/// Names with their shares, such as `critical=1`.
fn shares(flag: &str, texts: &[String]) -> Result<Vec<Share>, Failure> {
    let mut shares: Vec<Share> = Vec::new();
    for text in texts {
        let wrong = |problem: &str| Failure::Input(anyhow!("{flag} {text}: {problem}"));
        let (name, share) = text.split_once('=').ok_or_else(|| wrong("expected name=share, such as critical=1"))?;
        let weight =
            share.trim_end_matches('%').parse().ok().filter(|weight: &f64| *weight > 0.0 && weight.is_finite());
        let weight = weight.ok_or_else(|| wrong("a share is a number above 0"))?;
        if name.is_empty() || shares.iter().any(|known| known.name == name) {
            return Err(wrong("each needs a name of its own"));
        }
        shares.push(Share { name: name.into(), weight });
    }
    if shares.len() > 64 { Err(Failure::Input(anyhow!("{flag}: at most 64"))) } else { Ok(shares) }
}

/// Reads the content of requests: of a file, or the text itself.
fn read_body(text: &str, is_grpc: bool) -> Result<Bytes, Failure> {
    if let Some(path) = text.strip_prefix('@') {
        let content = std::fs::read(path).with_context(|| format!("--body: {path}")).map_err(file_failure)?;
        return Ok(content.into());
    }
    if !is_grpc {
        return Ok(Bytes::copy_from_slice(text.as_bytes()));
    }
    let digits: Option<Vec<u8>> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 => Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()),
        _ => Err(Failure::Input(anyhow!("--body: with --grpc pairs of hexadecimal digits, or @FILE"))),
    }
}

/// Opens TLS for `https` targets. Without --tls-ca the system's authorities are trusted.
fn open_tls(args: &TlsArgs, version: HttpVersion, is_encrypted: bool) -> Result<Option<ClientTls>, Failure> {
    let protocol: &'static [u8] = if version == HttpVersion::Http2 { b"h2" } else { b"http/1.1" };
    if !is_encrypted {
        let given = args.tls_ca.is_some();
        return if given { Err(Failure::Input(anyhow!("--tls-ca: no URL begins with https"))) } else { Ok(None) };
    }
    if args.tls_ca.is_some() {
        return args.open_for(protocol);
    }
    let found = SYSTEM_AUTHORITIES.iter().find(|path| std::path::Path::new(path).is_file());
    let ca = found
        .ok_or_else(|| Failure::Input(anyhow!("https: no authorities of the system found; give --tls-ca FILE")))?;
    let files = ClientFiles { ca: ca.into(), identity: None, name: None };
    ClientTls::open_with_alpn(files, protocol).map(Some).map_err(|error| Failure::Input(anyhow!("TLS: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grpc(method: &str) -> Result<Target, Failure> {
        grpc_target(&["http://127.0.0.1:50051".into(), method.into()])
    }

    #[test]
    fn a_grpc_method_becomes_the_path() {
        for method in ["a.B/C", "/a.B/C"] {
            assert_eq!(grpc(method).unwrap().path.as_str(), "/a.B/C");
        }
        for method in ["", "a.B", "/C", "a.B/", "a B/C", "a.B/C?d"] {
            assert!(grpc(method).unwrap_err().to_string().contains("is no method"), "{method}");
        }
        assert!(grpc_target(&["http://a/x".into(), "a.B/C".into()]).is_err());
    }

    #[test]
    fn a_grpc_message_is_written_in_hexadecimal_digits() {
        assert_eq!(&read_body("0a 03 666F6f", true).unwrap()[..], b"\x0a\x03foo");
        assert_eq!(&read_body("0a", false).unwrap()[..], b"0a");
        assert!(read_body("0", true).is_err() && read_body("xy", true).is_err());
        assert!(matches!(read_body("@/nowhere/file", false), Err(Failure::Input(_))));
    }

    #[test]
    fn shares_and_headers_are_parsed() {
        let parsed = shares("--class", &["a=1".into(), "b=30%".into()]).unwrap();
        assert_eq!((parsed[0].weight, parsed[1].weight), (1.0, 30.0));
        for texts in [vec!["a"], vec!["a=0"], vec!["a=x"], vec!["=1"], vec!["a=1", "a=2"]] {
            let texts: Vec<String> = texts.into_iter().map(String::from).collect();
            assert!(shares("--class", &texts).is_err(), "{texts:?}");
        }
        assert_eq!(headers(&["Accept:  text/plain".into()]).unwrap()["accept"], "text/plain");
        for line in ["accept", ": x", "a b: c", "a: b\nc"] {
            assert!(headers(&[line.into()]).is_err(), "{line}");
        }
    }
}
