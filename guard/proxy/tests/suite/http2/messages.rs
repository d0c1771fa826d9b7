//! Messages of HTTP/2 through the proxy, with either version on either side. Does not contain gRPC,
//! attacks, or failures.

use super::harness::{Arrived, Client, Http2Backend, fields, get, post, read, request, run, write};
use crate::harness::{Backend, connect, settle, start};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};

/// Whatever the versions are, a request and its answer are the same.
#[test]
fn requests_and_answers_pass_in_every_combination() {
    let (old, new) = (
        Backend::start(|exchange| {
            let body = exchange.message().text();
            let text = format!("{} {body}", exchange.head.target());
            exchange.ok(&text);
        }),
        Http2Backend::echo(),
    );
    for to in [old.address.to_string(), new.to()] {
        let proxy = start(&[&to], "");
        let mut client = connect(&proxy);
        assert_eq!(
            client.get("/one?two=3").text().trim_end(),
            match to.starts_with("h2c") {
                true => "/one",
                false => "/one?two=3",
            }
        );
        client.send("POST /old HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc");
        assert_eq!(client.answer().text(), "/old abc");
        client.send("POST /old HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
        assert_eq!(client.answer().text(), "/old abc");
        client.send("POST /none HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(client.answer().text(), "/none ");
        run(async {
            let mut client = Client::to(&proxy).await;
            assert_eq!(client.get("/new").await.text(), "/new ");
            assert_eq!(client.ask(post("/new"), Some(b"abc")).await.text(), "/new abc");
            assert_eq!(client.ask(post("/empty"), Some(b"")).await.text(), "/empty ");
            let mut with_length = post("/new");
            with_length.headers_mut().insert("content-length", "3".parse().unwrap());
            assert_eq!(client.ask(with_length, Some(b"abc")).await.text(), "/new abc");
            let large = vec![b'a'; 3 << 20];
            let answer = client.ask(post("/large"), Some(&large)).await;
            assert_eq!((answer.status.as_u16(), answer.body.len()), (200, large.len() + 7));
            assert_eq!(answer.get("connection"), None);
        });
        assert_eq!(settle(&proxy).completed, 9);
    }
}

#[test]
fn many_requests_at_a_time_share_a_connection_to_their_backend() {
    let backend = Http2Backend::echo();
    let proxy = start(&[backend.to()], "threads = 1");
    run(async {
        let mut client = Client::to(&proxy).await;
        for _ in 0..5 {
            let mut answers = Vec::new();
            for number in 0..80 {
                answers.push((number, client.send(request(&format!("/{number}")), true).await.0));
            }
            for (number, response) in answers {
                assert_eq!(super::harness::answer(response).await.unwrap().text(), format!("/{number} "));
            }
        }
    });
    assert_eq!(backend.connections.load(std::sync::atomic::Ordering::SeqCst), 1);
    assert_eq!(settle(&proxy).completed, 400);
}

#[test]
fn hosts_and_authorities_are_the_same() {
    let (old, new) = (Backend::echo(), Http2Backend::echo());
    let proxy = start(&[old.address], "");
    run(async {
        let mut client = Client::to(&proxy).await;
        let request = Request::get("https://other:81/a?b").header("accept", "x").body(()).unwrap();
        client.ask(request, None).await;
        let both = Request::get("http://Other:81/c").header("host", "other:81").body(()).unwrap();
        client.ask(both, None).await;
        let star = Request::builder().method(Method::OPTIONS).uri("http://h/*").body(()).unwrap();
        client.ask(star, None).await;
    });
    let head = old.request(1).head;
    assert_eq!(head.line, "GET /a?b HTTP/1.1");
    assert_eq!((head.get("host"), head.get("x-forwarded-host")), (Some("other:81".into()), Some("other:81".into())));
    assert_eq!(old.request(2).head.get("host"), Some("Other:81".into()));

    let proxy = start(&[new.to()], "");
    let mut client = connect(&proxy);
    client.send("GET /a?b HTTP/1.1\r\nhost: other:81\r\n\r\n");
    client.answer();
    client.send("OPTIONS * HTTP/1.1\r\nhost: h\r\n\r\n");
    client.answer();
    client.send("GET /none HTTP/1.0\r\n\r\n");
    client.answer();
    let heads = new.heads.lock().unwrap();
    assert_eq!(heads[0].uri, "http://other:81/a?b");
    assert_eq!(
        (get(&heads[0].headers, "host"), get(&heads[0].headers, "x-forwarded-host")),
        (None, Some("other:81".into()))
    );
    assert_eq!((heads[1].method.as_str(), heads[1].uri.path()), ("OPTIONS", "*"));
    assert_eq!(heads[2].uri.authority().unwrap(), "127.0.0.1", "a host is needed");
}

#[test]
fn each_message_says_in_which_version_it_came() {
    let (old, new) = (Backend::echo(), Http2Backend::echo());
    for (to, of_answer) in [(old.address.to_string(), "1.1 leeward"), (new.to(), "2.0 leeward")] {
        let proxy = start(&[to], "");
        let mut client = connect(&proxy);
        assert_eq!(client.get("/").head.get("via"), Some(of_answer.into()));
        let answer = run(async { Client::to(&proxy).await.get("/").await });
        assert_eq!(answer.get("via"), Some(of_answer.into()));
    }
    assert_eq!(old.request(1).head.get("via"), Some("1.1 leeward".into()));
    assert_eq!(old.request(2).head.get("via"), Some("2.0 leeward".into()));
    let heads = new.heads.lock().unwrap();
    assert_eq!(get(&heads[0].headers, "via"), Some("1.1 leeward".into()));
    assert_eq!(get(&heads[1].headers, "via"), Some("2.0 leeward".into()));
}

#[test]
fn cookies_are_joined() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    run(async {
        let mut asks = request("/");
        for cookie in ["a=1", "b=2", "c=3"] {
            asks.headers_mut().append("cookie", cookie.parse().unwrap());
        }
        Client::to(&proxy).await.ask(asks, None).await;
    });
    assert_eq!(backend.request(1).head.get("cookie"), Some("a=1; b=2; c=3".into()));
}

#[test]
fn headers_of_one_connection_do_not_reach_http_2() {
    let backend = Http2Backend::start(async |arrived: Arrived| {
        arrived.answer(200, "well").await;
    });
    let proxy = start(&[backend.to()], "");
    let mut client = connect(&proxy);
    client.send(
        "GET / HTTP/1.1\r\nhost: h\r\nconnection: x-hop, keep-alive, te\r\nx-hop: 1\r\nkeep-alive: 5\r\n\
         te: trailers, gzip\r\nupgrade: other\r\nproxy-connection: x\r\nexpect: 100-continue\r\nx-end: 2\r\n\r\n",
    );
    assert_eq!(client.answer().text(), "well");
    let heads = backend.heads.lock().unwrap();
    for name in ["connection", "x-hop", "keep-alive", "upgrade", "proxy-connection", "expect", "transfer-encoding"] {
        assert_eq!(get(&heads[0].headers, name), None, "{name}");
    }
    assert_eq!(get(&heads[0].headers, "te"), Some("trailers".into()));
    assert_eq!(get(&heads[0].headers, "x-end"), Some("2".into()));
}

#[test]
fn trailers_pass_both_ways() {
    let new = Http2Backend::start(async |mut arrived: Arrived| {
        let Ok((_, trailers)) = read(&mut arrived.body).await else { return };
        let sum = trailers.and_then(|trailers| get(&trailers, "x-sum")).unwrap_or_default();
        let response = Response::builder().header("trailer", "x-sum").body(()).unwrap();
        let mut stream = arrived.respond.send_response(response, false).unwrap();
        write(&mut stream, Bytes::from_static(b"abc"), false).await.unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", format!("{sum}+1").parse().unwrap());
        stream.send_trailers(trailers).unwrap();
    });
    let old = Backend::start(|exchange| {
        let message = exchange.message();
        let sum = message.trailers.iter().find(|(name, _)| name == "x-sum").map_or("", |(_, value)| value.as_str());
        exchange.raw(format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n3\r\nabc\r\n0\r\nx-sum: {sum}+1\r\n\r\n"
        ));
    });
    for to in [old.address.to_string(), new.to()] {
        let proxy = start(&[to], "threads = 1");
        let mut client = connect(&proxy);
        client.send(
            "POST / HTTP/1.1\r\nhost: h\r\nte: trailers\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n\
             3\r\nabc\r\n0\r\nx-sum: 3\r\n\r\n",
        );
        let answer = client.answer();
        assert_eq!(answer.trailers, [("x-sum".into(), "3+1".into())]);
        run(async {
            let mut client = Client::to(&proxy).await;
            for _ in 0..2 {
                let mut asks = post("/");
                asks.headers_mut().insert("trailer", "x-sum".parse().unwrap());
                asks.headers_mut().insert("te", "trailers".parse().unwrap());
                let (response, mut stream) = client.send(asks, false).await;
                stream.send_data(Bytes::from_static(b"abc"), false).unwrap();
                let mut trailers = HeaderMap::new();
                trailers.insert("x-sum", "3".parse().unwrap());
                stream.send_trailers(trailers).unwrap();
                let answer = super::harness::answer(response).await.unwrap();
                assert_eq!((answer.text(), answer.trailer("x-sum")), ("abc".into(), Some("3+1".into())));
            }
        });
        let snapshot = settle(&proxy);
        assert_eq!((snapshot.completed, snapshot.abandoned), (3, 0));
    }
    use std::sync::atomic::Ordering;
    assert_eq!(old.connections.load(Ordering::SeqCst), 1, "trailers end an answer: its connection is kept");
    assert_eq!(new.connections.load(Ordering::SeqCst), 1);
}

