//! Former names and settings of this crate, for programs that use them.

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

    /// Former setting without a level, where all answers come near the end of the objective. At
    /// 50 us of work hardly any was in time, so the level stays on.
    #[doc(hidden)]
    #[deprecated(note = "has no effect: the level stays on")]
    pub fn lateness_only(self) -> Self {
        self
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

#[cfg(test)]
#[allow(deprecated)]
mod tests {
    use crate::client::{client, is_overload, mark_retry, overloaded, repeated};
    use crate::locks::Line;
    use crate::{Arriving, Busy, Counts, EndOfRequest, Reason, RequestInfo, Serving, Until, ms, serving, slo};
    use http::{Request, Response};

    #[test]
    fn former_names_do_what_the_new_ones_do() {
        let former = slo(ms(20)).room().until(Until::Headers).reports_load().build(|builder| builder.queue(3));
        let layer = slo(ms(20)).queue().ends_at(EndOfRequest::Headers).report_load().build(|builder| builder.queue(3));
        assert_eq!(format!("{former:?}"), format!("{layer:?}"));
        assert_eq!((former.ends_at, former.reports_load), (layer.ends_at, layer.reports_load));

        assert_eq!(format!("{:?}", slo(ms(20)).lateness_only()), format!("{:?}", slo(ms(20))), "the level stays on");

        let former = Arriving::default().with_waited(ms(3)).with_left(ms(5));
        let info = RequestInfo::default().with_age(ms(3)).with_timeout(ms(5));
        assert_eq!((former.age, former.timeout), (info.age, info.timeout));
        assert!(info.age.is_some() && info.timeout.is_some());

        let (mut former, mut request) = (Request::new(()), Request::new(()));
        repeated(&mut former, 1);
        mark_retry(&mut request, 1);
        assert_eq!((former.extensions().len(), request.extensions().len()), (1, 1));
        let response = Response::new(());
        assert_eq!(overloaded(&response), is_overload(&response));

        let client = client(ms(20));
        assert_eq!(client.endings(), client.rejections());
        let _: (Option<Serving>, Option<Busy>, Option<Counts>, Option<Reason>) = (serving(), None, None, None);
        drop(Line::new("former name").enter(std::future::ready(())));
    }
}
