"""WebSockets in streams of one HTTP/2 connection (RFC 8441), by h2 and wsproto, at an echo server.

Usage: websocket_http2.py PORT: prints the reason of each failure as JSON; empty: passed. Runs in
the suites' virtual environment. Does not contain the server.
"""

import json
import socket
import sys

import h2.config
import h2.connection
import h2.events
import h2.settings
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage


class Client:
    """One connection of HTTP/2."""

    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port), 20)
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.http.initiate_connection()
        self.events = []
        self.flush()

    def flush(self):
        self.sock.sendall(self.http.data_to_send())

    def receive(self):
        """Events of what comes next; the stream's windows are kept open."""
        data = self.sock.recv(65_536)
        assert data, "the connection has ended"
        events = self.http.receive_data(data)
        for event in events:
            if isinstance(event, h2.events.DataReceived):
                self.http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        self.flush()
        return events

    def wait_settings(self):
        while not any(isinstance(event, h2.events.RemoteSettingsChanged) for event in self.receive()):
            pass
        setting = h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL
        assert self.http.remote_settings.get(setting) == 1, "SETTINGS_ENABLE_CONNECT_PROTOCOL is not 1"


class WebSocket:
    """One stream of it."""

    def __init__(self, client):
        self.client, self.messages = client, Connection(ConnectionType.CLIENT)
        self.stream = client.http.get_next_available_stream_id()
        headers = [
            (":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":path", "/"), (":authority", "localhost"),
            ("sec-websocket-version", "13"), ("origin", "http://localhost"),
        ]
        client.http.send_headers(self.stream, headers)
        client.flush()
        headers = None
        while headers is None:
            for event in client.receive():
                if isinstance(event, h2.events.ResponseReceived) and event.stream_id == self.stream:
                    headers = dict(event.headers)
                assert not isinstance(event, h2.events.StreamReset), event
        assert headers[":status"] == "200" and "sec-websocket-accept" not in headers, headers
        self.is_ended = False

    def send(self, event):
        data = self.messages.send(event)
        while data:
            room = min(self.client.http.local_flow_control_window(self.stream), self.client.http.max_outbound_frame_size)
            if room == 0:
                self.take(self.client.receive())
                continue
            self.client.http.send_data(self.stream, data[:room])
            self.client.flush()
            data = data[room:]

    def take(self, events):
        for event in events:
            if isinstance(event, h2.events.DataReceived) and event.stream_id == self.stream:
                self.messages.receive_data(event.data)
            elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)) and event.stream_id == self.stream:
                self.is_ended = True

    def message(self):
        """The next message, whole."""
        parts = []
        while True:
            for event in self.messages.events():
                if isinstance(event, (TextMessage, BytesMessage)):
                    parts.append(event.data)
                    if event.message_finished:
                        return parts[0][:0].join(parts)
                else:
                    return event
            assert not self.is_ended, "the stream has ended"
            self.take(self.client.receive())


def opened(port):
    client = Client(port)
    client.wait_settings()
    return WebSocket(client)


def echo(port):
    socket = opened(port)
    for text in ("", "hello", "é" * 1_000):
        socket.send(TextMessage(text))
        assert socket.message() == text
    for size in (1, 70_000, 1 << 20):
        socket.send(BytesMessage(b"x" * size))
        assert socket.message() == b"x" * size


def ping(port):
    socket = opened(port)
    socket.send(Ping(b"abc"))
    answer = socket.message()
    assert isinstance(answer, Pong) and answer.payload == b"abc", answer


def closing(port):
    socket = opened(port)
    socket.send(CloseConnection(1000, "bye"))
    answer = socket.message()
    assert isinstance(answer, CloseConnection) and answer.code == 1000, answer
    while not socket.is_ended:
        socket.take(socket.client.receive())


def two_at_once(port):
    first = opened(port)
    second = WebSocket(first.client)
    first.send(TextMessage("first"))
    second.send(TextMessage("second"))
    assert second.message() == "second"


def main():
    results = {}
    for case in (echo, ping, closing, two_at_once):
        try:
            case(int(sys.argv[1]))
            results[case.__name__] = ""
        except Exception as error:
            results[case.__name__] = f"{type(error).__name__}: {error}"[:300]
    print(json.dumps(results))


main()
