//! The type of an attack, and the list of all attacks.

use crate::target::{Port, Target};
use crate::{connections, encrypted, memcached, rpc, udp};

/// An attack. `run` returns a summary of its traffic.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) port: Port,
    pub(crate) run: fn(&Target) -> String,
}

const fn on_rpc(name: &'static str, summary: &'static str, attack: fn(&Target) -> String) -> Attack {
    Attack { name, summary, port: Port::Rpc, run: attack }
}

const fn on_memcached(name: &'static str, summary: &'static str, attack: fn(&Target) -> String) -> Attack {
    Attack { name, summary, port: Port::Memcached, run: attack }
}

const fn on_udp(name: &'static str, summary: &'static str, attack: fn(&Target) -> String) -> Attack {
    Attack { name, summary, port: Port::Datagrams, run: attack }
}

const fn on_tls(name: &'static str, summary: &'static str, attack: fn(&Target) -> String) -> Attack {
    Attack { name, summary, port: Port::Tls, run: attack }
}

/// All attacks.
pub(crate) const ATTACKS: &[Attack] = &[
    on_rpc("random", "bytes at random, again and again", connections::random),
    on_rpc("mutated", "lawful frames with a few bytes changed", rpc::mutated),
    on_rpc("half-frames", "500 connections that begin a call and stop", rpc::half_frames),
    on_rpc("half-calls", "400 connections with a megabyte of a call that never ends", rpc::half_calls),
    on_rpc("drip", "200 connections that send a byte a second", rpc::drip),
    on_rpc("idle", "2,000 connections that say nothing", connections::idle),
    on_rpc("registered", "2,000 sessions that say nothing more", rpc::registered),
    on_rpc("liars", "500 sessions that say they have 2^32 requests waiting, and never call", rpc::liars),
    on_rpc("hoarders", "100 sessions that take every credit by the demand they tell, and never call", rpc::hoarders),
    on_rpc("demands", "8 sessions that tell demands as fast as they can", rpc::demands),
    on_rpc("pings", "8 sessions that ping as fast as they can, and read", rpc::pings),
    on_rpc("pings-one", "a single session that pings as fast as it can", rpc::pings_one),
    on_rpc("pings-singly", "50 sessions with a ping per packet", rpc::pings_singly),
    on_rpc("pings-unread", "50 sessions that ping and never read", rpc::pings_unread),
    on_rpc("statistics", "8 sessions that ask for the statistics as fast as they can", rpc::statistics),
    on_rpc("flood", "16 sessions that call without credit as fast as they can", rpc::flood_calls),
    on_rpc("unread", "100 sessions that call with large arguments and never read", rpc::unread),
    on_rpc("storm", "connections that come and go at once", rpc::storm),
    on_rpc("storm-calls", "connections that register, call and are reset", rpc::storm_calls),
    on_rpc("churn", "sessions that use their windows fully and are reset", rpc::churn),
    on_rpc("big", "8 sessions whose arguments are a megabyte, within their credit", rpc::big),
    on_rpc(
        "priorities",
        "8 sessions within their credit that claim the highest priority for all they call",
        rpc::priorities,
    ),
    on_rpc(
        "same-ids",
        "sessions that use a request's number again after a reconnect, and within a connection",
        rpc::same_ids,
    ),
    on_rpc("clocks", "sessions whose timestamps and budgets lie", rpc::clocks),
    on_udp("udp-foreign", "datagrams of strangers at a core's port, as fast as one can", udp::unvalidated_clients),
    on_udp("udp-greetings", "greetings as fast as one can", udp::greetings),
    on_udp("udp-forged", "registrations with wrong cookies", udp::forged),
    on_udp("udp-strangers", "calls and words of sessions that there are not", udp::unknown_sessions),
    on_udp("udp-replays", "a registration again and again", udp::replays),
    on_udp("udp-sizes", "datagrams that are cut short, too long, or random", udp::sizes),
    on_tls("tls-hellos", "handshakes as fast as one can, which cost the attacker nothing", encrypted::hellos),
    on_tls("tls-stopped", "2,000 handshakes that begin and stop", encrypted::stalled_handshakes),
    on_tls("tls-random", "bytes at random, again and again", connections::random),
    on_memcached("mc-random", "bytes at random, again and again", connections::random),
    on_memcached("mc-noops", "8 connections that pipeline `mn`", memcached::noops),
    on_memcached("mc-version", "a connection that pipelines `version`", memcached::version),
    on_memcached("mc-stats", "a connection that pipelines `stats`", memcached::stats),
    on_memcached("mc-junk", "a connection that pipelines nonsense", memcached::junk),
    on_memcached("mc-noreply", "8 connections that pipeline small sets without an answer", memcached::noreply),
    on_memcached("mc-get", "a connection that pipelines 2,000 gets", memcached::get_one),
    on_memcached("mc-gets", "8 connections that pipeline 2,000 gets", memcached::gets),
    on_memcached("mc-keys", "4 connections that pipeline gets of hundreds of keys", memcached::keys),
    on_memcached(
        "mc-big-sets",
        "4 connections that pipeline sets of a megabyte without an answer",
        memcached::big_sets,
    ),
    on_memcached("mc-unread", "50 connections that ask for a megabyte and never read", memcached::unread),
    on_memcached("mc-unread-many", "1,000 connections that ask for a megabyte and never read", memcached::unread_crowd),
    on_memcached("mc-unread-sets", "1,000 connections that send short sets and never read", memcached::unread_sets),
    on_memcached("mc-slow-many", "400 connections that ask for a megabyte and read it slowly", memcached::slow_crowd),
    on_memcached("mc-slow", "20 connections that ask for a megabyte and read it slowly", memcached::slow),
    on_memcached("mc-half", "300 connections with 900 kB of a value that never ends", memcached::half),
    on_memcached("mc-idle", "2,000 connections that say nothing", connections::idle),
    on_memcached("mc-drip", "200 connections that send a byte a second", memcached::drip),
    on_memcached("mc-storm", "connections that ask and go", memcached::storm),
    on_memcached("mc-churn", "connections that pipeline 100 gets and are reset", memcached::churn),
    on_memcached("mc-flush", "4 connections that pipeline `flush_all`", memcached::flush),
];
