//! Frames as types: the content of each kind, and its mapping to a header. Every value can be
//! encoded, except one with a payload that is too long.

use leeward_core::server::Feedback;
use leeward_core::units::{CreditId, Credits, Priority};

use super::code::{ErrorCode, FailureCode, Regime, RejectCode};
use super::error::WireError;
use super::header::{Field, HEADER_LEN, Kind, RawHeader, Version};
use super::value::{Budget, MESSAGE_MAX, Message, Method, Nanos32, PayloadLimit, RequestId, Timestamp};

/// All frames of the protocol. Payloads are borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Client to server, first frame of a connection.
    Register(Register),
    /// Server to client: the session exists.
    Welcome(Welcome),
    /// Client to server: a request.
    Call(Call<'a>),
    /// Server to client: the request's result.
    Response(Response<'a>),
    /// Server to client: the request was rejected.
    Drop(Rejection<'a>),
    /// Server to client: the request was admitted and has no result.
    Failure(Failure<'a>),
    /// Server to client: a window without an answer to carry it.
    Credit(Credit),
    /// Client to server: a demand without a call to carry it.
    Demand(Demand),
    /// Client to server: no more calls will follow.
    Deregister,
    /// Either way: a request for a pong with the same timestamp.
    Ping(Ping),
    /// Either way: the answer to a ping.
    Pong(Pong),
    /// Server to client: the reason for closing the connection.
    Error(FatalError<'a>),
    /// Client to server: a call's answer is not needed any more.
    Cancel(Cancel),
}

/// Registration of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// The client's clock, echoed in the [`Welcome`].
    pub timestamp: Timestamp,
    /// Requests that wait at the client.
    pub demand: u32,
    /// The longest response that the client accepts.
    pub payload_max: PayloadLimit,
}

/// Confirmation of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Echo of the client's clock.
    pub timestamp: Timestamp,
    /// The first window and threshold, and the grant's credit id.
    pub feedback: Feedback,
    /// The longest call that the server accepts.
    pub payload_max: PayloadLimit,
    /// Meaning of windows in this session.
    pub regime: Regime,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// Identifier until the answer; unique among the unanswered calls of its connection.
    pub request: RequestId,
    /// The client's clock, echoed in the answer.
    pub timestamp: Timestamp,
    /// The newest grant that the client knows.
    pub credit: CreditId,
    /// The method to call.
    pub method: Method,
    /// Requests that wait behind this one at the client.
    pub demand: u32,
    /// Queueing delay that the request may still spend.
    pub budget: Budget,
    /// Importance of the request.
    pub priority: Priority,
    /// Argument of the method.
    pub payload: &'a [u8],
}

/// Fields of every answer: response, rejection or failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The call that it answers.
    pub request: RequestId,
    /// Echo of the client's clock.
    pub timestamp: Timestamp,
    /// The window, the grant's credit id, the threshold and the algorithm's own field.
    pub feedback: Feedback,
    /// Time that the server had the request, from its packet's arrival to this answer's departure.
    /// The network takes the rest of the round trip.
    pub sojourn: Nanos32,
}

/// A result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// Fields of every answer.
    pub answer: Answer,
    /// The result.
    pub payload: &'a [u8],
}

/// A rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection<'a> {
    /// Fields of every answer.
    pub answer: Answer,
    /// Reason.
    pub reason: RejectCode,
    /// Details for people: the lock's name for [`RejectCode::Lock`]; mostly empty.
    pub message: Message<'a>,
    /// A hint not to send for this time; zero is no hint.
    pub retry_after: Nanos32,
}

/// An admitted request without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure<'a> {
    /// Fields of every answer.
    pub answer: Answer,
    /// Reason.
    pub code: FailureCode,
    /// Reason, for people.
    pub message: Message<'a>,
}

/// A window without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The window, the grant's credit id, the threshold and the algorithm's own field.
    pub feedback: Feedback,
}

/// A demand without a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Requests that wait at the client.
    pub demand: u32,
}

/// A request for a [`Pong`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// The sender's clock.
    pub timestamp: Timestamp,
}

/// The answer to a [`Ping`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pong {
    /// Echo of the ping's clock.
    pub timestamp: Timestamp,
}

/// The server's final frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FatalError<'a> {
    /// Reason for closing the connection.
    pub code: ErrorCode,
    /// Reason, for people.
    pub message: Message<'a>,
}

/// Cancellation of a call. The server answers the call all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// The call.
    pub request: RequestId,
}

impl<'a> Frame<'a> {
    /// Kind of the frame.
    #[inline]
    pub const fn kind(&self) -> Kind {
        match self {
            Frame::Register(_) => Kind::Register,
            Frame::Welcome(_) => Kind::Welcome,
            Frame::Call(_) => Kind::Call,
            Frame::Response(_) => Kind::Response,
            Frame::Drop(_) => Kind::Drop,
            Frame::Failure(_) => Kind::Failure,
            Frame::Credit(_) => Kind::Credit,
            Frame::Demand(_) => Kind::Demand,
            Frame::Deregister => Kind::Deregister,
            Frame::Ping(_) => Kind::Ping,
            Frame::Pong(_) => Kind::Pong,
            Frame::Error(_) => Kind::Error,
            Frame::Cancel(_) => Kind::Cancel,
        }
    }

