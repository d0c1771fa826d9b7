//! A service in a process of its own, on one CPU: axum, one worker, a handler that works.

use crate::args::Args;
use crate::front::Front;
use crate::grpc;
use crate::handler;
use anyhow::{Context, Result};
use std::io::Read;
use std::time::Duration;

/// Serves until standard input ends; then prints a report on the requests.
pub(crate) fn serve(args: &Args) -> Result<()> {
    if let Some(cpu) = args.cpu {
        pin(cpu)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let front = args.behind.map(|behind| Front::new(args, behind)).transpose()?;
    let app = front.as_ref().map_or_else(|| handler::app(args), Front::router);
    let objective = Duration::from_millis(args.slo);
    let layer = args.guard.layer(objective);
    let layer = layer.map(|layer| if args.reports { layer.report_load() } else { layer });
    let gate = layer.as_ref().map(|layer| layer.gate().clone());
    let stamps = args.guard.has_stamps();
    let app = args.guard.wrap(app, objective)?;
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        let serving = async {
            if args.grpc {
                return grpc::serve(listener, Duration::from_micros(args.work), layer).await;
            }
            let served = match layer {
                Some(layer) if stamps => leeward_tower::axum::serve(listener, app, layer).await,
                Some(layer) => axum::serve(listener, app.layer(layer)).await,
                None => axum::serve(listener, app).await,
            };
            Ok(served?)
        };
        tokio::select! {
            served = serving => served.context("the server ended"),
            _ = ended => Ok(()),
        }
    })?;
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let cpu = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    let Some(gate) = gate else {
        println!("{}", serde_json::json!({ "cpu": cpu }));
        return Ok(());
    };
    let counts = gate.counts();
    let refused: serde_json::Map<_, _> = leeward_tower::DecisionReason::ALL
        .into_iter()
        .map(|reason| (reason.name().into(), counts.rejected_for(reason).into()))
        .collect();
    let (worked, wasted) = front.as_ref().map(|front| front.counts()).unzip();
    println!(
        "{}",
        serde_json::json!({
            "cpu": cpu, "worked": worked, "wasted": wasted,
            "arrived": counts.arrived, "admitted": counts.admitted, "completed": counts.completed, "abandoned": counts.abandoned,
            "in_flight": counts.in_flight(), "refused": refused,
            "newest": gate.decisions(1).first().and_then(|decision| gate.explain(decision.id)),
        })
    );
    Ok(())
}

/// Pins this thread, and threads that it starts later, to one CPU.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).context("a CPU for one side")
}
