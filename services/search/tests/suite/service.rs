//! The service over real sockets: requests, answers, and malformed requests.

use leeward_core::params::Params;
use leeward_core::units::Nanos;
use leeward_rpc::client::{CallError, Client};
use leeward_rpc::server::Server;
use leeward_rpc::wire::Method;
use leeward_runtime::IdlePolicy;
use leeward_search::wire::{self, ADD, SEARCH, SIZE, VOCABULARY};
use leeward_search::{Document, Index, Layout, MatchMode, Query, Search, corpus};
use std::sync::Arc;

const RTT: Nanos = Nanos::from_micros(30);
/// So long that a busy machine causes no rejections.
const SLO: Nanos = Nanos::from_secs(20);

struct TestServer {
    server: Server,
    index: Arc<Index>,
}

fn serve(documents: Vec<Document>, layout: Layout) -> TestServer {
    let index = Arc::new(Index::build(documents, layout));
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let server = Server::builder()
        .admission(&breakwater, Params::default())
        .objective(RTT, SLO)
        .cores(2)
        .idle(IdlePolicy::Block)
        .start_async("127.0.0.1:0", Search::new(Arc::clone(&index)))
        .unwrap();
    TestServer { server, index }
}

impl TestServer {
    fn client(&self) -> Client {
        let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
        Client::builder()
            .replica(self.server.address().to_string())
            .admission(&breakwater, Params::default())
            .objective(RTT, SLO)
            .build()
            .unwrap()
    }
}

fn query(text: &str, matching: MatchMode, results: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::write_query(text, matching, results, &mut bytes);
    bytes
}

#[test]
fn a_query_is_answered_as_the_index_answers_it() {
    let served = serve(corpus::small(), Layout::default());
    let client = served.client();
    for (text, matching) in
        [("credits of the pool", MatchMode::Any), ("queueing delay", MatchMode::All), ("zzz", MatchMode::Any)]
    {
        let answer = client.call_blocking(SEARCH, query(text, matching, 5)).unwrap();
        let found = wire::read_result(&answer.payload).unwrap();
        let expected = pollster::block_on(served.index.search(&Query::parse(text, matching, 5).unwrap())).unwrap();
        assert_eq!(found, expected);
    }
    client.shut_down();
    served.server.stop().unwrap();
}

#[test]
fn the_vocabulary_is_returned_in_pages_and_the_size_at_once() {
    let served = serve(corpus::small(), Layout::default());
    let client = served.client();
    let mut entries = Vec::new();
    loop {
        let mut rank = Vec::new();
        wire::write_rank(entries.len() as u32, &mut rank);
        let page = wire::read_page(&client.call_blocking(VOCABULARY, rank).unwrap().payload).unwrap();
        assert_eq!(
            (page.terms as usize, page.documents as usize),
            (served.index.vocabulary().len(), corpus::small().len())
        );
        if page.entries.is_empty() {
            break;
        }
        entries.extend(page.entries);
    }
    assert_eq!(entries, served.index.vocabulary());
    assert!(entries.len() > 1_500, "several pages are needed for this test to mean something");
    let size = wire::read_size(&client.call_blocking(SIZE, []).unwrap().payload).unwrap();
    assert_eq!(size, served.index.size());
    client.shut_down();
    served.server.stop().unwrap();
}

#[test]
fn added_documents_are_found_at_once_by_all_clients() {
    let served = serve(Vec::new(), Layout { segments: 1, seal_at: 7, merge_factor: 3 });
    let threads: Vec<_> = (0..3)
        .map(|writer| {
            let client = served.client();
            std::thread::spawn(move || {
                for number in 0..60 {
                    let (unique, text) = (format!("w{writer}n{number}"), "common words of all");
                    let mut bytes = Vec::new();
                    wire::write_document(&Document { title: unique.clone(), text: text.into() }, &mut bytes);
                    let answer = client.call_blocking(ADD, bytes).unwrap();
                    let id = u32::from_le_bytes(answer.payload.try_into().unwrap());
                    let answer = client.call_blocking(SEARCH, query(&unique, MatchMode::All, 1)).unwrap();
                    let found = wire::read_result(&answer.payload).unwrap();
                    assert_eq!((found.matches, found.hits[0].document), (1, id));
                    assert_eq!(&*found.hits[0].title, unique);
                    // A concurrent search sees only complete documents.
                    let answer = client.call_blocking(SEARCH, query("common all", MatchMode::All, 100)).unwrap();
                    let found = wire::read_result(&answer.payload).unwrap();
                    assert!(found.matches > number && found.hits.iter().all(|hit| !hit.title.is_empty()));
                }
                client.shut_down();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let size = served.index.size();
    assert_eq!((size.documents, size.words, size.terms), (180, 180 * 5, 184));
    // Without merging, 25 full segments and the open one.
    assert!(size.segments < 10, "{size:?}");
    let common =
        pollster::block_on(served.index.search(&Query::parse("common", MatchMode::Any, 100).unwrap())).unwrap();
    assert_eq!(common.matches, 180);
    served.server.stop().unwrap();
}

#[test]
fn an_invalid_request_fails_with_a_message() {
    let served = serve(corpus::small(), Layout::default());
    let client = served.client();
    let failure = |method: Method, payload: &[u8]| match client.call_blocking(method, payload).unwrap_err() {
        CallError::Failed { message, .. } => message,
        other => panic!("{other}"),
    };
    for (method, payload, expected) in [
        (SEARCH, &b""[..], "cut short"),
        (SEARCH, b"\x01\x00\x02words", "matching 2"),
        (SEARCH, b"\x00\x00\x00words", "0 results"),
        (SEARCH, b"\x01\x00\x00 ,.", "no word"),
        (SEARCH, b"\x01\x00\x00\xff\xfe", "UTF-8"),
        (VOCABULARY, b"\x01", "cut short"),
        (VOCABULARY, b"\x01\x00\x00\x00\x00", "after the end"),
        (ADD, b"\xff\xff", "cut short"),
    ] {
        let message = failure(method, payload);
        assert!(message.contains(expected), "{method:?} {payload:?}: {message}");
    }
    assert!(client.call_blocking(Method(77), b"").is_err());
    // The connection stays usable.
    assert!(client.call_blocking(SEARCH, query("server", MatchMode::Any, 1)).is_ok());
    client.shut_down();
    served.server.stop().unwrap();
}