    /// The first version that has this frame with this content.
    #[inline]
    pub const fn min_version(&self) -> Version {
        match self {
            Frame::Drop(Rejection { reason: RejectCode::Cancelled, .. }) => Version::Two,
            _ => self.kind().min_version(),
        }
    }

    /// The bytes that follow the header: the argument, the result or the message; empty for all
    /// other kinds.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        match self {
            Frame::Call(call) => call.payload,
            Frame::Response(response) => response.payload,
            Frame::Drop(dropped) => dropped.message.as_str().as_bytes(),
            Frame::Failure(failure) => failure.message.as_str().as_bytes(),
            Frame::Error(fatal) => fatal.message.as_str().as_bytes(),
            _ => &[],
        }
    }

    /// Length on the wire in bytes, header included.
    #[inline]
    pub fn encoded_len(&self) -> usize {
        HEADER_LEN + self.payload().len()
    }

    /// The frame's header, with `payload_len` bytes to follow.
    #[inline]
    pub(super) fn raw_header(&self, version: Version, payload_len: u32) -> RawHeader {
        let words = RawHeader::new(version, self.kind(), payload_len);
        match self {
            Frame::Register(register) => words
                .with(Field::Timestamp, register.timestamp.0)
                .with(Field::PayloadMax, register.payload_max.bytes().into())
                .with(Field::Demand, register.demand.into()),
            Frame::Welcome(welcome) => with_feedback(words, &welcome.feedback)
                .with(Field::Timestamp, welcome.timestamp.0)
                .with(Field::PayloadMax, welcome.payload_max.bytes().into())
                .with(Field::Code, welcome.regime.number().into()),
            Frame::Call(call) => words
                .with(Field::RequestId, call.request.value())
                .with(Field::Timestamp, call.timestamp.0)
                .with(Field::CreditId, call.credit.0)
                .with(Field::Method, call.method.0.into())
                .with(Field::Demand, call.demand.into())
                .with(Field::Budget, call.budget.wire().into())
                .with(Field::Priority, call.priority.level().into()),
            Frame::Response(response) => with_answer(words, &response.answer),
            Frame::Drop(dropped) => with_answer(words, &dropped.answer)
                .with(Field::RetryAfter, dropped.retry_after.0.into())
                .with(Field::Code, dropped.reason.number().into()),
            Frame::Failure(failure) => {
                with_answer(words, &failure.answer).with(Field::Code, failure.code.number().into())
            }
            Frame::Credit(credit) => with_feedback(words, &credit.feedback),
            Frame::Demand(demand) => words.with(Field::Demand, demand.demand.into()),
            Frame::Deregister => words,
            Frame::Ping(Ping { timestamp }) | Frame::Pong(Pong { timestamp }) => {
                words.with(Field::Timestamp, timestamp.0)
            }
            Frame::Error(fatal) => words.with(Field::Code, fatal.code.number().into()),
            Frame::Cancel(Cancel { request }) => words.with(Field::RequestId, request.value()),
        }
    }

    /// Reads the frame of `kind` from a header and its payload. With an empty payload, only the
    /// header is checked.
    #[inline]
    pub(super) fn read(kind: Kind, words: &RawHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        if let Some(field) = words.unexpected_field(kind) {
            return Err(WireError::NotZero { kind, field });
        }
        let reader = FieldReader { kind, header: words };
        Ok(match kind {
            Kind::Register => Frame::Register(Register {
                timestamp: reader.timestamp(),
                payload_max: reader.payload_max()?,
                demand: words.value_u32(Field::Demand),
            }),
            Kind::Welcome => Frame::Welcome(Welcome {
                timestamp: reader.timestamp(),
                payload_max: reader.payload_max()?,
                feedback: reader.feedback()?,
                regime: reader.code(Regime::from_number)?,
            }),
            Kind::Call => Frame::Call(Call {
                request: reader.request()?,
                timestamp: reader.timestamp(),
                credit: reader.credit(),
                method: Method(words.value_u32(Field::Method)),
                demand: words.value_u32(Field::Demand),
                budget: Budget::from_wire(words.value_u32(Field::Budget)),
                priority: reader.priority(Field::Priority)?,
                payload,
            }),
            Kind::Response => Frame::Response(Response { answer: reader.answer()?, payload }),
            Kind::Drop => Frame::Drop(Rejection {
                answer: reader.answer()?,
                retry_after: Nanos32(words.value_u32(Field::RetryAfter)),
                reason: reader.reason()?,
                message: reader.message(payload)?,
            }),
            Kind::Failure => Frame::Failure(Failure {
                answer: reader.answer()?,
                code: reader.code(FailureCode::from_number)?,
                message: reader.message(payload)?,
            }),
            Kind::Credit => Frame::Credit(Credit { feedback: reader.feedback()? }),
            Kind::Demand => Frame::Demand(Demand { demand: words.value_u32(Field::Demand) }),
            Kind::Deregister => Frame::Deregister,
            Kind::Ping => Frame::Ping(Ping { timestamp: reader.timestamp() }),
            Kind::Pong => Frame::Pong(Pong { timestamp: reader.timestamp() }),
            Kind::Error => Frame::Error(FatalError {
                code: reader.code(ErrorCode::from_number)?,
                message: reader.message(payload)?,
            }),
            Kind::Cancel => Frame::Cancel(Cancel { request: reader.request()? }),
        })
    }
}

