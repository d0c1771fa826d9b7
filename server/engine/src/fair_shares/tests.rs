//! Tests of fair shares in virtual time: the amount that each quota lets through, and the
//! connections that pay beyond it.

use super::*;

/// A quantum of `messages`, with or without a request.
fn quantum(messages: u32, decided: bool) -> QuantumCounts {
    QuantumCounts { messages, decided, ..QuantumCounts::default() }
}

/// Reads one byte of a connection that begins no request, up to `most` times while the connection
/// may be read. Returns the number of reads.
fn idle_reads(shares: &mut FairShares, share: &mut Share, most: u32) -> u32 {
    for count in 0..most {
        if share.is_paused() {
            return count;
        }
        shares.count_read(share, 1);
        shares.end_quantum(share, &quantum(0, false));
    }
    most
}

/// Returns a connection that was paused for idle reads, and is read again.
fn idle_client(shares: &mut FairShares) -> Share {
    let mut share = Share::new();
    idle_reads(shares, &mut share, u32::MAX);
    shares.reset();
    assert!(share.reset(), "paused until the sweep");
    share
}

#[test]
fn one_idle_client_may_use_all_idle_reads_and_is_then_paused() {
    let (mut shares, mut share) = (FairShares::new(64), Share::new());
    assert_eq!(idle_reads(&mut shares, &mut share, 5_000), IDLE_READS + 1);
    shares.reset();
    assert!(share.reset() && !share.is_paused() && share.is_idle());
    assert!(!share.reset(), "a sweep tells of a pause once");
}

#[test]
fn a_paused_client_gets_one_read_per_sweep_while_the_quota_is_used_up() {
    let mut shares = FairShares::new(64);
    let (mut share, mut other) = (idle_client(&mut shares), Share::new());
    for _ in 0..3 {
        idle_reads(&mut shares, &mut other, u32::MAX);
        assert_eq!(idle_reads(&mut shares, &mut share, 100), 1);
        shares.reset();
        share.reset();
        other = Share::new();
    }
    // A request gives it the quota of a client with requests.
    idle_reads(&mut shares, &mut other, u32::MAX);
    shares.end_quantum(&mut share, &quantum(0, true));
    assert!(!share.is_idle());
    assert!(idle_reads(&mut shares, &mut share, u32::MAX) > PIECES);
}

#[test]
fn a_fragmented_request_is_not_limited_by_idle_clients() {
    let mut shares = FairShares::new(64);
    let mut crowd: Vec<Share> = (0..200).map(|_| Share::new()).collect();
    for share in &mut crowd {
        idle_reads(&mut shares, share, 10);
    }
    // The core's idle reads are used up. Each connection still has those of a request in pieces.
    let mut share = Share::new();
    assert_eq!(idle_reads(&mut shares, &mut share, PIECES), PIECES);
    assert!(!share.is_paused());
    assert_eq!(idle_reads(&mut shares, &mut share, 5), 1);
    assert!(crowd.iter().all(|share| !share.is_paused()), "they had fewer than their quota");
}

#[test]
fn a_request_refunds_the_idle_reads_before_it() {
    let (mut shares, mut share) = (FairShares::new(64), Share::new());
    for _ in 0..3 * IDLE_READS {
        shares.count_read(&mut share, 1);
        shares.end_quantum(&mut share, &quantum(3, true));
        assert!(!share.is_paused() && !share.is_idle());
    }
    assert_eq!(share.read_bytes(), READ);
}

#[test]
fn long_reads_are_not_charged_and_messages_are() {
    let (mut shares, mut share) = (FairShares::new(64), Share::new());
    for _ in 0..2 * IDLE_READS {
        shares.count_read(&mut share, IDLE_READ);
        shares.end_quantum(&mut share, &quantum(0, false));
    }
    assert!(!share.is_idle() && share.read_bytes() == READ);
    shares.end_quantum(&mut share, &quantum(MESSAGES_OF_READ - 1, false));
    assert!(!share.is_idle(), "fewer than cost as much as a read");
    assert_eq!(share.read_bytes(), READ_OF_MESSAGES);
    for _ in 0..=IDLE_READS {
        assert!(!share.is_paused());
        shares.end_quantum(&mut share, &quantum(MESSAGES_OF_READ, false));
    }
    assert!(share.is_paused());
}

