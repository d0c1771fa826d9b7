//! Chooses the text format from a scraper's `Accept` header. Does not contain the formats.

/// Text format of the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Prometheus's text format, 0.0.4.
    #[default]
    Prometheus,
    /// OpenMetrics, 1.0.0.
    OpenMetrics,
}

impl Format {
    /// Chooses the format for an `Accept` header; Prometheus's own if it names neither.
    pub fn from_accept(accept: &str) -> Self {
        let weight = |kind: &str| {
            let matching = accept.split(',').filter(|range| {
                let name = range.split(';').next().unwrap_or_default().trim();
                name.eq_ignore_ascii_case(kind)
            });
            matching.map(quality).fold(0.0, f64::max)
        };
        let open = weight("application/openmetrics-text");
        if open > 0.0 && open >= weight("text/plain") { Format::OpenMetrics } else { Format::Prometheus }
    }

    /// `Content-Type` of the response.
    pub const fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Weight of a media range (RFC 9110, 12.4.2): 1 without a `q`, 0 if it is malformed.
fn quality(range: &str) -> f64 {
    let weight = range.split(';').skip(1).filter_map(|parameter| parameter.trim().split_once('='));
    let weight = weight.filter(|(name, _)| name.trim().eq_ignore_ascii_case("q")).map(|(_, value)| value.trim()).next();
    weight.map_or(1.0, |value| value.parse::<f64>().ok().filter(|value| (0.0..=1.0).contains(value)).unwrap_or(0.0))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn scrapers_get_what_they_prefer() {
        for (accept, format) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("text/html,*/*;q=0.8", Format::Prometheus),
            ("application/openmetrics-text", Format::OpenMetrics),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1",
                Format::OpenMetrics,
            ),
            ("text/plain;q=0.9, application/openmetrics-text;q=0.2", Format::Prometheus),
            ("Application/OpenMetrics-Text; q=0", Format::Prometheus),
            ("application/openmetrics-text;q=NaN", Format::Prometheus),
        ] {
            assert_eq!(Format::from_accept(accept), format, "{accept}");
        }
    }

    proptest! {
        #[test]
        fn any_accept_header_gives_a_format(accept in ".{0,200}") {
            let _ = Format::from_accept(&accept);
        }
    }
}
