//! Former names of this crate's methods, for programs that use them.

use crate::client::{Client, RejectionCounts};
use crate::{EndOfRequest, Slo};

impl Slo {
    /// Former name of [`Slo::queue`].
    #[doc(hidden)]
    #[deprecated(note = "renamed to `queue`")]
    pub fn room(self) -> Self {
        self.queue()
    }

    /// Former name of [`Slo::ends_at`].
    #[doc(hidden)]
    #[deprecated(note = "renamed to `ends_at`")]
    pub fn until(self, end: EndOfRequest) -> Self {
        self.ends_at(end)
    }

    /// Former name of [`Slo::report_load`].
    #[doc(hidden)]
    #[deprecated(note = "renamed to `report_load`")]
    pub fn reports_load(self) -> Self {
        self.report_load()
    }
}

impl Client {
    /// Former name of [`Client::rejections`].
    #[doc(hidden)]
    #[deprecated(note = "renamed to `rejections`")]
    pub fn endings(&self) -> RejectionCounts {
        self.rejections()
    }
}
