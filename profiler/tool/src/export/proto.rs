//! Encoder for protocol buffers, as far as an export needs it.

/// A message under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Appends a field with a number.
    pub(super) fn number(mut self, field: u32, value: u64) -> Message {
        crate::format::varint::put_varint(&mut self.0, u64::from(field) << 3);
        crate::format::varint::put_varint(&mut self.0, value);
        self
    }

    /// Appends a field with a text.
    pub(super) fn text(self, field: u32, text: &str) -> Message {
        self.bytes(field, text.as_bytes())
    }

    /// Appends a field with a message.
    pub(super) fn message(self, field: u32, message: &Message) -> Message {
        self.bytes(field, &message.0)
    }

    fn bytes(mut self, field: u32, bytes: &[u8]) -> Message {
        crate::format::varint::put_varint(&mut self.0, u64::from(field) << 3 | 2);
        crate::format::varint::put_varint(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Returns the encoded bytes.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_specified() {
        // Examples from the encoding's documentation: 150 in field 1, "testing" in field 2, a
        // message in field 3.
        let inner = Message::default().number(1, 150);
        assert_eq!(inner.as_bytes(), [0x08, 0x96, 0x01]);
        let text = Message::default().text(2, "testing");
        assert_eq!(text.as_bytes(), b"\x12\x07testing");
        assert_eq!(Message::default().message(3, &inner).as_bytes(), [0x1A, 0x03, 0x08, 0x96, 0x01]);
    }
}
