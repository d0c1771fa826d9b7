//! Both ends on a wire in virtual time.