/// Answers without a body: to HEAD, and by status.
#[test]
fn answers_without_a_body_have_none() {
    let new = Http2Backend::start(async |mut arrived: Arrived| {
        let status: u16 = arrived.path()[1..].parse().unwrap();
        let mut response = Response::builder().status(status);
        if status == 200 {
            response = response.header("content-length", "1000");
        }
        let _ = arrived.respond.send_response(response.body(()).unwrap(), true);
    });
    let old = Backend::start(|exchange| {
        exchange.message();
        let status = exchange.head.target()[1..].to_owned();
        let length = if status == "200" { "content-length: 1000\r\n" } else { "" };
        exchange.raw(format!("HTTP/1.1 {status} X\r\n{length}\r\n"));
    });
    for to in [old.address.to_string(), new.to()] {
        let proxy = start(&[to], "threads = 1");
        let mut client = connect(&proxy);
        for (method, path, length) in [("HEAD", "/200", Some("1000")), ("GET", "/204", None), ("GET", "/304", None)] {
            client.send(format!("{method} {path} HTTP/1.1\r\nhost: h\r\n\r\n"));
            let head = client.answer_to(method).head;
            assert_eq!(head.status().to_string(), path[1..]);
            assert_eq!(head.get("content-length").as_deref(), length, "{method} {path}");
            let answer = run(async {
                let request = Request::builder().method(method).uri(format!("http://h{path}")).body(()).unwrap();
                Client::to(&proxy).await.ask(request, None).await
            });
            assert_eq!((answer.status.as_str(), answer.body.len()), (&path[1..], 0));
            assert_eq!(answer.get("content-length").as_deref(), length, "{method} {path}");
        }
        settle(&proxy);
    }
}

