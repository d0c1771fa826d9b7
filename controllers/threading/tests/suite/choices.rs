//! Policies by name, and their parameters.

use super::plant::environment;
use leeward_core::params::RawParam;
use leeward_core::units::Nanos;
use leeward_threading::ThreadEnvironment;
use leeward_threading::registry::{POLICIES, PolicyChoice};

fn refuses(text: &str, part: &str) {
    let message = text.parse::<PolicyChoice>().unwrap_err().to_string();
    assert!(message.contains(part) && !message.contains('\n'), "{message}");
}

#[test]
fn a_policy_choice_is_a_policy_or_a_setup() {
    for text in ["fm", "ipi", "tbd", "utune", "leeward", "oracle", "rotate", "static:SDB1-50", "static:CORE2"] {
        assert_eq!(text.parse::<PolicyChoice>().unwrap().to_string(), text);
    }
    assert_eq!("SDB1-50".parse::<PolicyChoice>().unwrap().to_string(), "static:SDB1-50");
    refuses("mtune", "accepted: static, fm, ipi, tbd, utune, leeward, oracle, or a setup such as `SDB1-50`");
    refuses("static", "accepted: `static:SDB1-50`");
    refuses("utune:SDB1-50", "`utune` takes no setup");
    refuses("static:SIX1", "`B` or `P`");
    refuses("SIX1", "`B` or `P`");
    refuses("", "unknown threading policy");
    refuses(&"x".repeat(1_000_000), "unknown threading policy");
    refuses("a\nb", "unknown threading policy");
}

#[test]
fn the_error_for_missing_curves_names_the_train_command() {
    let nothing = ThreadEnvironment::new(None, "SDB1-50".parse().unwrap(), 2);
    for spec in POLICIES {
        let built = spec.build(&spec.params(&[]).unwrap(), &nothing);
        match spec.name {
            "static" | "ipi" => assert!(built.is_ok(), "{}", spec.name),
            _ => {
                let message = built.err().unwrap().to_string();
                assert!(message.contains("curves") && message.contains("leeward train"), "{message}");
            }
        }
    }
}

#[test]
fn the_price_of_cpu_needs_an_objective() {
    let leeward = "leeward".parse::<PolicyChoice>().unwrap().policy;
    let params = leeward.params(&[("objective", RawParam::Text("cpu".into()))]).unwrap();
    let mut environment = environment();
    environment.slo = None;
    assert!(leeward.build(&params, &environment).err().unwrap().to_string().contains("needs an SLO"));
    // Of all setups that need at most 4 ms, the blocking ones need the least CPU.
    let cheap = leeward.build(&params, &environment.with_slo(Nanos::from_millis(5))).unwrap();
    assert_eq!(cheap.initial().to_string(), "SDB1-8");
    // At 700 µs only the pollers are left, and among these the sync one needs less CPU.
    let tight = leeward.build(&params, &super::plant::environment().with_slo(Nanos::from_micros(700))).unwrap();
    assert_eq!(tight.initial().to_string(), "SIP1");
}
