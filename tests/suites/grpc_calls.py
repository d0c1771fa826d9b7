"""gRPC's interop cases by its C core, whose HTTP/2 is another one than grpc-go's.

Usage: grpc_calls.py PORT: prints the reason of each failure as JSON; empty: passed. Runs in the
suites' virtual environment. Messages are encoded here, as the cases need few fields. Does not
contain the server (grpc-go's).
"""

import json
import queue
import sys
import time

import grpc

SERVICE = "/grpc.testing.TestService/"
LARGE, ANSWER = 271_828, 314_159


def varint(value):
    data = b""
    while value >= 128:
        data, value = data + bytes([value & 127 | 128]), value >> 7
    return data + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def block(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def payload(field, size):
    return block(field, block(2, bytes(size)))


def unary(channel, method, request, **options):
    return channel.unary_unary(SERVICE + method)(request, timeout=30, **options)


def code_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error.details()
    return grpc.StatusCode.OK, ""


def empty_unary(channel):
    assert unary(channel, "EmptyCall", b"") == b""


def large_unary(channel):
    answer = unary(channel, "UnaryCall", number(2, ANSWER) + payload(3, LARGE))
    assert answer == payload(1, ANSWER), len(answer)


def client_streaming(channel):
    sizes = [27_182, 8, 1_828, 45_904]
    call = channel.stream_unary(SERVICE + "StreamingInputCall")
    assert call((payload(1, size) for size in sizes), timeout=30) == number(1, sum(sizes))


def server_streaming(channel):
    sizes = [31_415, 9, 2_653, 58_979]
    request = b"".join(block(2, number(1, size)) for size in sizes)
    answers = list(channel.unary_stream(SERVICE + "StreamingOutputCall")(request, timeout=30))
    assert answers == [payload(1, size) for size in sizes], [len(answer) for answer in answers]


def ping_pong(channel):
    """Each request is sent when the answer to the one before has come."""
    requests = queue.Queue()
    answers = channel.stream_stream(SERVICE + "FullDuplexCall")(iter(requests.get, None), timeout=30)
    for _ in range(20):
        for asked, got in ((27_182, 31_415), (8, 9), (1_828, 2_653), (45_904, 58_979)):
            requests.put(block(2, number(1, got)) + payload(3, asked))
            assert next(answers) == payload(1, got)
    requests.put(None)
    assert list(answers) == []


def cancel_after_first_response(channel):
    requests = queue.Queue()
    answers = channel.stream_stream(SERVICE + "FullDuplexCall")(iter(requests.get, None), timeout=30)
    requests.put(block(2, number(1, 31_415)) + payload(3, 27_182))
    next(answers)
    answers.cancel()
    assert code_of(lambda: next(answers))[0] == grpc.StatusCode.CANCELLED
    requests.put(None)


def timeout_on_sleeping_server(channel):
    def call():
        requests = iter([block(2, number(1, 8) + number(2, 5_000_000)) + payload(3, 27_182)])
        list(channel.stream_stream(SERVICE + "FullDuplexCall")(requests, timeout=0.2))

    began = time.monotonic()
    code = code_of(call)
    assert code[0] == grpc.StatusCode.DEADLINE_EXCEEDED, code
    assert time.monotonic() - began < 4.5


def status_code_and_message(channel):
    for message in ("test status message", "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"):
        status = number(1, 2) + block(2, message.encode())
        code = code_of(lambda: unary(channel, "UnaryCall", block(7, status)))
        assert code == (grpc.StatusCode.UNKNOWN, message), code


def unimplemented(channel):
    code, _ = code_of(lambda: unary(channel, "UnimplementedCall", b""))
    assert code == grpc.StatusCode.UNIMPLEMENTED, code
    code, _ = code_of(lambda: channel.unary_unary("/grpc.testing.NoService/Call")(b"", timeout=30))
    assert code == grpc.StatusCode.UNIMPLEMENTED, code


def custom_metadata(channel):
    metadata = (("x-grpc-test-echo-initial", "initial"), ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab"))
    call = channel.unary_unary(SERVICE + "UnaryCall")
    _, answer = call.with_call(number(2, 10) + payload(3, 10), metadata=metadata, timeout=30)
    assert ("x-grpc-test-echo-initial", "initial") in answer.initial_metadata(), answer.initial_metadata()
    assert ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab") in answer.trailing_metadata(), answer.trailing_metadata()


def concurrent_calls(channel):
    """More calls at once than a connection has streams."""
    calls = [channel.unary_unary(SERVICE + "UnaryCall").future(number(2, 1_000), timeout=60) for _ in range(400)]
    assert all(call.result() == payload(1, 1_000) for call in calls)


CASES = [
    empty_unary, large_unary, client_streaming, server_streaming, ping_pong, cancel_after_first_response,
    timeout_on_sleeping_server, status_code_and_message, unimplemented, custom_metadata, concurrent_calls,
]


def main():
    results = {}
    options = [("grpc.enable_retries", 0), ("grpc.enable_http_proxy", 0)]
    for case in CASES:
        with grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}", options) as channel:
            try:
                case(channel)
                results[case.__name__] = ""
            except grpc.RpcError as error:
                results[case.__name__] = f"{error.code()}: {error.details()}"[:300]
            except (AssertionError, StopIteration) as error:
                results[case.__name__] = f"{type(error).__name__} {error}"[:300]
    print(json.dumps(results))


main()
