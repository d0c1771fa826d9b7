//! Protection of the service: none, Leeward's layer, or another. All reject with status 503.

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use axum::http::{HeaderName, StatusCode};
use clap::ValueEnum;
use leeward_tower::{RequestInfo, Slo, slo};
use std::time::Duration;
use tower::ServiceBuilder;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;

/// Header names that describe requests, parsed once: parsing the names per request would cost more
/// than reading the values.
static DEAR: HeaderName = HeaderName::from_static("x-dear");
static TENANT: HeaderName = HeaderName::from_static("x-tenant");

/// Protection of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Guard {
    /// None.
    #[default]
    Nothing,
    /// Leeward's layer and listener, lateness alone.
    Lateness,
    /// Leeward's layer and listener: level and lateness.
    Level,
    /// Lateness alone, with a wait room.
    LatenessRoom,
    /// Level and lateness, with a wait room.
    LevelRoom,
    /// The same without the room, where every request counts as one whatever it costs.
    Unweighted,
    /// Leeward's layer alone, on a listener without stamps.
    Probe,
    /// Leeward's layer, refusing every request: what a refusal costs.
    RefuseAll,
    /// tower's limit of 1 in flight and its load shedding.
    Limit1,
    /// Of 2.
    Limit2,
    /// Of 4.
    Limit4,
    /// Of 8.
    Limit8,
    /// Of 16.
    Limit16,
    /// Of 32.
    Limit32,
    /// Of 64.
    Limit64,
    /// Of 128.
    Limit128,
    /// Of 256.
    Limit256,
    /// tower-resilience-adaptive's AIMD, and tower's load shedding.
    ResilienceAimd,
    /// tower-resilience-adaptive's Vegas, and tower's load shedding.
    ResilienceVegas,
    /// tower-acc's Gradient2, and tower's load shedding.
    AccGradient2,
}

/// A layer that rejects late requests alone.
fn without_level(layer: Slo) -> Slo {
    layer.build(|builder| builder.set("level", "off"))
}

impl Guard {
    /// The limits of tower that a user would try.
    pub(crate) const LIMITS: [(Guard, usize); 9] = [
        (Guard::Limit1, 1),
        (Guard::Limit2, 2),
        (Guard::Limit4, 4),
        (Guard::Limit8, 8),
        (Guard::Limit16, 16),
        (Guard::Limit32, 32),
        (Guard::Limit64, 64),
        (Guard::Limit128, 128),
        (Guard::Limit256, 256),
    ];

    /// Requests in flight that tower's limit allows, if this is such a limit.
    pub(crate) fn limit(self) -> Option<usize> {
        Guard::LIMITS.into_iter().find(|(guard, _)| *guard == self).map(|(_, limit)| limit)
    }

    /// Leeward's layer with its settings, if this guard uses it.
    pub(crate) fn layer(self, objective: Duration) -> Option<Slo> {
        let layer = slo(objective)
            .workers(1)
            .describe(
                |request, arriving: RequestInfo| {
                    if request.headers.contains_key(&DEAR) { arriving.with_route(1) } else { arriving }
                },
            )
            .tenant(|request| Some(request.headers.get(&TENANT)?.to_str().ok()?.to_owned()));
        match self {
            Guard::Lateness => Some(without_level(layer)),
            Guard::Level | Guard::Probe => Some(layer),
            Guard::LatenessRoom => Some(without_level(layer).queue()),
            Guard::LevelRoom => Some(layer.queue()),
            Guard::Unweighted => Some(layer.build(|builder| builder.set("costs", "off"))),
            Guard::RefuseAll => Some(layer.describe(|_, arriving: RequestInfo| arriving.with_timeout(Duration::ZERO))),
            _ => None,
        }
    }

    /// Returns true if the listener has receive stamps.
    pub(crate) fn has_stamps(self) -> bool {
        self.layer(Duration::from_secs(1)).is_some() && self != Guard::Probe
    }

    /// Wraps `app` in this guard, unless it is Leeward's layer.
    pub(crate) fn wrap(self, app: Router, objective: Duration) -> anyhow::Result<Router> {
        use tower_resilience_adaptive::{AdaptiveLimiterLayer, Aimd, Vegas};
        let refused = || HandleErrorLayer::new(|_: tower::BoxError| async { StatusCode::SERVICE_UNAVAILABLE });
        let shed = || ServiceBuilder::new().layer(refused()).layer(LoadShedLayer::new());
        if let Some(limit) = self.limit() {
            return Ok(app.layer(shed().layer(GlobalConcurrencyLimitLayer::new(limit))));
        }
        Ok(match self {
            Guard::ResilienceAimd => {
                let aimd = Aimd::builder().initial_limit(10).min_limit(1).max_limit(256).latency_threshold(objective);
                app.layer(shed().layer(AdaptiveLimiterLayer::new(aimd.build()?)))
            }
            Guard::ResilienceVegas => {
                app.layer(shed().layer(AdaptiveLimiterLayer::new(Vegas::builder().initial_limit(10).build()?)))
            }
            Guard::AccGradient2 => {
                app.layer(shed().layer(tower_acc::ConcurrencyLimitLayer::new(tower_acc::Gradient2::default())))
            }
            _ => app,
        })
    }
}
