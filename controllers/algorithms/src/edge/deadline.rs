//! Deadlines as spans: the time left for waiting, of a request and of its downstream calls. Does
//! not contain clocks of other machines, or headers.

use leeward_core::budget::Budget;
use leeward_core::units::Nanos;

/// Queueing budget of a request that arrived with `left`, has `waited`, and takes `service`. The
/// budget is spent (`Budget::is_spent`) if even an immediate start would be too late.
///
/// ```
/// use leeward_controllers::edge::deadline::budget;
/// use leeward_core::units::Nanos;
///
/// let ms = Nanos::from_millis;
/// assert_eq!(budget(ms(20), ms(8), ms(5)).remaining(), Some(ms(7)));
/// assert!(budget(ms(20), ms(16), ms(5)).is_spent());
/// ```
pub fn budget(left: Nanos, waited: Nanos, service: Nanos) -> Budget {
    if left == Nanos::MAX { Budget::UNLIMITED } else { Budget::from_target_delay(left, waited, service) }
}

/// Time that a request passes on to its downstream calls, `passed` after it arrived with `left`:
/// never more than it had.
pub fn remaining_after(left: Nanos, passed: Nanos) -> Nanos {
    if left == Nanos::MAX { left } else { left.saturating_sub(passed) }
}
