//! The epoll echo in batches, where a batch's reads are one call and its writes another: io_uring as a list of system
//! calls. Everything completes within the call that begins it, so that no buffer is the kernel's for longer.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use anyhow::{Context, Result};
use io_uring::{IoUring, opcode, types::Fd};
use nix::libc;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;

use super::{Extras, Idling, bare, stamps};

const BATCH: usize = 16;
const ROOM: usize = 4096;
const LISTENER: u64 = u64::MAX;

pub(crate) fn serve(listener: TcpListener, idle: Idling, extras: Extras) -> Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC).context("epoll")?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let timeout = (idle == Idling::Spin).then_some(&now);
    let mut ring: IoUring = IoUring::builder().setup_single_issuer().build(64)?;
    let mut connections: Vec<Option<TcpStream>> = Vec::new();
    let mut buffers = vec![[0u8; ROOM]; BATCH];
    let mut controls = vec![[0u64; 16]; BATCH];
    let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
    loop {
        events.clear();
        let _ = epoll::wait(&epoll, spare_capacity(&mut events), timeout);
        for batch in events.chunks(BATCH) {
            let mut vectors: Vec<libc::iovec> = Vec::with_capacity(BATCH);
            let mut headers: Vec<libc::msghdr> = Vec::with_capacity(BATCH);
            let mut marks = [0usize; BATCH];
            let mut count = 0;
            for event in batch {
                let mark = event.data.u64();
                if mark == LISTENER {
                    while let Ok((stream, _)) = listener.accept() {
                        let _ = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true));
                        stamps::ask_for(&stream);
                        let number = connections.len() as u64;
                        let _ = epoll::add(&epoll, &stream, EventData::new_u64(number), EventFlags::IN);
                        connections.push(Some(stream));
                    }
                    continue;
                }
                let Some(stream) = &connections[mark as usize] else { continue };
                vectors.push(libc::iovec { iov_base: buffers[count].as_mut_ptr().cast(), iov_len: ROOM });
                let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
                header.msg_iov = unsafe { vectors.as_mut_ptr().add(count) };
                header.msg_iovlen = 1;
                header.msg_control = controls[count].as_mut_ptr().cast();
                header.msg_controllen = stamps::CONTROL;
                headers.push(header);
                let entry = opcode::RecvMsg::new(Fd(stream.as_raw_fd()), unsafe { headers.as_mut_ptr().add(count) })
                    .flags(libc::MSG_DONTWAIT as u32)
                    .build()
                    .user_data(count as u64);
                unsafe { ring.submission().push(&entry).ok().context("full")? };
                marks[count] = mark as usize;
                count += 1;
            }
            if count == 0 {
                continue;
            }
            ring.submit_and_wait(count)?;
            let mut lengths = [0i32; BATCH];
            for entry in ring.completion() {
                lengths[entry.user_data() as usize] = entry.result();
            }
            let mut sends = 0;
            for at in 0..count {
                let length = lengths[at];
                if length == 0 || (length < 0 && length != -libc::EAGAIN) {
                    connections[marks[at]] = None;
                    continue;
                }
                if length < 0 {
                    continue;
                }
                let bytes: &[u8] = unsafe { std::slice::from_raw_parts(controls[at].as_ptr().cast(), stamps::CONTROL) };
                std::hint::black_box(stamps::age_in(bytes));
                let got = &buffers[at][..length as usize];
                bare::work_on(got, extras.work);
                let fd = connections[marks[at]].as_ref().map(AsRawFd::as_raw_fd).unwrap_or(-1);
                let entry = opcode::Send::new(Fd(fd), got.as_ptr(), got.len() as u32)
                    .flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
                    .build();
                unsafe { ring.submission().push(&entry).ok().context("full")? };
                sends += 1;
            }
            ring.submit_and_wait(sends)?;
            ring.completion().for_each(drop);
        }
    }
}
