//! Functions in which a thread waits for something to do: event loops and the pools of runtimes. Time in them is nobody's request.

/// Functions of event loops, by their whole names: of redis, nginx, lighttpd, HAProxy, libevent, libev and libuv, and what they call.
const LOOPS: [&str; 14] = [
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "aeApiPoll",
    "ngx_epoll_process_events",
    "ngx_poll_process_events",
    "ngx_select_process_events",
    "fdevent_linux_sysepoll_poll",
    "fdevent_poll_poll",
    "_do_poll",
    "epoll_dispatch",
    "poll_dispatch",
    "epoll_poll",
    "uv__io_poll",
];

/// Beginnings and ends of the paths of Rust's: mio's poll, and a scheduler's workers that have nothing to run.
const PATHS: [(&str, &str); 9] = [
    ("mio::", "::poll"),
    ("mio::", "::select"),
    ("mio::", "::epoll_wait"),
    ("tokio::runtime::driver::", "::park"),
    ("tokio::runtime::io::driver::", "::turn"),
    ("tokio::runtime::", "::park_internal"),
    ("tokio::runtime::scheduler::", "::park"),
    ("tokio::runtime::scheduler::", "::park_driver"),
    ("tokio::runtime::scheduler::", "::park_condvar"),
];

/// Whether the function with this name waits for something to do.
pub fn is_idle(name: &str) -> bool {
    LOOPS.contains(&name) || PATHS.iter().any(|(begin, end)| type_path(name).starts_with(begin) && name.ends_with(end))
}

/// Path of the type whose function it is: `<mio::poll::Poll>::poll` is `mio::poll::Poll`'s.
fn type_path(name: &str) -> &str {
    name.strip_prefix('<').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_loops_and_pools_are_known() {
        for name in [
            "mio::poll::Poll::poll",
            "<mio::poll::Poll>::poll",
            "mio::sys::unix::selector::epoll::Selector::select",
            "tokio::runtime::scheduler::multi_thread::park::Inner::park_driver",
            "<tokio::runtime::scheduler::multi_thread::park::Parker>::park",
            "tokio::runtime::time::Driver::park_internal",
            "aeApiPoll",
        ] {
            assert!(is_idle(name), "{name}");
        }
        for name in ["poll", "newapp::poll", "hyper::proto::h1::dispatch::Dispatcher::poll", "park", "miosis::poll"] {
            assert!(!is_idle(name), "{name}");
        }
    }
}
