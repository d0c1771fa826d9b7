//! Hand-made frames for raw clients.

use leeward_core::units::Priority;
use leeward_wire::{
    Budget, Call, CreditId, Encoder, Frame, Method, PayloadLimit, Register, RequestId, Timestamp, Version,
};

/// A client's first frame.
pub fn register() -> Frame<'static> {
    Frame::Register(Register { timestamp: Timestamp(1), demand: 0, payload_max: PayloadLimit::DEFAULT })
}

/// A call of method 1, without credit and budget.
///
/// # Panics
/// If `request` is 0.
pub fn call(request: u64, payload: &[u8]) -> Frame<'_> {
    call_of(Method(1), request, payload)
}

/// A call without credit and budget.
///
/// # Panics
/// If `request` is 0.
pub fn call_of(method: Method, request: u64, payload: &[u8]) -> Frame<'_> {
    Frame::Call(Call {
        request: RequestId::new(request).expect("requests count from 1"),
        timestamp: Timestamp(7),
        credit: CreditId::NONE,
        method,
        demand: 0,
        budget: Budget::UNLIMITED,
        priority: Priority::HIGHEST,
        payload,
    })
}

/// Encodes a frame in the first version of the protocol.
pub fn encode(frame: &Frame<'_>) -> Vec<u8> {
    encode_version(Version::One, frame)
}

/// Encodes a frame in a version of the protocol.
///
/// # Panics
/// If the frame is longer than any server accepts.
pub fn encode_version(version: Version, frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let encoded = Encoder::new(PayloadLimit::MAX).with_version(version).append(frame, &mut bytes);
    encoded.expect("a frame that can be encoded");
    bytes
}
