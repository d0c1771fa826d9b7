//! Times between which a certificate is valid, read from its DER (RFC 5280 §4.1), and what an
//! operator reads of them. rustls checks the peer's times only, and does not hand them on.

use rustls::pki_types::CertificateDer;
use std::path::Path;
use std::time::{Duration, SystemTime};

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Time before the expiry of a certificate from which it is warned of.
const WARN_BEFORE: Duration = Duration::from_secs(14 * 86_400);

/// The times between which a certificate is valid, or all certificates of a chain are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from: SystemTime,
    pub(crate) until: SystemTime,
}

impl Validity {
    /// The validity of a chain; `None`: a certificate is malformed.
    pub(crate) fn of_chain(chain: &[CertificateDer<'_>]) -> Option<Validity> {
        let all: Option<Vec<Validity>> = chain.iter().map(validity).collect();
        all?.into_iter().reduce(|a, b| Validity { from: a.from.max(b.from), until: a.until.min(b.until) })
    }

    /// The reason for which the certificate is not valid at `now`.
    pub(crate) fn problem(&self, now: SystemTime) -> Option<&'static str> {
        match now {
            now if now < self.from => Some("is not valid yet"),
            now if now > self.until => Some("has expired"),
            _ => None,
        }
    }

    /// Warns of the certificate in `file` if it is not valid, or expires soon.
    pub(crate) fn warning(&self, file: &Path, now: SystemTime) -> Option<String> {
        let certificate = format!("the certificate in {}", file.display());
        if let Some(problem) = self.problem(now) {
            return Some(format!("{certificate} {problem}"));
        }
        let left = self.until.duration_since(now).ok().filter(|left| *left < WARN_BEFORE)?;
        let hours = left.as_secs() / 3_600;
        Some(format!("{certificate} expires in {} days and {} hours", hours / 24, hours % 24))
    }
}

fn validity(certificate: &CertificateDer<'_>) -> Option<Validity> {
    let mut whole: &[u8] = certificate.as_ref();
    let mut outer = expect(&mut whole, SEQUENCE)?;
    let mut fields = expect(&mut outer, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        element(&mut fields)?;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        element(&mut fields)?;
    }
    let mut times = expect(&mut fields, SEQUENCE)?;
    Some(Validity { from: read_time(&mut times).unwrap_or(SystemTime::UNIX_EPOCH), until: read_time(&mut times)? })
}

fn read_time(input: &mut &[u8]) -> Option<SystemTime> {
    let (tag, text) = element(input)?;
    let text = std::str::from_utf8(text).ok()?;
    match tag {
        UTC_TIME => {
            let year: u64 = text.get(..2)?.parse().ok()?;
            // Two digits are 1950 to 2049.
            time(if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
        }
        GENERALIZED_TIME => time(text.get(..4)?.parse().ok()?, text.get(4..)?),
        _ => None,
    }
}

/// The next element: its tag and content.
fn element<'a>(input: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (tag, rest) = input.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        ..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    *input = rest;
    Some((*tag, content))
}

fn expect<'a>(input: &mut &'a [u8], wanted: u8) -> Option<&'a [u8]> {
    element(input).filter(|(tag, _)| *tag == wanted).map(|(_, content)| content)
}

/// The time of a year and `MMDDHHMMSSZ`.
fn time(year: u64, rest: &str) -> Option<SystemTime> {
    let digits = rest.strip_suffix('Z').filter(|digits| digits.len() == 10 && digits.is_ascii())?;
    let field = |at: usize| digits.get(at..at + 2)?.parse::<u64>().ok();
    let (month, day) = (field(0)?, field(2)?);
    let (hour, minute, second) = (field(4)?, field(6)?, field(8)?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days since 1970 by a calendar whose years begin in March, so that leap days come last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    let seconds = ((days.checked_sub(719_468)? * 24 + hour) * 60 + minute) * 60 + second;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(year: u64, rest: &str) -> Option<u64> {
        time(year, rest).map(|time| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(seconds(1970, "0101000000Z"), Some(0));
        assert_eq!(seconds(2000, "0229123456Z"), Some(951_827_696));
        assert_eq!(seconds(2026, "1231235959Z"), Some(1_798_761_599));
        assert_eq!(seconds(9999, "1231235959Z"), Some(253_402_300_799));
        for wrong in ["", "Z", "0101000000", "1301000000Z", "0100000000Z", "01010000Z", "0101-10000Z", "01010000é0Z"] {
            assert_eq!(seconds(2026, wrong), None, "{wrong}");
        }
    }

    /// A certificate of little but its times.
    fn certificate(tag: u8, text: &[u8]) -> Vec<u8> {
        let wrap = |tag: u8, content: &[u8]| [&[tag, 0x82, 0, content.len() as u8], content].concat();
        let times = [wrap(UTC_TIME, b"200101000000Z"), wrap(tag, text)].concat();
        let fields = [
            wrap(VERSION, &[2, 1, 2]),
            wrap(2, &[1]),
            wrap(SEQUENCE, &[]),
            wrap(SEQUENCE, &[]),
            wrap(SEQUENCE, &times),
        ];
        wrap(SEQUENCE, &wrap(SEQUENCE, &fields.concat()))
    }

    fn of(bytes: &[u8]) -> Option<u64> {
        let found = validity(&CertificateDer::from(bytes))?;
        assert_eq!(found.from.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs(), 1_577_836_800);
        Some(found.until.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn the_second_time_of_a_certificate_is_its_expiry() {
        let short = certificate(UTC_TIME, b"261231235959Z");
        assert_eq!(of(&short), Some(1_798_761_599));
        assert_eq!(of(&certificate(GENERALIZED_TIME, b"99991231235959Z")), Some(253_402_300_799));
        assert_eq!(of(&certificate(4, b"261231235959Z")), None);
        // Cut anywhere, or with any byte changed: no panic.
        for at in 0..short.len() {
            assert_eq!(of(&short[..at]), None);
            for byte in 0..=255 {
                let mut changed = short.clone();
                changed[at] = byte;
                let _ = validity(&CertificateDer::from(&changed[..]));
            }
        }
    }

    #[test]
    fn certificates_are_warned_of_before_they_expire() {
        let day = Duration::from_secs(86_400);
        let now = SystemTime::UNIX_EPOCH + day * 10_000;
        let warning = |from, until| Validity { from, until }.warning(Path::new("a.pem"), now);
        assert_eq!(warning(now, now + day * 15), None);
        let soon = warning(now, now + day * 3 + Duration::from_secs(7_200));
        assert_eq!(soon, Some("the certificate in a.pem expires in 3 days and 2 hours".into()));
        assert!(warning(now, now - day).is_some_and(|text| text.ends_with("has expired")));
        assert!(warning(now + day, now + day * 90).is_some_and(|text| text.ends_with("is not valid yet")));
    }
}
