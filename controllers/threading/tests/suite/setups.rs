//! Setups to text and back, the errors of bad ones, and the roles of every possible setup.

use leeward_core::units::Nanos;
use leeward_threading::{
    Fanout, Handling, LeftoverWork, POOL_MAX, Role, SPIN_MIN, Setup, Tasks, ThreadingSetup, Wait, roles,
};
use proptest::prelude::*;

/// Any valid setup.
pub(super) fn any_setup() -> impl Strategy<Value = Setup> {
    let fanout = prop_oneof![Just(Fanout::Sync), Just(Fanout::Async)];
    let handling = prop_oneof![Just(Handling::InLine), Just(Handling::Dispatched)];
    let spin = (0..=16u32).prop_map(|power| Wait::PollFor(Nanos(SPIN_MIN.0 << power)));
    let wait = prop_oneof![Just(Wait::Block), Just(Wait::Poll), spin];
    let pool = || prop_oneof![1..=4u16, 1..=POOL_MAX];
    (fanout, handling, wait, pool(), pool(), pool()).prop_map(|(fanout, handling, wait, network, worker, response)| {
        Setup {
            fanout,
            handling,
            wait,
            network,
            worker: if handling == Handling::Dispatched { worker } else { 0 },
            response: if fanout == Fanout::Async { response } else { 0 },
        }
    })
}

fn refuses(text: &str, part: &str) {
    let message = text.parse::<ThreadingSetup>().unwrap_err().to_string();
    assert!(message.contains(part), "{text}: {message}");
    assert!(!message.contains('\n') && message.len() < 320, "{message}");
}

#[test]
fn parses_the_papers_notation() {
    for text in [
        "SIB1", "SIP1", "SDB1-50", "SDP1-20", "AIP1-0-1", "AIB2-0-2", "ADB1-4-4", "ADP1-4-1", "SIP8@4us", "CORE2",
        "CORE1024",
    ] {
        assert_eq!(text.parse::<ThreadingSetup>().unwrap().to_string(), text);
    }
    assert_eq!("CORE2".parse(), Ok(ThreadingSetup::Cores(2)));
    assert_eq!("SIP1@1.024ms".parse::<Setup>().unwrap().wait, Wait::PollFor(Nanos::from_micros(1_024)));
}

#[test]
fn errors_name_the_accepted_values() {
    refuses("SIX1", "`B` or `P`");
    refuses("", "`S` or `A`");
    refuses("sip1", "`S` or `A`");
    refuses("SDB0-4", "from 1 to 1024 network threads");
    refuses("SDB1-0", "from 1 to 1024 workers");
    refuses("ADB1-4-0", "from 1 to 1024 response threads");
    refuses("AIP1-4-1", "an in-line model has no workers; accepted is 0");
    refuses("SIP1-4", "an in-line model has no workers");
    refuses("SIP1-0-2", "a sync model has no response threads");
    refuses("SDB1-4-2", "a sync model has no response threads");
    refuses("SIP1-0", "one pool");
    refuses("SDB1", "two pools");
    refuses("AIP1", "three pools");
    refuses("ADB1-4-4-4", "three pools");
    refuses("SDB1025-4", "from 1 to 1024 network threads");
    refuses("SDB1-1025", "from 1 to 1024 workers");
    refuses("SDB1-99999999999999999999", "from 1 to 1024 workers");
    for text in ["SDB1-", "SDB-4", "SDB1-+4", "SDB01-4", "SDB1- 4", "SDB1-4 ", "SIB٣"] {
        refuses(text, "a whole number");
    }
    for text in ["SIP1@", "SIP1@3us", "SIP1@100ns", "SIP1@1s", "SIP1@4", "SIP1@4us@4us", "SIP1@infs"] {
        refuses(text, "doubled up to 16.384ms");
    }
    refuses("SIB1@4us", "a model that blocks has no time to poll");
    for text in ["CORE", "CORE0", "CORE1025", "CORE-1", "CORE2-1"] {
        refuses(text, "from 1 to 1024 cores");
    }
    refuses(&"\n".repeat(1_000_000), "`S` or `A`");
}

proptest! {
    #[test]
    fn setups_round_trip_through_text(setup in any_setup()) {
        prop_assert_eq!(setup.to_string().parse(), Ok(setup));
        prop_assert_eq!(setup.validate(), Ok(setup));
    }

    #[test]
    fn parsed_setups_print_as_written(text in "(S|A|C|X)(I|D|O)(B|P|R)[0-9]{1,4}(-[0-9]{1,4}){0,3}(@[0-9.]{1,3}(us|ns|ms)?)?") {
        if let Ok(threading) = text.parse::<ThreadingSetup>() {
            // `@0.5us` is `@500ns`: a duration has several texts, the pools have one.
            let again = threading.to_string();
            prop_assert_eq!(again.parse(), Ok(threading));
            prop_assert_eq!(again.split('@').next(), text.split('@').next());
        }
    }

    #[test]
    fn parsing_any_text_does_not_panic(text in any::<String>()) {
        let _ = text.parse::<ThreadingSetup>();
    }

    #[test]
    fn every_setup_has_roles_for_receiving_executing_and_leftover_work(setup in any_setup(), async_calls in 0..3u32) {
        let all: Vec<Role> = roles(&setup, LeftoverWork { async_calls }).collect();
        let with = |roles| all.iter().filter(|role| role.tasks.contains(roles)).count();
        prop_assert_eq!(with(Tasks::RECEIVE), usize::from(setup.network));
        prop_assert!(with(Tasks::EXECUTE) >= 1);
        let extra = usize::from(async_calls > 0 && setup.fanout == Fanout::Sync);
        prop_assert_eq!(with(Tasks::AWAIT_LEAVES), usize::from(setup.response) + extra);
        prop_assert_eq!(all.len(), setup.threads() as usize + extra);

        // The first few threads include one of each.
        let first = |roles| all.iter().position(|role| role.tasks.contains(roles));
        prop_assert_eq!(first(Tasks::RECEIVE), Some(0));
        prop_assert!(first(Tasks::AWAIT_LEAVES).is_none_or(|place| place == 1));
        prop_assert!(first(Tasks::EXECUTE).is_some_and(|place| place <= 2));

        // Workers block; every counted poller is there.
        let polls = all.iter().filter(|role| role.wait == Wait::Poll);
        prop_assert_eq!(polls.clone().count(), setup.pollers() as usize);
        prop_assert!(polls.clone().all(|role| role.tasks != Tasks::EXECUTE));
    }
}