#[test]
fn interim_answers_are_skipped() {
    let old = Backend::start(|exchange| {
        exchange.message();
        exchange.raw("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    });
    // HEADERS with 103, then 200 and END_STREAM with the body.
    let new = Http2Backend::raw(async |stream: tokio::net::TcpStream, _| {
        use super::harness::{DATA, END_HEADERS, END_STREAM, Frames, HEADERS, SETTINGS};
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = stream;
        let mut bytes = vec![0; 1 << 16];
        let mut head = Frames::bytes(SETTINGS, 0, 0, b"");
        let interim = fields(&[(":status", "103"), ("link", "x")]);
        head.extend(Frames::bytes(HEADERS, END_HEADERS, 1, &interim));
        head.extend(Frames::bytes(HEADERS, END_HEADERS, 1, &fields(&[(":status", "200")])));
        head.extend(Frames::bytes(DATA, END_STREAM, 1, b"ok"));
        let mut read = 0;
        while !bytes[..read].windows(5).any(|five| five == [1, 5, 0, 0, 0] || five == [1, 4, 0, 0, 0]) {
            match stream.read(&mut bytes[read..]).await {
                Ok(count) if count > 0 => read += count,
                _ => return,
            }
        }
        let _ = stream.write_all(&head).await;
        let _ = stream.read(&mut bytes).await;
        std::future::pending::<()>().await;
    });
    for to in [old.address.to_string(), new.to()] {
        let proxy = start(&[&to], "threads = 1");
        assert_eq!(connect(&proxy).get("/").text(), "ok", "{to}");
    }
    let proxy = start(&[old.address], "");
    assert_eq!(run(async { Client::to(&proxy).await.get("/").await.text() }), "ok");
}

#[test]
fn events_pass_at_once_and_hold_no_place() {
    let (go, went) = tokio::sync::watch::channel(false);
    let backend = Http2Backend::start(move |mut arrived: Arrived| {
        let mut went = went.clone();
        async move {
            if arrived.path() != "/events" {
                return arrived.answer(200, "other").await;
            }
            let response = Response::builder().header("content-type", "text/event-stream").body(()).unwrap();
            let mut stream = arrived.respond.send_response(response, false).unwrap();
            stream.send_data(Bytes::from_static(b"data: 1\n"), false).unwrap();
            let _ = went.wait_for(|went| *went).await;
            stream.send_data(Bytes::from_static(b"data: 2\n"), true).unwrap();
        }
    });
    let proxy = start(&[backend.to()], "limit = \"1\"");
    run(async {
        let mut client = Client::to(&proxy).await;
        let (response, _) = client.send(request("/events"), true).await;
        let mut body = response.await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "data: 1\n");
        assert_eq!(client.get("/").await.text(), "other", "the place is free");
        go.send(true).unwrap();
        assert_eq!(body.data().await.unwrap().unwrap(), "data: 2\n");
    });
    assert_eq!(settle(&proxy).completed, 2);
}
