//! Functions in which a thread waits for work: event loops and pools of runtimes. Their time
//! belongs to no request.

/// Full names of event-loop functions, and of functions that they call, in redis, nginx, lighttpd,
/// HAProxy, libevent, libev, libuv and Python; and of Go's scheduler while it looks for work.
const LOOPS: [&str; 17] = [
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
    "select_epoll_poll",
    "runtime.findRunnable",
    "runtime.stopm",
];

/// Prefixes and suffixes of Rust paths: mio's poll, and idle workers of a scheduler.
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

/// Returns whether the function with this name waits for work.
pub fn is_idle(name: &str) -> bool {
    LOOPS.contains(&name) || PATHS.iter().any(|(begin, end)| type_path(name).starts_with(begin) && name.ends_with(end))
}

/// Returns the path of a function's type: `mio::poll::Poll` for `<mio::poll::Poll>::poll`.
fn type_path(name: &str) -> &str {
    name.strip_prefix('<').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_waits_of_event_loops_and_pools_are_recognised() {
        for name in [
            "mio::poll::Poll::poll",
            "<mio::poll::Poll>::poll",
            "mio::sys::unix::selector::epoll::Selector::select",
            "tokio::runtime::scheduler::multi_thread::park::Inner::park_driver",
            "<tokio::runtime::scheduler::multi_thread::park::Parker>::park",
            "tokio::runtime::time::Driver::park_internal",
            "aeApiPoll",
            "runtime.findRunnable",
        ] {
            assert!(is_idle(name), "{name}");
        }
        for name in [
            "poll",
            "newapp::poll",
            "hyper::proto::h1::dispatch::Dispatcher::poll",
            "park",
            "miosis::poll",
            "runtime.gcDrain",
        ] {
            assert!(!is_idle(name), "{name}");
        }
    }
}