#[test]
fn a_poll_reads_one_idle_client_and_then_others_for_20_us() {
    let mut shares = FairShares::new(64);
    let (idle, asking) = (idle_client(&mut shares), Share::new());
    let long = Nanos(IDLE_CLIENTS_OF_POLL.0 + 1);
    for _ in 0..2 {
        shares.begin_poll();
        assert!(!shares.is_put_off(&asking, || long));
        assert!(!shares.is_put_off(&idle, || unreachable!("the first needs no clock")));
        assert!(!shares.is_put_off(&idle, || IDLE_CLIENTS_OF_POLL));
        assert!(shares.is_put_off(&idle, || long));
        assert!(!shares.is_put_off(&asking, || long), "a request never waits for idle clients");
    }
}

#[test]
fn violations_end_a_quantum_and_pause_repeat_offenders() {
    let (mut shares, mut honest) = (FairShares::new(64), Share::new());
    let mut abusive = [Share::new(), Share::new()];
    let mut sum = 0;
    while !abusive.iter().any(Share::is_paused) {
        for share in &mut abusive {
            let mut counts = QuantumCounts::default();
            while !counts.violate() {}
            assert_eq!(counts.violations, VIOLATIONS_PER_QUANTUM);
            shares.end_quantum(share, &counts);
            shares.count_violations(share, counts.violations);
            sum += counts.violations;
        }
    }
    assert!(sum > VIOLATIONS && sum <= VIOLATIONS + 2 * VIOLATIONS_PER_QUANTUM, "{sum}");
    shares.end_quantum(&mut honest, &quantum(0, true));
    assert!(!honest.is_paused());
    shares.reset();
    abusive[1].reset();
    shares.count_violations(&mut abusive[1], 1);
    assert!(!abusive[1].is_paused(), "new counts");
}

#[test]
fn repeated_rejections_pause_a_connection() {
    let mut share = Share::new();
    for _ in 0..2 {
        (1..REFUSALS).for_each(|_| share.refuse());
        assert!(!share.is_paused());
        share.refuse();
        assert!(share.is_paused());
        assert!(share.reset() && !share.is_idle(), "a refused client is no idle one");
    }
}

#[test]
fn one_connections_requests_run_for_20_us_between_polls() {
    assert!(!FairShares::is_poll_due(Nanos(POLL.0 - 1)) && FairShares::is_poll_due(POLL));
}

#[test]
fn handshakes_have_a_sixteenth_of_a_busy_core_and_all_of_a_quiet_one() {
    let step = Nanos::from_micros(300);
    let steps_of_a_second = |answers: bool| {
        let (mut shares, mut now, mut steps) = (FairShares::new(64), Time::ZERO + QUIET + Nanos(1), 0);
        let end = now + Nanos::from_secs(1);
        while now < end {
            if answers {
                shares.note_answer(now);
            }
            if shares.may_handshake(now) {
                shares.charge_handshake(now, || step);
                steps += 1;
                now += step;
            } else {
                now += Nanos::from_micros(20);
            }
        }
        steps
    };
    let (quiet, busy) = (steps_of_a_second(false), steps_of_a_second(true));
    assert_eq!(quiet, 3_334);
    // A sixteenth, and the 20 ms of saved quota.
    assert!((200..300).contains(&busy), "{busy}");
}

#[test]
fn accepting_charges_both_quotas_while_the_core_is_busy() {
    let mut shares = FairShares::new(64);
    let now = Time::ZERO + Nanos::from_secs(1);
    shares.note_answer(now);
    assert!(shares.may_connect(now) && shares.may_handshake(now));
    while shares.may_connect(now) {
        shares.charge_connection(Nanos::from_micros(100), now);
    }
    assert!(!shares.may_handshake(now), "a storm of handshakes pays for its connections");
    let later = now + QUIET + Nanos(1);
    assert!(shares.may_handshake(later) && shares.may_connect(later));
    while shares.may_connect(later) {
        shares.charge_validation(Nanos::from_micros(100));
    }
    assert!(!shares.may_connect(later));
}
