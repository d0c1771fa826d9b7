//! The dashboard: one page, assembled from its parts. The page requests only the ports that it is
//! given. Does not contain numbers.

use crate::access;
use crate::request::Request;
use crate::response::Response;
use std::sync::OnceLock;

/// Text of the page.
fn page() -> &'static str {
    static PAGE: OnceLock<String> = OnceLock::new();
    PAGE.get_or_init(|| {
        let script =
            [include_str!("series.js"), include_str!("chart.js"), include_str!("view.js"), include_str!("main.js")];
        include_str!("page.html")
            .replace("/*STYLE*/", include_str!("style.css"))
            .replace("/*SCRIPT*/", &script.join("\n"))
    })
}

/// Response with the page. The page may request this port, and other ports of the same machine.
pub(crate) fn response(request: &Request) -> Response {
    let others = match access::valid_host(request) {
        Some(name) => {
            let hosts = [name, "127.0.0.1", "localhost"];
            hosts.iter().map(|host| format!(" http://{host}:* https://{host}:*")).collect()
        }
        None => String::new(),
    };
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; \
         connect-src 'self'{others}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    Response::new(200, "text/html; charset=utf-8", page())
        .with("content-security-policy", policy)
        .with("referrer-policy", "no-referrer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_no_external_resources() {
        let page = page();
        assert!(!page.contains("/*STYLE*/") && !page.contains("/*SCRIPT*/"));
        for outside in ["src=\"http", "href=\"http", "@import", "url(http"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn the_proxys_reasons_differ_in_colour() {
        let line = page().lines().find(|line| line.starts_with("const TONES")).unwrap();
        let tone = |reason: &str| line.split_once(&format!(" {reason}: ")).unwrap().1[..4].to_string();
        let mut tones = ["late", "deadline", "concurrency", "delay", "cancelled"].map(tone);
        tones.sort_unstable();
        assert!(tones.windows(2).all(|pair| pair[0] != pair[1]), "{tones:?}");
    }

    #[test]
    fn a_host_header_cannot_inject_a_security_policy() {
        let of = |host: &str| {
            let request = Request { host: host.into(), ..Request::default() };
            String::from_utf8(response(&request).bytes(false)).unwrap()
        };
        assert!(of("db-1:9464").contains("http://db-1:*"));
        assert!(!of("a; script-src *").contains("script-src *;"));
    }
}
