//! Base64 (RFC 4648 §4), for WebSocket keys and gRPC-Web as text. Does not contain padding on the
//! way back.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes, with padding.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let group = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let value = (group >> (18 - 6 * digit)) & 63;
            text.push(if digit > three.len() { '=' } else { char::from(DIGITS[value as usize]) });
        }
    }
    text
}

/// Value of a digit, 0 to 63; `None`: it is none.
pub(super) fn value(digit: u8) -> Option<u64> {
    DIGITS.iter().position(|known| *known == digit).map(|value| value as u64)
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn the_examples_of_the_standard_are_met() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")]
        {
            assert_eq!(encode(bytes.as_bytes()), text);
        }
        assert_eq!(encode(&[0xff, 0xfe, 0xfb]), "//77");
    }
}