/// The longest payload of a `kind` frame, in bytes, if the receiver accepts `limit` in calls and
/// responses.
#[inline]
pub(super) const fn payload_max(kind: Kind, limit: PayloadLimit) -> u32 {
    match kind {
        Kind::Call | Kind::Response => limit.bytes(),
        Kind::Drop | Kind::Failure | Kind::Error => MESSAGE_MAX as u32,
        _ => 0,
    }
}

#[inline]
fn with_feedback(words: RawHeader, feedback: &Feedback) -> RawHeader {
    words
        .with(Field::CreditId, feedback.credit.0)
        .with(Field::Custom, feedback.custom)
        .with(Field::Window, feedback.window.0.into())
        .with(Field::Threshold, feedback.threshold.level().into())
}

#[inline]
fn with_answer(words: RawHeader, answer: &Answer) -> RawHeader {
    with_feedback(words, &answer.feedback)
        .with(Field::RequestId, answer.request.value())
        .with(Field::Timestamp, answer.timestamp.0)
        .with(Field::Sojourn, answer.sojourn.0.into())
}

/// Reads the fields that several kinds share. If several fields are invalid, the error names the
/// first in the header.
struct FieldReader<'w> {
    kind: Kind,
    header: &'w RawHeader,
}

impl FieldReader<'_> {
    #[cold]
    fn invalid_value(&self, field: Field) -> WireError {
        WireError::Value { kind: self.kind, field, value: self.header.value(field) }
    }

    #[inline]
    fn timestamp(&self) -> Timestamp {
        Timestamp(self.header.value(Field::Timestamp))
    }

    #[inline]
    fn credit(&self) -> CreditId {
        CreditId(self.header.value(Field::CreditId))
    }

    #[inline]
    fn request(&self) -> Result<RequestId, WireError> {
        RequestId::new(self.header.value(Field::RequestId)).ok_or_else(|| self.invalid_value(Field::RequestId))
    }

    #[inline]
    fn priority(&self, field: Field) -> Result<Priority, WireError> {
        let level = self.header.value_u8(field);
        let priority = Priority::new(level);
        // `Priority::new` clamps; accepting that here would give two headers to one frame.
        if priority.level() == level { Ok(priority) } else { Err(self.invalid_value(field)) }
    }

    #[inline]
    fn payload_max(&self) -> Result<PayloadLimit, WireError> {
        let bytes = self.header.value_u32(Field::PayloadMax);
        let limit = PayloadLimit::new(bytes);
        if limit.bytes() == bytes { Ok(limit) } else { Err(self.invalid_value(Field::PayloadMax)) }
    }

    #[inline]
    fn feedback(&self) -> Result<Feedback, WireError> {
        Ok(Feedback {
            window: Credits(self.header.value_u32(Field::Window)),
            threshold: self.priority(Field::Threshold)?,
            custom: self.header.value(Field::Custom),
            credit: self.credit(),
        })
    }

    #[inline]
    fn answer(&self) -> Result<Answer, WireError> {
        Ok(Answer {
            request: self.request()?,
            timestamp: self.timestamp(),
            feedback: self.feedback()?,
            sojourn: Nanos32(self.header.value_u32(Field::Sojourn)),
        })
    }

    #[inline]
    fn code<T>(&self, meaning: fn(u8) -> Option<T>) -> Result<T, WireError> {
        meaning(self.header.value_u8(Field::Code)).ok_or_else(|| self.invalid_value(Field::Code))
    }

    #[inline]
    fn reason(&self) -> Result<RejectCode, WireError> {
        match self.code(RejectCode::from_number)? {
            RejectCode::Cancelled if self.header.value_u8(Field::Version) < Version::Two.number() => {
                Err(self.invalid_value(Field::Code))
            }
            reason => Ok(reason),
        }
    }

    #[inline]
    fn message<'a>(&self, payload: &'a [u8]) -> Result<Message<'a>, WireError> {
        // The length was checked with the header, so `Message::new` cuts nothing off.
        std::str::from_utf8(payload).map(Message::new).map_err(|_| WireError::Text { kind: self.kind })
    }
}
